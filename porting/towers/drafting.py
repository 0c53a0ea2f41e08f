"""The first draft of a family's file, from what a tower's class reads and takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from porting import host
from porting.job import Job
from porting.model_file import ModelFileError, load
from porting.result import Result, Status
from porting.towers import general, structure
from porting.towers.attempts import as_its_own_family
from porting.towers.filled import needed
from porting.towers.found import Found, UnknownTower
from porting.towers.make import MissingAttribute, MissingParameters
from porting.towers.pictures import WAYS
from porting.towers.tower import Shape

# How the forms of pictures are written, and which of them stay as they are for pictures of one size.
WRITTEN = {
    "packed patches": "packed()",
    "packed patches, grids as a tensor": "packed(grid_as_tensor=True)",
    "one long sequence": "one_long_sequence",
    "images": "images",
    "images with masks": "images_with_masks",
    "list of images": "list_of_images",
    "patches with sizes": "patches_with_sizes",
    "sounds": "sounds",
}
ONE_SIZE = ("images", "images with masks", "sounds")
NO_VIDEO = (*ONE_SIZE, "list of images", "patches with sizes")

OPEN = "  # nothing is known of it: give a small value"

# A shape whose sizes are all different, so that a value tells where it comes from.
TELLING = Shape(head_dim=11, heads=26, kv_heads=13, depth=5)
WRITTEN_SIZES = {
    TELLING.hidden_size: "shape.hidden_size",
    2 * TELLING.hidden_size: "2 * shape.hidden_size",
    TELLING.head_dim: "shape.head_dim",
    TELLING.heads: "shape.heads",
    TELLING.kv_heads: "shape.kv_heads or shape.heads",
    TELLING.depth: "shape.depth",
}


def run(job: Job) -> list[Result]:
    """A result for each tower, with the text of its draft in `numbers`; PASSED where the draft builds and runs."""
    host.start_groups()
    try:
        module = load(job.path)
    except ModelFileError as error:
        return [job.result(Status.ERROR, str(error))]
    classes = structure.towers_of(module)
    if not classes:
        return [job.result(Status.NOT_RUN, f"{job.path}: {structure.no_tower(module)}")]
    return [_draft(job, cls, len(classes) > 1) for cls in classes]


def _draft(job: Job, cls: type[nn.Module], several: bool) -> Result:
    family = f"{job.path.stem}_{cls.__name__.lower()}" if several else job.path.stem
    names = structure.names_in(cls) | set(structure.constructor(cls).parameters)
    read = {name: value for name, value in general.config(TELLING).items() if name in names}
    try:
        found = as_its_own_family(cls)
    except UnknownTower as unknown:
        way = "packed patches"
        missing = dict.fromkeys(_missing(unknown.__cause__), ...)
        todo = f"{cls.__name__}: {unknown}"
        if missing:
            todo = f"{cls.__name__}: fill in what the draft leaves open ({str(unknown).partition(';')[0]})"
        text = _text(family, cls, {**needed(WAYS[way], read, TELLING), **read, **missing}, way)
        return job.result(Status.FAILED, todo, numbers={"draft": text})
    way = _way(found)
    text = _text(family, cls, {**needed(WAYS[way], read, TELLING), **read, **_guessed(found)}, way)
    summary = f"{cls.__name__}: builds and runs; save the draft as porting/towers/{family}.py and look over its values"
    return job.result(Status.PASSED, summary, numbers={"draft": text})


def _missing(cause: BaseException | None) -> tuple[str, ...]:
    """What a class wants and nothing is known of."""
    if isinstance(cause, MissingParameters):
        return cause.names
    return (str(cause),) if isinstance(cause, MissingAttribute) else ()


def _guessed(found: Found) -> dict[str, Any]:
    """What the general configuration does not have, and what a variant of it has otherwise."""
    usual, own = general.config(found.shape), found.tower.config(found.shape)
    return {name: value for name, value in own.items() if usual.get(name) != value}


def _way(found: Found) -> str:
    return next(name for name, way in WAYS.items() if way is found.tower.inputs)


def _text(family: str, cls: type[nn.Module], config: Mapping[str, Any], way: str) -> str:
    pictures = WRITTEN[way].partition("(")[0]
    lines = [
        f'"""{family}."""',
        "",
        f"from porting.towers.pictures import {pictures}",
        "from porting.towers.tower import Tower",
        "",
        "TOWER = Tower(",
        f'    family="{family}",',
        f'    classes=("{cls.__name__}",),',
        "    config=lambda shape: {",
        *(f'        "{name}": {_written(value)},{OPEN if value is ... else ""}' for name, value in config.items()),
        "    },",
        f"    inputs={WRITTEN[way]},",
        *(["    grouped_query=True,"] if TELLING.kv_heads in config.values() else []),
        *(["    sizes=False,"] if way in ONE_SIZE else []),
        *(["    video=False,"] if way in NO_VIDEO else []),
        ")",
        "",
    ]
    return "\n".join(lines)


def _written(value: Any) -> str:
    """A value as Python: sizes as the shape has them, and `...` for what is to be filled in."""
    if value is ...:
        return "..."
    if isinstance(value, int) and not isinstance(value, bool) and value in WRITTEN_SIZES:
        return WRITTEN_SIZES[value]
    if value == [TELLING.depth - 1]:
        return "[shape.depth - 1]"
    return f'"{value}"' if isinstance(value, str) else repr(value)

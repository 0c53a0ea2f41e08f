"""Does embed_multimodal of the whole model give the right vectors for each picture?

The model is built tiny, from a configuration alone, with the port's own classes. Each picture and video must become as
many vectors as its grid says, and the same ones as if it were asked alone; with an original, the same as from that.
"""

from __future__ import annotations

import inspect
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from porting import host, models
from porting.comparison.distance import part_of_largest
from porting.job import Job
from porting.model_file import ModelFileError, load
from porting.models.build import build
from porting.models.find import NoWholeModel, find_class
from porting.models.pictures import PICTURES, VIDEO_KEYWORDS, Pictures
from porting.private_modules import MODELS, package_of
from porting.processes.job import describe
from porting.result import Result, Status
from porting.shim import Original, UnknownRelease, load_original
from porting.shim.installed import installed_release
from porting.towers import structure
from porting.towers.tower import Grid
from porting.upstream_changes import UpstreamChange, changes

IMAGES = (Grid(1, 4, 6), Grid(1, 8, 4), Grid(1, 4, 4))
VIDEOS = (Grid(2, 4, 6), Grid(3, 4, 4))

# What the order of sums may cost, as a part of the largest number: with other pictures beside it, a picture's matrix
# products have other shapes.
ALLOWED = {"float32": 1e-5, "float16": 5e-3, "bfloat16": 4e-2}


class Wrong(Exception):
    """What is wrong with the port, in one line."""


@dataclass
class Asked:
    """A whole model that can be asked for the vectors of pictures."""

    model: nn.Module
    pictures: Pictures
    vision: Mapping[str, Any]
    dtype: str
    device: str
    note: str = ""

    def vectors(self, grids: Sequence[Grid], seeds: Sequence[int]) -> list[torch.Tensor]:
        """What the model makes of each picture, `(vectors, features)`; grids stay on the CPU, as vLLM keeps them."""
        keywords = self.pictures.keywords(self.vision, grids, getattr(torch, self.dtype), seeds)
        if grids[0].t > 1:
            keywords = {VIDEO_KEYWORDS[name]: value for name, value in keywords.items()}
        with torch.no_grad():
            return list(self.model.embed_multimodal(**{name: self._placed(each) for name, each in keywords.items()}))

    def _placed(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._placed(each) for each in value]
        return value.to(self.device) if value.is_floating_point() else value


@dataclass(frozen=True)
class Answer:
    """The vectors of IMAGES and of VIDEOS, the latter empty where the model takes none."""

    images: list[torch.Tensor]
    videos: list[torch.Tensor]

    @property
    def said(self) -> str:
        return f"{len(self.images)} pictures" + (f" and {len(self.videos)} videos" if self.videos else "")

    @property
    def joined(self) -> torch.Tensor:
        return torch.cat([*self.images, *self.videos])


@dataclass
class Seen:
    """What was found so far."""

    numbers: dict[str, float]
    notes: list[str] = field(default_factory=list)


def run(job: Job) -> list[Result]:
    """One result, for the whole model of the file."""
    host.prepare_process()
    host.start_groups()
    module = load(job.path)
    try:
        cls, architecture = find_class(module, job.path)
        if architecture not in PICTURES:
            raise NoWholeModel(f"of {architecture} it is not known how it takes pictures")
    except NoWholeModel as reason:
        return [job.result(Status.NOT_RUN, str(reason))]
    seen = Seen({"bound": ALLOWED[job.dtype]})
    status = Status.PASSED
    try:
        summary = _prove(job, cls, architecture, structure.towers_of(module), seen)
    except Wrong as wrong:
        status, summary = Status.FAILED, str(wrong)
    except NoWholeModel as reason:
        status, summary = Status.NOT_RUN, str(reason)
    return [job.result(status, f"{cls.__name__}: {summary}", numbers=seen.numbers, notes=tuple(seen.notes))]


def _prove(job: Job, cls: type[nn.Module], architecture: str, towers: Sequence[type[nn.Module]], seen: Seen) -> str:
    """The summary. Raises Wrong."""
    asked = _asked(job, cls, architecture)
    seen.notes += filter(None, [asked.note])
    held: list[nn.Module] = [module for module in asked.model.modules() if isinstance(module, tuple(towers))]
    if towers and not held:
        lacks = f"holds none of the file's towers, {', '.join(tower.__name__ for tower in towers)}"
        if cls.__module__.startswith(MODELS):  # a model of vLLM's that takes other things from the file
            raise NoWholeModel(lacks)
        raise Wrong(lacks)
    calls: list[Any] = []
    with ExitStack() as stack:
        for tower in held:
            stack.callback(tower.register_forward_hook(lambda *call: calls.append(call[2])).remove)
        try:
            answer = _both(asked)
        except Exception as error:
            raise Wrong(f"raises {describe(error)}") from error
    if towers and not calls:
        raise Wrong(f"does not call the file's tower {type(held[0]).__name__}")
    problems = [*_each_right(asked, IMAGES, answer.images, seen), *_each_right(asked, VIDEOS, answer.videos, seen)]
    if not problems:
        _as_the_tower(calls, answer.images, seen)
    compared = _as_the_original(job, cls, architecture, answer, seen)
    if problems and not compared:
        raise Wrong(problems[0])
    if problems:
        seen.notes += [f"the same in its original: {problem}" for problem in problems]
        return f"{answer.said} become vectors{compared}, faults of which it has too"
    return f"{answer.said} become the right vectors, each as if it were alone{compared}"


def _asked(job: Job, cls: type[nn.Module], architecture: str) -> Asked:
    pictures = PICTURES[architecture]
    vision = models.config(architecture)[pictures.vision]

    def made(flat: bool) -> nn.Module:
        with tempfile.TemporaryDirectory(prefix="vitport-") as folder:
            return build(cls, architecture, job.dtype, job.device, Path(folder), flat)

    try:
        return Asked(made(flat=False), pictures, vision, job.dtype, job.device)
    except AttributeError as missing:
        note = f"built from a configuration that is flat, as of transformers up to 4; from a nested one: {missing}"
        try:
            return Asked(made(flat=True), pictures, vision, job.dtype, job.device, note)
        except Exception as error:
            raise missing from error


def _both(asked: Asked) -> Answer:
    images = asked.vectors(IMAGES, range(len(IMAGES)))
    return Answer(images, asked.vectors(VIDEOS, range(len(VIDEOS))) if asked.pictures.video else [])


def _each_right(asked: Asked, grids: Sequence[Grid], together: Sequence[torch.Tensor], seen: Seen) -> Iterator[str]:
    """What is wrong with the vectors of each picture: too many or few, or others than alone."""
    if not together:
        return
    kind = "video" if grids[0].t > 1 else "image"
    wanted = [asked.pictures.vectors(asked.vision, grid) for grid in grids]
    given = [len(vectors) for vectors in together]
    if given != wanted:
        yield f"gives {given} vectors for {kind}s of grids {[tuple(grid) for grid in grids]}, which have {wanted}"
        return
    name = f"{kind} alone: difference"
    for number, (grid, vectors) in enumerate(zip(grids, together)):
        (alone,) = asked.vectors([grid], [number])
        distance = part_of_largest(vectors, alone)
        seen.numbers[name] = max(distance, seen.numbers.get(name, 0.0))
        if not distance <= ALLOWED[asked.dtype]:
            yield f"{kind} {number + 1} of {len(grids)} differs by {distance:.2g} of the largest number from it alone"


def _as_the_tower(calls: Sequence[Any], images: Sequence[torch.Tensor], seen: Seen) -> None:
    """Where the output of the file's tower is as large as the embeddings it is the embeddings. Raises Wrong."""
    if not calls:
        return
    output, joined = host.output_tensor(calls[0]), torch.cat(list(images))
    if output.shape != joined.shape:
        seen.notes.append("the model makes more of the tower's output, so the two are not compared")
        return
    distance = part_of_largest(joined, output)
    seen.numbers["the tower's output: difference"] = distance
    if distance:
        raise Wrong(f"its vectors differ by {distance:.2g} of the largest number from its tower's output")


def _as_the_original(job: Job, cls: type[nn.Module], architecture: str, answer: Answer, seen: Seen) -> str:
    """What to add to the summary; empty where nothing was compared. Raises Wrong where the original says otherwise."""
    if not job.before:
        seen.notes.append("compared with no original: none was given, with --before")
        return ""
    try:
        original, old = _original(job, job.before, cls)
        asked = _asked(job, old, architecture)
        expected = _both(asked)
    except (ModelFileError, UnknownRelease, NoWholeModel) as error:
        seen.notes.append(f"the original's whole model cannot be loaded here: {error}")
        return ""
    except Exception as error:  # an old processor, configuration or loader that this vLLM has no place for
        seen.notes.append(f"the original's whole model cannot be built here: {describe(error)}")
        return ""
    seen.notes += original.notes
    distance = part_of_largest(answer.joined, expected.joined)
    with ExitStack() as stack:
        for tower, change in _changed(original, asked.model):
            if distance <= ALLOWED[job.dtype] or change.as_after is None:
                break
            stack.enter_context(change.as_after(tower))
            seen.notes.append(change.said())
            distance = part_of_largest(answer.joined, _both(asked).joined)
    seen.numbers["the original: difference"] = distance
    if not distance <= ALLOWED[job.dtype]:
        raise Wrong(f"differs by {distance:.2g} of the largest number from its original")
    return ", equal to its original's" if not distance else ", equal to its original's but for rounding"


def _original(job: Job, before: Path, cls: type[nn.Module]) -> tuple[Original, type[nn.Module]]:
    """The class of the original that has the name of the ported one: of the file that lies as that one's does, or one
    that uses the original's tower. Raises what loading raises.
    """
    original = load_original(before, job.before_release)
    path, file = job.path.resolve(), Path(inspect.getfile(cls)).resolve()
    if file != path and file.is_relative_to(package_of(path)[0]):
        original = load_original(before.parent / os.path.relpath(file, path.parent), job.before_release)
    same = getattr(original.module, cls.__name__, None)
    return original, same or find_class(original.module, before)[0]


def _changed(original: Original, model: nn.Module) -> list[tuple[nn.Module, UpstreamChange]]:
    """Parts of the original's model, with what vLLM changed in them since; a change of any tower is the whole's."""
    return [
        (module, change)
        for module in model.modules()
        for change in changes(type(module), original.release, installed_release())
        if change.classes or module is model
    ]

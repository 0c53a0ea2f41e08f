"""Pictures of one rank and of several, with cache-dit and without: equal within half a level of 255, or not."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from porting.diffusion.cases import ONE_RANK, Way
from porting.diffusion.package import submodule
from porting.diffusion.pictures import TRANSFORMER, Drawn, by_diffusers, by_package
from porting.diffusion.stand_in import native_operators
from porting.forks import ForkFailed, ForkHangs, forked, forked_ranks
from porting.job import Job
from porting.result import Result, Status

SECONDS = 300.0  # for one picture; the small pipelines take two

LEVELS = 255
ALLOWED = 0.5  # of a level: saved pictures differ by one at most, where a number lies between two

ROWS = {"picture": False, "picture, cache-dit": True}


def draw(job: Job, folder: Path, ways: Sequence[Way]) -> Iterator[Result]:
    """A result for each row and way, one rank first; `model` is the row, `level` the way."""
    if job.device != "cpu":
        told = job.at(level=ONE_RANK.name).result(Status.NOT_RUN, "pictures are drawn on a CPU: ask with --device cpu")
        yield from (replace(told, model=row) for row in ROWS)
        return
    native_operators()
    submodule(TRANSFORMER)
    heads = json.loads((folder / "transformer" / "config.json").read_text(encoding="utf-8"))["num_attention_heads"]
    try:
        right = forked(partial(by_diffusers, folder, job.prompt), SECONDS)
    except ForkFailed as failure:
        lost = job.at(level=ONE_RANK.name).result(Status.ERROR, f"diffusers itself draws nothing: {failure}")
        yield from (replace(lost, model=row) for row in ROWS)
        return
    for row, cached in ROWS.items():
        alone: Drawn | None = None
        for way in (ONE_RANK, *ways):
            asked = job.at(level=way.name, dtype="float32", backend="")
            if heads % way.ulysses:
                told = asked.result(
                    Status.NOT_RUN, f"{way.ulysses} ranks cannot share the {heads} heads of {folder.name}"
                )
            else:
                work = partial(by_package, folder, job.prompt, way, cached, job.device)
                try:
                    drawn = forked_ranks(work, way.ranks, SECONDS)
                    alone = alone or drawn[0]
                    told = _judged(asked, way, cached, drawn, alone, right)
                except ForkFailed as failure:
                    status = Status.TIMED_OUT if isinstance(failure, ForkHangs) else Status.FAILED
                    told = asked.result(status, f"draws nothing: {failure}", notes=failure.last)
            yield replace(told, model=row)


def _judged(job: Job, way: Way, cached: bool, drawn: list[Drawn], alone: Drawn, right: Drawn) -> Result:
    """With a cache the picture is another one, so it is compared with that of one rank alone."""
    expected = {"one rank": alone} if cached else {"diffusers": right, "one rank": alone}
    levels = {name: max(_apart(one, other) for one in drawn) for name, other in expected.items()}
    numbers: dict[str, Any] = {**levels, "bound": ALLOWED}
    if cached:
        numbers["taken from the cache"] = drawn[0].reused
    if way != ONE_RANK:
        numbers["collectives"] = ", ".join(f"{count} {name}" for name, count in drawn[0].collectives.items())
    numbers["picture"] = _png(drawn[0].picture)
    furthest = max(levels.values())
    if not furthest <= ALLOWED:
        worst = max(levels, key=levels.__getitem__)
        return job.result(Status.FAILED, f"is {furthest:.2g} levels of {LEVELS} away from {worst}", numbers=numbers)
    if cached and not drawn[0].reused:
        return job.result(Status.FAILED, "nothing was taken from the cache", numbers=numbers)
    if way != ONE_RANK and not drawn[0].collectives:
        return job.result(Status.FAILED, "calls no collective: nothing is shared among ranks", numbers=numbers)
    compared = " and from ".join(expected)
    return job.result(Status.PASSED, f"at most {furthest:.1g} levels of {LEVELS} away from {compared}", numbers=numbers)


def _apart(one: Drawn, other: Drawn) -> float:
    """The largest difference in levels; infinite where one is no number."""
    return float(((one.picture.double() - other.picture.double()).abs() * LEVELS).nan_to_num(nan=torch.inf).max())


def _png(picture: torch.Tensor) -> str:
    """As text, for a report."""
    from PIL import Image

    written = io.BytesIO()
    Image.fromarray((picture.clamp(0, 1) * LEVELS).round().byte().numpy()).save(written, "png")
    return base64.b64encode(written.getvalue()).decode()

"""N ranks against one rank and against an fp64 reference, for each way to share a sequence and each case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from porting.comparison.distance import part_of_largest
from porting.diffusion.cases import ONE_RANK, WAYS, Case, Way
from porting.diffusion.inputs import inputs_of, reference, split
from porting.diffusion.package import Package
from porting.diffusion.ranks import Part, Refusal, run_cases
from porting.forks import ForkFailed, ForkHangs, forked_ranks
from porting.job import Job
from porting.result import Result, Status

SECONDS = 120.0  # for the ranks of one way; they take about two

# Of the largest number: other orders of a sum, and rounding to the dtype. A ring adds partial results that it rounded.
ALLOWED = {"float32": 1e-5, "bfloat16": 3e-2}

Outcome = list[Any] | ForkFailed  # of a case: a Part or Refusal of each rank, or how it ended


def judge(job: Job, package: Package, cases: Sequence[Case], ways: Sequence[Way], dtype: str) -> Iterator[Result]:
    """A result for each way, one rank first, and each case. `model` is the case, `level` the way."""
    run = partial(_outcomes, package, cases, dtype=dtype, device=job.device)
    devices = torch.accelerator.device_count() if job.device != "cpu" else max(way.ranks for way in WAYS)
    alone = run(ONE_RANK)
    for way in (ONE_RANK, *ways):
        asked = job.at(level=way.name, dtype=dtype, backend="")
        if way.ranks > devices:
            lacking = asked.result(Status.NOT_RUN, f"needs {way.ranks} devices, {devices} is attached")
            yield from (replace(lacking, model=case.name) for case in cases)
            continue
        outcomes = alone if way == ONE_RANK else run(way)
        for case in cases:
            yield replace(_judged(asked, case, way, outcomes[case.name], alone[case.name]), model=case.name)


def _outcomes(package: Package, cases: Sequence[Case], way: Way, dtype: str, device: str) -> dict[str, Outcome]:
    """What came of each case. They share processes as long as none fails: groups are of no use after that."""
    work = partial(run_cases, package, way=way, dtype=getattr(torch, dtype), device=device)
    try:
        ranks = forked_ranks(partial(_work, work, cases), way.ranks, SECONDS)
        return {case.name: [rank[case.name] for rank in ranks] for case in cases}
    except ForkFailed as failure:
        if len(cases) == 1:
            return {cases[0].name: failure}
        return {case.name: _outcomes(package, [case], way, dtype, device)[case.name] for case in cases}


def _work(work: Any, cases: Sequence[Case], rank: int, rendezvous: Any) -> Any:
    return work(cases, rank=rank, rendezvous=rendezvous)


def _judged(job: Job, case: Case, way: Way, outcome: Outcome, alone: Outcome) -> Result:
    if isinstance(outcome, ForkFailed):
        status = Status.TIMED_OUT if isinstance(outcome, ForkHangs) else Status.FAILED
        return job.result(status, f"does not run: {str(outcome).partition(': ')[2]}", notes=outcome.last)
    refusals = [part for part in outcome if isinstance(part, Refusal)]
    if refusals:
        return _refused(job, case, refusals, outcome, alone)
    numbers: dict[str, Any] = _errors(case, job.dtype, outcome, alone)
    if way != ONE_RANK:
        numbers["collectives"] = ", ".join(f"{count} {name}" for name, count in outcome[0].collectives.items())
        if not numbers["collectives"]:
            return job.result(Status.FAILED, "calls no collective: nothing is shared among ranks", numbers=numbers)
    furthest = max(numbers[name] for name in ERRORS if name in numbers)
    worst = next(name for name in ERRORS if numbers.get(name) == furthest)
    numbers["bound"] = ALLOWED[job.dtype]
    if not furthest <= ALLOWED[job.dtype]:
        return job.result(Status.FAILED, f"is {furthest:.2g} of the largest number away from {worst}", numbers=numbers)
    compared = " and from ".join(name for name in ERRORS if name in numbers)
    summary = f"at most {furthest:.1g} of the largest number away from {compared}"
    return job.result(Status.PASSED, summary, numbers=numbers)


ERRORS = ("one rank", "fp64 attention")


def _refused(job: Job, case: Case, refusals: list[Refusal], outcome: list[Any], alone: Outcome) -> Result:
    """Never good. Where splitting declines and attention does not, what it would give is told."""
    first = refusals[0]
    notes = []
    if all(isinstance(part, Refusal) and part.silent for part in outcome):
        errors = _errors(case, job.dtype, [part.silent for part in outcome], alone)
        away = ", ".join(f"{error:.2g} from {name}" for name, error in errors.items())
        notes.append(f"its attention takes the mask and gives numbers that are {away}")
    return job.result(Status.NOT_RUN, f"declined by its {first.by}: {first.reason}", notes=tuple(notes))


def _errors(case: Case, dtype: str, parts: Sequence[Part], alone: Outcome) -> dict[str, float]:
    """The largest differences as parts of the largest number: the picture of all ranks together, the text of each."""
    right = {"fp64 attention": split(reference(case, inputs_of(case, getattr(torch, dtype))), case.text, case.place)}
    if not isinstance(alone, ForkFailed) and isinstance(alone[0], Part):
        right["one rank"] = (alone[0].picture, alone[0].text)
    picture = torch.cat([part.picture for part in parts], dim=1)[:, : case.tokens]  # behind it there is padding
    return {
        name: max(
            part_of_largest(picture, expected),
            *(part_of_largest(part.text, text) for part in parts if case.text),
            0.0,
        )
        for name, (expected, text) in right.items()
    }

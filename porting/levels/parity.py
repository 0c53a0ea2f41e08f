"""Same weights, same pictures: does the ported tower give what the original gives, and what attention should give?

Two results for each tower: against its original, and against a reference, which needs no original. A third where the
original's own vLLM was asked for: whether it computes there what it computes here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import nn

from porting import releases
from porting.comparison import old_release
from porting.comparison.case import Case, Outcome, pictures_of, said, shapes_of
from porting.comparison.original import against_original
from porting.comparison.reference import against_reference
from porting.job import Job
from porting.pairs import Pair, each_tower
from porting.result import Result, Status
from porting.towers.find import Found, make
from porting.towers.tower import Shape


def run(job: Job) -> list[Result]:
    """Two or three results for each tower of the file."""
    return each_tower(job, lambda pair: [*_both(job, pair), *_in_its_own_vllm(job, pair)])


def _both(job: Job, pair: Pair) -> list[Result]:
    cases: list[Case] = []
    notes: list[str] = []
    for shape in shapes_of(pair.ported):
        built = list(_cases(job, pair, shape))
        notes += [case for case in built if isinstance(case, str)]
        cases += [case for case in built if isinstance(case, Case)]
    reference = _asked(cases, against_reference)
    original = _asked([case for case in cases if case.original], against_original)
    return [
        _against_original(job, pair, original, notes),
        _result(job, pair, "the reference", reference, notes),
    ]


def _in_its_own_vllm(job: Job, pair: Pair) -> list[Result]:
    if not (pair.file and pair.original and job.before and job.before_release):
        return []
    if (job.device, job.dtype) != ("cpu", "float32"):  # old releases are had for the CPU, and rounding says least there
        return []
    release = pair.file.release
    what = f"{pair.name}, its original in vLLM {release} itself"
    if not releases.made(release):
        return [job.result(Status.NOT_RUN, f"{what}: not made, by `python -m porting.releases {release}`")]
    try:
        put, shim = old_release.question(pair.file, pair.original, job.before)
        (own,) = old_release.ask([put], release)
    except Exception as error:
        return [job.result(Status.NOT_RUN, f"{what}: {said(error)}")]
    if own.problem:
        return [job.result(Status.NOT_RUN, f"{what}: cannot be run there, {own.problem}")]
    found = old_release.compare(shim, own)
    numbers = {"difference": found.difference}
    if found.problem:  # not a fault of the port
        return [job.result(Status.ERROR, f"{what}: it {found.problem}, which is a fault of vitport", numbers=numbers)]
    return [job.result(Status.PASSED, f"{what}: difference {found.difference:.2g}", numbers=numbers)]


def _cases(job: Job, pair: Pair, shape: Shape) -> Iterator[Case | str]:
    """The cases of a shape, or why there are none: not every class can be built with every size of head."""
    dtype = getattr(torch, job.dtype)
    ported = _built(pair.ported, shape, dtype, job.device)
    original = _built(pair.original, shape, dtype, job.device) if pair.original else None
    if isinstance(original, str):
        yield f"head_dim {shape.head_dim}: the original cannot be built, {original}"
    if isinstance(ported, str):
        yield f"head_dim {shape.head_dim}: cannot be built, {ported}"
        return
    built = original if isinstance(original, nn.Module) else None
    for pictures in pictures_of(pair.ported):
        yield Case(pair, shape, pictures, dtype, job.device, ported, built)


def _built(found: Found, shape: Shape, dtype: torch.dtype, device: str) -> nn.Module | str:
    try:
        return make(found, shape, dtype, device)
    except Exception as error:
        return said(error)


def _asked(cases: list[Case], ask: Callable[[Case], Outcome]) -> list[tuple[Case, Outcome]]:
    return [(case, ask(case)) for case in cases]


def _against_original(job: Job, pair: Pair, answers: list[tuple[Case, Outcome]], notes: list[str]) -> Result:
    if not pair.original:
        return job.result(Status.NOT_RUN, f"{pair.name}: not compared with an original: {pair.alone}", notes=pair.notes)
    if not any(outcome.compared for _, outcome in answers):
        why = next(iter([*notes, *(outcome.note for _, outcome in answers)]), "no case could be built")
        return job.result(Status.NOT_RUN, f"{pair.name}: not compared with the original: {why}", notes=pair.notes)
    return _result(job, pair, "the original", answers, notes)


def _result(job: Job, pair: Pair, what: str, answers: list[tuple[Case, Outcome]], notes: list[str]) -> Result:
    outcomes = [outcome for _, outcome in answers]
    problems = [outcome for outcome in outcomes if outcome.problem]
    numbers = {
        "comparisons": sum(outcome.compared for outcome in outcomes),
        **_largest(outcomes),
        "cases": [{"case": case.name, **outcome.numbers} for case, outcome in answers],
        **(problems[0].more if problems else {}),
    }
    facts = {"numbers": numbers, "notes": (*pair.notes, *notes, *_said_of_cases(outcomes))}
    if problems:
        more = f" (and in {len(problems) - 1} more of {len(outcomes)} cases)" if problems[1:] else ""
        return job.result(Status.FAILED, f"{pair.name}, {what}: {problems[0].problem}{more}", **facts)
    if not numbers["comparisons"]:
        why = next((outcome.note for outcome in outcomes if outcome.note), "")
        status = Status.NOT_RUN if why else Status.FAILED
        return job.result(status, f"{pair.name}, {what}: {why or 'nothing was compared'}", **facts)
    figures = ", ".join(f"{name} {value:.2g}" for name, value in _largest(outcomes).items())
    return job.result(Status.PASSED, f"{pair.name}, {what}: {len(outcomes)} cases, {figures}", **facts)


def _said_of_cases(outcomes: list[Outcome]) -> list[str]:
    """The first note, with how many there are: they tend to be the same in every size of head."""
    said = [outcome.note for outcome in outcomes if outcome.note]
    return [f"{said[0]}{f' (and in {len(said) - 1} more cases)' if said[1:] else ''}"] if said else []


def _largest(outcomes: list[Outcome]) -> dict[str, float | int]:
    names = dict.fromkeys(name for outcome in outcomes for name in outcome.numbers)
    return {name: max(outcome.numbers.get(name, 0) for outcome in outcomes) for name in names}

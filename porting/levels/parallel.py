"""Does it hold under tensor parallelism of two? One process and two must give the same vectors for the same weights.

The weights are those of the tower in one process; each parameter of a rank takes its part by its own weight_loader, as
from a checkpoint. What that cannot see are weights that the tower's own `load_weights` would have put in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from porting import host
from porting.comparison.distance import part_of_largest
from porting.forks import ForkFailed, ForkHangs, on_ranks
from porting.job import Job
from porting.pairs import Pair, each_tower
from porting.result import Result, Status
from porting.towers.find import Found, make
from porting.towers.tower import SEVERAL, Inputs, Shape
from porting.towers.tower import run as run_tower

RANKS = 2
SECONDS = 120.0  # the tiny towers take about two

# Two heads for each rank, or their order within a rank would not matter.
SHAPE = Shape(heads=4)

# What the other order of a sum may cost, as a part of the largest number: row-parallel layers add partial results.
ALLOWED = {"float32": 1e-5, "float16": 5e-3, "bfloat16": 4e-2}


def run(job: Job) -> list[Result]:
    """One result for each tower of the file."""
    host.prepare_process()
    return each_tower(job, lambda pair: [_result(job, pair)])


def _result(job: Job, pair: Pair) -> Result:
    if job.device != "cpu" and (devices := torch.accelerator.device_count()) < RANKS:
        return job.result(Status.NOT_RUN, f"{pair.name}: needs {RANKS} devices, {devices} is attached")
    host.stop_groups()  # forks would take this process's for theirs
    try:
        return _judged(job, pair)
    finally:
        host.start_groups()


def _judged(job: Job, pair: Pair) -> Result:
    """Weights split over the ranks must hold. Pictures shared by ranks that have them whole is for a model to offer:
    there a port must hold what its original holds.
    """
    ported = _proved(job, pair.ported, _split(pair.ported))
    original = _proved(job, pair.original, _split(pair.ported)) if pair.original else None
    summary = f"{pair.name} {ported.said}"
    if original and Status.FAILED == ported.status == original.status:
        summary += "; so does its original, so it was not the port that broke it"
    notes = [*pair.notes, *([f"the original {original.said}"] if original else []), *ported.trace]
    if ported.status is not Status.PASSED:
        return job.result(ported.status, summary, numbers=ported.numbers, notes=tuple(notes))
    whole = _proved(job, pair.ported, WHOLE)
    numbers = {**ported.numbers, **whole.numbers}
    if whole.status is not Status.PASSED:
        notes.append(f"with mm_encoder_tp_mode=data it {whole.said}")
        if pair.original and _proved(job, pair.original, WHOLE).status is Status.PASSED:
            summary = f"{pair.name} {whole.said}, where its original holds"
            return job.result(whole.status, summary, numbers=numbers, notes=(*notes, *whole.trace))
    return job.result(ported.status, summary, numbers=numbers, notes=tuple(notes))


@dataclass(frozen=True)
class Proof:
    """What was seen of one tower. `said` follows its name."""

    status: Status
    said: str
    numbers: Mapping[str, float]
    trace: tuple[str, ...] = ()


@dataclass(frozen=True)
class Way:
    """A way that vLLM has to use several ranks for an encoder."""

    name: str
    shape: Shape = SHAPE
    data_parallel: bool = False


SPLIT = Way("weights split")
SPLIT_GROUPED = Way("weights split, grouped queries", Shape(heads=4, kv_heads=2))
WHOLE = (Way("whole weights", data_parallel=True),)


def _split(found: Found) -> tuple[Way, ...]:
    return (SPLIT, SPLIT_GROUPED) if found.tower.grouped_query and not found.fixed else (SPLIT,)


def _proved(job: Job, found: Found, ways: Sequence[Way]) -> Proof:
    dtype = getattr(torch, job.dtype)
    numbers: dict[str, float] = {"bound": ALLOWED[job.dtype]}
    for way in ways:

        def build(way: Way = way) -> nn.Module:
            return make(found, way.shape, dtype, job.device, way.data_parallel)

        try:
            seen = difference(build, found.inputs(way.shape, SEVERAL, dtype).to(job.device), job.device)
        except WholeFails as failure:
            return Proof(Status.ERROR, str(failure), numbers, failure.last)
        except ForkHangs as failure:
            return Proof(Status.TIMED_OUT, f"hangs with {way.name}: {failure}", numbers, failure.last)
        except ForkFailed as failure:
            return Proof(Status.FAILED, f"does not run with {way.name}: {failure}", numbers, failure.last)
        numbers |= {way.name: seen.error, f"{way.name}: split parameters": seen.sharded}
        if not seen.error <= ALLOWED[job.dtype]:
            wrong = f"differs from one process by {seen.error:.2g} of the largest number with {way.name}"
            return Proof(Status.FAILED, wrong, numbers)
    split = max(numbers[f"{way.name}: split parameters"] for way in ways)
    how = f"{split:g} of its parameters split" if split else "none of its parameters split"
    furthest = max(numbers[way.name] for way in ways)
    said = f"gives the same on {RANKS} processes, {how}; the largest difference is {furthest:.1g} of the largest number"
    return Proof(Status.PASSED, said, numbers)


@dataclass(frozen=True)
class Difference:
    """Two processes against one. `error` is the largest difference on any rank as a part of the largest number."""

    error: float
    sharded: int
    parameters: int


def difference(make: Callable[[], nn.Module], inputs: Inputs, device: str = "cpu") -> Difference:
    """Run the tower that `make` builds and fills in one process and in two. Raises ForkFailed and its kinds."""

    def whole(rank: int) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        tower = make()
        return output_of(tower), {name: weight.detach().cpu() for name, weight in tower.named_parameters()}

    def part(rank: int) -> tuple[torch.Tensor, int]:
        tower = make()
        sharded = load(tower, weights)
        return output_of(tower), sharded

    def output_of(tower: nn.Module) -> torch.Tensor:
        return host.output_tensor(run_tower(tower, inputs)).detach().cpu()

    try:
        ((expected, weights),) = on_ranks(whole, 1, SECONDS, device)
    except ForkFailed as failure:
        raise WholeFails(f"it does not run in one process: {failure}", failure.trace) from None
    parts = on_ranks(part, RANKS, SECONDS, device)
    for output, _ in parts:
        if output.shape != expected.shape:
            raise ForkFailed(f"gives {tuple(output.shape)} where one process gives {tuple(expected.shape)}")
    error = max(part_of_largest(output, expected) for output, _ in parts)
    return Difference(error, parts[0][1], len(weights))


class WholeFails(ForkFailed):
    """The tower does not even run in one process, so that nothing is known of two."""


def load(tower: nn.Module, weights: Mapping[str, torch.Tensor]) -> int:
    """Give each parameter this rank's part of the whole weight; how many got less than the whole. Raises ValueError."""
    sharded = 0
    for name, parameter in tower.named_parameters():
        whole = weights[name]
        loader = getattr(parameter, "weight_loader", None)
        if loader is not None:
            loader(parameter, whole)
        elif parameter.shape == whole.shape:
            parameter.data.copy_(whole)
        else:
            part = f"{tuple(parameter.shape)} of {tuple(whole.shape)}"
            raise ValueError(f"{name} is {part} and has no weight_loader to say which part")
        sharded += parameter.shape != whole.shape
    return sharded

"""The trials of a shared attention: on a device that says it is an NPU, under strict collectives, against one rank."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from porting.comparison.case import ROUNDING
from porting.comparison.distance import part_of_largest
from porting.forks import ForkFailed, forked_ranks
from porting.job import Job
from porting.model_file import ModelFileError, load
from porting.reference import strict_collectives
from porting.result import Result, Status
from porting.shared_attention.pictures import NotShared, drawn

CLASS = "SharedAttention"
RANKS, SECONDS = 2, 180.0
BATCH, TOKENS, HEADS, HEAD_DIM = 2, 8, 4, 16  # a slice of a later dimension is whole where the batch is one


def run(job: Job) -> list[Result]:
    """A result for each trial; pictures are drawn where there is a pipeline to draw with."""
    try:
        cls = getattr(load(job.path), CLASS, None)
    except ModelFileError as error:
        return [job.result(Status.ERROR, f"the file cannot be imported: {error}")]
    if cls is None:
        return [job.result(Status.NOT_RUN, f"{job.path.name} has no class {CLASS}: give a file that has one")]
    results = [_as_npu(job, cls), _strict(job, cls), _against_one(job, cls)]
    if job.pipeline and all(result.status is Status.PASSED for result in results):
        results.append(_pictures(job, cls, job.pipeline))
    elif job.pipeline:
        results.append(job.result(Status.NOT_RUN, "none is drawn while a trial above fails", backend="pictures"))
    return results


def _trial(job: Job, name: str, work: Callable[[int], Any], right: Callable[[list[Any]], tuple[bool, str]]) -> Result:
    def rank_work(rank: int, rendezvous: Path) -> Any:
        dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=RANKS)
        value = work(rank)
        dist.barrier()
        return value

    try:
        values = forked_ranks(rank_work, RANKS, SECONDS)
    except ForkFailed as failure:
        return job.result(Status.FAILED, str(failure), backend=name)
    good, summary = right(values)
    return job.result(Status.PASSED if good else Status.FAILED, summary, backend=name)


def _as_npu(job: Job, cls: type[nn.Module]) -> Result:
    def work(rank: int) -> torch.Tensor:
        torch.npu = SimpleNamespace(is_available=lambda: True)
        return _output(cls, rank)

    return _trial(job, "a device that says it is an NPU", work, lambda _: (True, "runs"))


def _strict(job: Job, cls: type[nn.Module]) -> Result:
    def work(rank: int) -> dict[str, int]:
        with strict_collectives() as seen:
            _output(cls, rank)
        return seen.counts()

    def right(counts: list[dict[str, int]]) -> tuple[bool, str]:
        told = ", ".join(f"{times} calls of {name}" for name, times in counts[0].items())
        return bool(counts[0]), f"{told}, all of contiguous memory" if told else "no collective was called"

    return _trial(job, "strict collectives", work, right)


def _against_one(job: Job, cls: type[nn.Module]) -> Result:
    expected = nn.functional.scaled_dot_product_attention(*(part.transpose(1, 2) for part in _whole())).transpose(1, 2)

    def right(outputs: list[torch.Tensor]) -> tuple[bool, str]:
        apart = part_of_largest(torch.cat(outputs, dim=1), expected)
        return apart <= ROUNDING[torch.float32], f"differs by {apart:.1g} of the largest number from one rank"

    return _trial(job, "two ranks against one", lambda rank: _output(cls, rank), right)


def _output(cls: type[nn.Module], rank: int) -> torch.Tensor:
    mine = (part.chunk(RANKS, dim=1)[rank] for part in _whole())
    with torch.no_grad():
        output: torch.Tensor = cls(HEADS, HEAD_DIM)(*mine)
    return output.contiguous()


def _whole() -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(BATCH, TOKENS, HEADS, HEAD_DIM, generator=generator) for _ in range(3))


def _pictures(job: Job, cls: type[nn.Module], folder: Path) -> Result:
    """One picture by one rank with the pipeline's own attention, and by two that share the attention of the file."""

    def share(rank: int, rendezvous: Path) -> Any:
        try:
            return drawn(folder, cls, rank, RANKS, rendezvous)
        except NotShared as reason:  # of the pipeline, not of the attention: no failure of the rank
            return reason

    try:
        ((alone, _),) = forked_ranks(lambda rank, _: drawn(folder, None, rank, 1, None), 1, SECONDS)
        shared = forked_ranks(share, RANKS, SECONDS)
    except ForkFailed as failure:
        return job.result(Status.FAILED, str(failure), backend="pictures")
    if isinstance(shared[0], NotShared):
        return job.result(Status.NOT_RUN, str(shared[0]), backend="pictures")
    apart = max(float((picture - alone).abs().max()) for picture, _ in shared)
    same = apart < 1 / 255
    calls = sum(shared[0][1].values())
    said = f"two ranks draw what one draws, in {calls} collectives" if same else f"differ by {apart:.2g} of 1"
    pictures = {"one rank": alone, "two ranks": shared[0][0]}
    numbers = {"pictures": {name: _bytes(picture) for name, picture in pictures.items()}, "largest difference": apart}
    return job.result(Status.PASSED if same else Status.FAILED, said, backend="pictures", numbers=numbers)


def _bytes(picture: torch.Tensor) -> list[list[list[int]]]:
    """Rows of pixels, 0 to 255."""
    rows: list[list[list[int]]] = (picture * 255).round().to(torch.uint8).tolist()
    return rows

"""How long a vision tower takes on a device, and what memory it takes beside its weights.

The original runs under the installed vLLM, as it does in all comparisons: its kernel is the one that it chooses itself.
The tower is tiny and the picture is not, so figures are for comparing both, not for planning a machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch

from porting.close_look import towers
from porting.comparison.case import said
from porting.job import Job
from porting.pairs import Pair, each_tower
from porting.result import Result, Status
from porting.towers.tower import Grid
from porting.towers.tower import run as run_tower

PICTURE = Grid(1, 32, 48)
_WARM, _TIMES = 2, 9
MIB = 2**20


def run(job: Job) -> list[Result]:
    """A result for each tower. Its numbers: `cost`, a row a side, with `milliseconds` and `peak MiB`."""
    return each_tower(job, lambda pair: [_cost(job, pair)])


def _cost(job: Job, pair: Pair) -> Result:
    dtype = getattr(torch, job.dtype)
    rows: list[dict[str, Any]] = []
    for side, found in towers.sides(pair):
        try:
            tower = towers.built(pair, found, dtype, job.device)
            inputs = towers.inputs(pair, PICTURE, dtype, job.device)
            rows.append({"tower": side, **measured(partial(run_tower, tower, inputs), job.device)})
        except Exception as error:
            return job.result(Status.ERROR, f"{pair.name}, {side}: {said(error)}")
    what = f"one picture of {PICTURE.h} by {PICTURE.w} patches in {job.dtype}"
    return job.result(Status.PASSED, f"{pair.name}: {what}", numbers={"cost": rows}, notes=pair.notes)


def measured(call: Callable[[], Any], device: str) -> dict[str, float]:
    """The median of several calls, and the most memory that one takes beyond what was there before it."""
    for _ in range(_WARM):
        call()
    times = []
    for _ in range(_TIMES):
        _finish(device)
        start = time.perf_counter()
        call()
        _finish(device)
        times.append(time.perf_counter() - start)
    return {"milliseconds": 1000 * median(times), "peak MiB": peak_memory(call, device) / MIB}


def peak_memory(call: Callable[[], Any], device: str) -> int:
    """Bytes of tensors, at their most, that a call has beyond those that were there before."""
    if device == "cpu":
        return _peak_of_processor(call)
    module: Any = torch.get_device_module(device)
    _finish(device)
    module.reset_peak_memory_stats()
    before = int(module.memory_allocated())
    call()
    _finish(device)
    return int(module.max_memory_allocated()) - before


def _peak_of_processor(call: Callable[[], Any]) -> int:
    """The CPU's allocator keeps no books: the profiler sees each block that it gives and takes back."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        call()
    events: Any = profile.profiler.kineto_results.events()
    blocks = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    held = peak = 0
    for _, size in blocks:
        held += size
        peak = max(peak, held)
    return peak


def _finish(device: str) -> None:
    if device != "cpu":
        torch.accelerator.synchronize()

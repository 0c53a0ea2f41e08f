"""Would the flash, Triton and NPU paths be right, with none of them attached?

The tower is built and run again with strict kernels in vLLM's place for them. Every layer of encoder attention must
call one, in a way that the real one accepts, and the numbers must be those of the path that the device takes by itself.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import shorten
from typing import TypeVar

import torch

from porting import host
from porting.comparison.distance import part_of_largest
from porting.job import Job
from porting.model_file import load
from porting.reference import BACKENDS, strict_kernels
from porting.reference.watch import Watch, watch
from porting.result import Result, Status
from porting.towers import find
from porting.towers.tower import SEVERAL, VIDEO, Shape
from porting.towers.tower import run as run_tower

# How far outputs may be apart, as a part of the largest number of the native one. Right ports are equal, or differ by
# the order of sums: in float32 less than a millionth was measured, from heads padded for an NPU.
BOUNDS = {"float32": 1e-5, "float16": 1e-2, "bfloat16": 1e-2}

# An NPU pads the first of these head dimensions, and takes the second as it is.
SHAPES = (Shape(head_dim=80), Shape(head_dim=64))
GROUPED = Shape(heads=4, kv_heads=2)

T = TypeVar("T")


class Wrong(Exception):
    """What is wrong with the port, in one line."""


@dataclass
class Evidence:
    """What was seen so far; `difference` is a part of the largest number."""

    layers: int = 0
    calls: int = 0
    difference: float = 0.0
    notes: dict[str, None] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.calls} kernel calls by {self.layers} layers, largest difference {self.difference:.1e}"


def run(job: Job) -> list[Result]:
    """Every backend where the job names none, else that one."""
    host.prepare_process()
    host.start_groups()
    jobs = [job] if job.backend in BACKENDS else [job.at(backend=backend) for backend in BACKENDS]
    try:
        towers = find.find(load(job.path), job.config)
    except find.NoTower as reason:
        return [each.result(Status.NOT_RUN, str(reason)) for each in jobs]
    return [prove(each, found) for each in jobs for found in towers]


def prove(job: Job, found: find.Found) -> Result:
    """One tower on one backend, at every shape and with every set of pictures."""
    shapes = SHAPES[:1] if found.fixed else SHAPES
    evidence = Evidence(notes=dict.fromkeys(found.notes))
    status = Status.PASSED
    try:
        for shape in (*shapes, GROUPED) if found.tower.grouped_query else shapes:
            _prove_shape(job, found, shape, evidence)
        summary = str(evidence)
    except Wrong as wrong:
        status, summary = Status.FAILED, str(wrong)
    except LookupError as reason:
        status, summary = Status.NOT_RUN, str(reason)
    numbers = {
        "kernel calls": evidence.calls,
        "attention layers": evidence.layers,
        "largest difference": evidence.difference,
        "bound": BOUNDS[job.dtype],
    }
    return job.result(status, f"{found.name}: {summary}", numbers=numbers, notes=tuple(evidence.notes))


def _prove_shape(job: Job, found: find.Found, shape: Shape, evidence: Evidence) -> None:
    """Raises Wrong, and LookupError where the installed vLLM has no such backend."""
    dtype = getattr(torch, job.dtype)
    pictures = (SEVERAL, VIDEO) if found.tower.video else (SEVERAL,)
    inputs = [found.inputs(shape, grids, dtype).to(job.device) for grids in pictures]
    native = find.make(found, shape, dtype, job.device)
    right = [host.output_tensor(run_tower(native, each)) for each in inputs]
    with strict_kernels(job.backend) as kernels:
        tower = _carefully(job, lambda: find.make(found, shape, dtype, job.device))
        for each, expected in zip(inputs, right):
            with watch(tower, kernels) as seen:
                output = host.output_tensor(_carefully(job, lambda: run_tower(tower, each)))  # noqa: B023
            evidence.layers = len(seen.layers)
            evidence.notes.update((f"attention without a kernel in {place}", None) for place in seen.around)
            _all_called(seen, job.backend)
            difference = part_of_largest(output, expected)
            evidence.difference = max(evidence.difference, difference)
            if not difference <= BOUNDS[job.dtype]:
                raise Wrong(f"its output differs from the native path's by {difference:.1e} of the largest number")
        evidence.calls += len(kernels.calls)


def _carefully(job: Job, act: Callable[[], T]) -> T:
    """What `act` gives. What it raises under strict kernels, and did not without, is the port's fault: Wrong."""
    try:
        return act()
    except Exception as error:
        folder = job.path.resolve().parent
        frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).resolve().parent == folder]
        where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
        said = shorten(str(error), 240, placeholder=" ...") or "no message"
        raise Wrong(f"{type(error).__name__}: {said}{where}") from error


def _all_called(seen: Watch, backend: str) -> None:
    """Every attention layer called a kernel, and nothing else did. Raises Wrong; LookupError where none could."""
    if seen.idle:
        name, cls = next(iter(seen.idle.items()))
        why = "a subclass is not replaced there" if backend == "npu" else "it overrides what calls the kernel"
        raise Wrong(f"{cls} of `{name}` ran and called no kernel: {why}")
    if seen.unlayered:
        by = "one is built in a forward, or the kernel called by hand"
        raise Wrong(f"{seen.unlayered} kernel calls came from no MMEncoderAttention of the tower: {by}")
    if seen.unserved:
        raise LookupError(seen.unserved)
    if not seen.layers:
        by = f" attention is computed in {', '.join(seen.around)}" if seen.around else " no attention was seen"
        raise Wrong(f"no MMEncoderAttention ran:{by}; not migrated")

"""How much time, memory and output a job may take."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from pathlib import Path

GIB = 2**30
MIB = 2**20


@dataclass(frozen=True)
class Limits:
    """`memory` is resident memory of all processes of a job together, `output` what it prints, both in bytes."""

    seconds: float = 600.0
    memory: int = 8 * GIB
    output: int = 10 * MIB


def confine(limits: Limits, device: str) -> None:
    """Limits that the system itself holds this process and its children to."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_FSIZE, limits.memory)  # what it writes to disk, file by file
    if device == "cpu" and hasattr(resource, "RLIMIT_DATA"):
        # So that one huge allocation fails at once, ahead of the keeper's watch. Drivers of accelerators map far more
        # than they use.
        _lower(resource.RLIMIT_DATA, _data_segment() + limits.memory)


def _lower(what: int, value: int) -> None:
    hard = resource.getrlimit(what)[1]
    if hard == resource.RLIM_INFINITY or value < hard:
        resource.setrlimit(what, (value, hard))


def _data_segment() -> int:
    """Private writable memory that this process has mapped already, in bytes; 0 where the system does not tell."""
    try:
        with Path("/proc/self/statm").open(encoding="ascii") as statm:
            return int(statm.read().split()[5]) * resource.getpagesize()
    except (OSError, IndexError):
        return 0

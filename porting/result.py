"""What one level found about one model: plain data that a child process can hand to its parent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any


class Status(str, Enum):
    """How a level ended. Only PASSED is good; NOT_RUN is neither good nor bad, and always has its reason."""

    PASSED = "passed"
    FAILED = "failed"  # the port is wrong
    NOT_RUN = "not run"  # the question does not arise, or cannot be asked here; the summary says why
    ERROR = "error"  # the check itself could not be carried through: the model raised, or its process died
    TIMED_OUT = "timed out"


@dataclass(frozen=True)
class Result:
    """One cell of the matrix.

    `summary` is one line for a person; `numbers` are what stands behind it (differences are absolute, of outputs in the
    dtype under test); `notes` are what a reader must know to believe it: stubs that were needed, upstream changes
    allowed for.
    """

    model: str
    level: str
    status: Status
    summary: str
    device: str = "cpu"
    dtype: str = ""  # empty where the level computes nothing
    backend: str = ""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """For `json.dumps`; the inverse of `from_json`."""
        return {**asdict(self), "status": self.status.value, "notes": list(self.notes)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Result:
        """Read what `to_json` gave."""
        return cls(**{**data, "status": Status(data["status"]), "notes": tuple(data["notes"])})

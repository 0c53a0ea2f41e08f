"""What a check says: the matrix, and under what circumstances it came about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from porting.device import Device
from porting.discovery import Model
from porting.levels import Level
from porting.matrix import BAD
from porting.result import Result, Status

PASSED, FAULTS = 0, 1


@dataclass(frozen=True)
class Column:
    """A column of the matrix: a level, with the backend and the dtype where it computes something."""

    level: str
    backend: str = ""
    dtype: str = ""


@dataclass(frozen=True)
class Report:
    """A whole run. `versions` are those of what the proof depends on; `command` is what the user typed."""

    results: tuple[Result, ...]
    models: tuple[Model, ...]
    levels: tuple[Level, ...]
    device: Device
    versions: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    seconds: float = 0.0
    others: tuple[str, ...] = ()  # Python files that are no models
    row: str = "model"  # what a row of the matrix is
    asked: int = 0  # questions that these are the results of; 0 where each has one

    @property
    def exit_code(self) -> int:
        """0 if something passed and nothing failed. To have proved nothing is no success."""
        statuses = {result.status for result in self.results}
        return FAULTS if statuses & BAD or Status.PASSED not in statuses else PASSED

    @property
    def columns(self) -> tuple[Column, ...]:
        """In the order of the levels; a level that was not asked for a reason of its own has one column."""
        found: dict[str, list[Column]] = {level.name: [] for level in self.levels}
        for result in self.results:
            column = column_of(result)
            if column not in found.setdefault(result.level, []):
                found[result.level].append(column)
        bare = {level for level, columns in found.items() if len(columns) > 1}
        return tuple(c for columns in found.values() for c in columns if c.backend or c.dtype or c.level not in bare)

    def cell(self, model: str, column: Column) -> list[Result]:
        """The results of a cell. What a level says without backend or dtype stands in all of its columns."""
        return [
            result
            for result in self.results
            if result.model == model
            and result.level == column.level
            and column_of(result) in (column, Column(column.level))
        ]

    def counts(self) -> dict[Status, int]:
        """How many results ended how."""
        counted = Counter(result.status for result in self.results)
        return {status: counted[status] for status in Status}

    @property
    def counted(self) -> str:
        """What the numbers of the verdict count, where progress has counted something else; empty where it has not."""
        if self.asked in (0, len(self.results)):
            return ""
        why = "one for each tower of a file, and in parity for each of what it is held against"
        return f"{len(self.results)} results of {self.asked} questions: {why}"

    def verdict(self) -> str:
        """One line; what did not run is said, and is not counted as good."""
        counts = ", ".join(f"{count} {status.value}" for status, count in self.counts().items() if count)
        if self.exit_code == PASSED:
            return f"no fault found: {counts}"
        return f"FAULTS FOUND: {counts}" if any(r.status in BAD for r in self.results) else f"NOTHING PROVED: {counts}"

    def to_json(self) -> dict[str, Any]:
        """As docs/check-report.schema.json describes."""
        return {
            "verdict": self.verdict(),
            "exit_code": self.exit_code,
            "command": self.command,
            "versions": dict(self.versions),
            "device": {**asdict(self.device), "dtypes": list(self.device.dtypes)},
            "seconds": self.seconds,
            "levels": [{"name": level.name, "question": level.question} for level in self.levels],
            "models": [
                {"name": m.name, "path": str(m.path), "before": None if m.before is None else str(m.before)}
                for m in self.models
            ],
            "others": list(self.others),
            "counts": {status.value: count for status, count in self.counts().items()},
            "results": [result.to_json() for result in self.results],
        }


def column_of(result: Result) -> Column:
    return Column(result.level, result.backend, result.dtype)


def worst(results: Sequence[Result]) -> Status | None:
    """The status that a cell shows: any fault, else any success, else that it did not run; None for an empty cell."""
    order = (Status.FAILED, Status.ERROR, Status.TIMED_OUT, Status.PASSED, Status.NOT_RUN)
    return next((status for status in order if any(r.status is status for r in results)), None)

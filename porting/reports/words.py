"""How the reports for people spell things."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from porting.matrix import BAD
from porting.report import Column, worst
from porting.result import Result, Status

CELLS = {
    None: "",
    Status.PASSED: "pass",
    Status.FAILED: "FAIL",
    Status.ERROR: "ERROR",
    Status.TIMED_OUT: "TIME",
    Status.NOT_RUN: "not run",
}
_SHORT = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


def cell(results: Sequence[Result]) -> str:
    """The word of a cell; where only some of its results are bad, how many."""
    status = worst(results)
    bad = sum(result.status in BAD for result in results)
    return CELLS[status] + (f" {bad}/{len(results)}" if 0 < bad < len(results) else "")


def heading(column: Column) -> list[str]:
    """The lines above a column: the level, the backend where it is not the device's own, the dtype."""
    backend = "" if column.backend == "native" else column.backend
    return [column.level, " ".join(filter(None, (backend, _SHORT.get(column.dtype, column.dtype))))]


def number(value: object) -> str:
    """A number as it is read: three digits, an exact zero as 0."""
    if isinstance(value, bool) or not isinstance(value, float):
        return str(value)
    return "0" if value == 0 else f"{value:.3g}"


def flat(numbers: Mapping[str, Any], before: str = "") -> list[tuple[str, Any]]:
    """Names and values of numbers, those of mappings inside with a dotted name; output, pictures, lists and what is not
    known left out.
    """
    found: list[tuple[str, Any]] = []
    for name, value in numbers.items():
        if isinstance(value, Mapping):
            found += flat(value, f"{before}{name}.")
        elif not isinstance(value, (list, tuple)) and value not in (None, "") and name not in ("output", "picture"):
            found.append((f"{before}{name}", value))
    return found


def tables(numbers: Mapping[str, Any]) -> list[tuple[str, list[str], list[list[str]]]]:
    """The lists of plain mappings among numbers, as name, headings and rows of text."""
    found = []
    for name, value in numbers.items():
        if isinstance(value, (list, tuple)) and value and all(_is_plain(row) for row in value):
            columns = list(dict.fromkeys(key for row in value for key in row))
            found.append((name, columns, [[number(row.get(column, "")) for column in columns] for row in value]))
    return found


def _is_plain(row: object) -> bool:
    return isinstance(row, Mapping) and not any(isinstance(part, (list, tuple, Mapping)) for part in row.values())


def problems(result: Result) -> list[str]:
    """The lists of text among a result's numbers: one problem each."""
    lists = (value for value in result.numbers.values() if isinstance(value, (list, tuple)))
    return [line for value in lists for line in value if isinstance(line, str)]


def problems_once(results: Sequence[Result]) -> list[list[str]]:
    """The problems of each result. Models of one package share files: what an earlier one has told is only counted."""
    told: dict[str, str] = {}
    found = []
    for result in results:
        lines = problems(result)
        again = Counter(told[line] for line in lines if line in told)
        also = [f"{count} that {place} has as well" for place, count in again.items()]
        found.append([*(line for line in lines if line not in told), *also])
        told.update({line: where(result) for line in lines if line not in told})
    return found


def gathered(told: Iterable[tuple[str, Result]]) -> Iterator[tuple[str, str]]:
    """Each text once, with all the cells that it belongs to."""
    found: dict[str, dict[str, None]] = {}
    for text, result in told:
        found.setdefault(text, {})[where(result)] = None
    return ((text, ", ".join(places)) for text, places in found.items())


def where(result: Result) -> str:
    """Which cell a result belongs to."""
    return " ".join(filter(None, (result.model, result.level, result.backend, result.dtype)))


def place(path: Path) -> str:
    """A path as seen from where the command runs, if it lies below."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)

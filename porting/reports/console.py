"""The report at the terminal. Read first is what is last: the verdict, above it the matrix, then what is not green."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from porting.matrix import BAD
from porting.report import Report, worst
from porting.reports.words import CELLS, flat, heading, number
from porting.result import Result, Status

_STYLES = {
    Status.PASSED: "green",
    Status.FAILED: "bold red",
    Status.ERROR: "bold magenta",
    Status.TIMED_OUT: "bold magenta",
    Status.NOT_RUN: "yellow",
}
_ENOUGH = 10_000  # columns of a pipe, where lines need no breaking


def show(report: Report, stream: IO[str]) -> None:
    """Print the whole report."""
    console = Console(file=stream, highlight=False, width=None if stream.isatty() else _ENOUGH, soft_wrap=True)
    for line in _told(report):
        console.print(line, soft_wrap=True)
    console.print(_matrix(report), soft_wrap=False)
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    console.print(Text(f"device   {report.device.type}: {report.device.platform}, {report.device.name}; {versions}"))
    if report.device.note:
        console.print(Text(f"note     {report.device.note}"))
    console.print(Text(f"verdict  {report.verdict()}, in {report.seconds:.0f} s"))


def _matrix(report: Report) -> Table:
    table = Table(box=SIMPLE, pad_edge=False, show_edge=False)
    table.add_column("model\n", no_wrap=True)
    for column in report.columns:
        table.add_column("\n".join(heading(column)), no_wrap=True)
    for model in report.models:
        row = [Text(model.name)]
        for column in report.columns:
            status = worst(report.cell(model.name, column))
            row.append(Text(CELLS[status], style=_STYLES[status] if status else ""))
        table.add_row(*row)
    return table


def _told(report: Report) -> Iterator[Text]:
    """A paragraph for each result that is no success, the notes of the others; then what did not run, and why."""
    for result in report.results:
        if result.status in BAD:
            yield Text.assemble((f"{result.status.value.upper()}  ", _STYLES[result.status]), _where(result))
            yield Text(f"    {result.summary}")
            numbers = ", ".join(f"{name} {number(value)}" for name, value in flat(result.numbers))
            if numbers:
                yield Text(f"    {numbers}")
            for line in str(result.numbers.get("output", "")).splitlines():
                yield Text(f"    | {line}", style="dim")
        for note in result.notes:
            yield Text(f"note  {_where(result)}: {note}" if result.status not in BAD else f"    note: {note}")
    reasons: dict[str, list[str]] = {}
    for result in report.results:
        if result.status is Status.NOT_RUN:
            reasons.setdefault(result.summary, []).append(_where(result))
    for reason, places in reasons.items():
        yield Text.assemble(("NOT RUN  ", _STYLES[Status.NOT_RUN]), f"{reason}: {', '.join(dict.fromkeys(places))}")
    if report.others:
        yield Text(f"no models of their own: {', '.join(report.others)}")
    yield Text()


def _where(result: Result) -> str:
    return " ".join(filter(None, (result.model, result.level, result.backend, result.dtype)))

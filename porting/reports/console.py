"""The report at the terminal. Read first is what is last: the verdict, above it the matrix, then what is not green."""

from __future__ import annotations

import io
from collections.abc import Iterator

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from porting.matrix import BAD
from porting.report import Report, worst
from porting.reports.words import cell, flat, gathered, heading, number, problems_once, where
from porting.result import Status

_STYLES = {
    Status.PASSED: "green",
    Status.FAILED: "bold red",
    Status.ERROR: "bold magenta",
    Status.TIMED_OUT: "bold magenta",
    Status.NOT_RUN: "yellow",
}
_ENOUGH = 10_000  # columns of a pipe, where lines need no breaking


def render(report: Report, terminal: bool) -> str:
    """The whole report, in colours and as wide as the terminal if it is for one."""
    text = io.StringIO()
    console = Console(file=text, highlight=False, force_terminal=terminal, width=None if terminal else _ENOUGH)
    for line in _told(report):
        console.print(line, soft_wrap=True)
    console.print(_matrix(report), soft_wrap=False)
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    console.print(Text(f"device   {report.device.type}: {report.device.platform}, {report.device.name}; {versions}"))
    if report.device.note:
        console.print(Text(f"note     {report.device.note}"))
    if report.counted:
        console.print(Text(f"note     {report.counted}"))
    console.print(Text(f"verdict  {report.verdict()}, in {report.seconds:.0f} s"))
    return text.getvalue()


def _matrix(report: Report) -> Table:
    table = Table(box=SIMPLE, pad_edge=False, show_edge=False)
    table.add_column(f"{report.row}\n", no_wrap=True)
    for column in report.columns:
        table.add_column("\n".join(heading(column)), no_wrap=True)
    for model in report.models:
        row = [Text(model.name)]
        for column in report.columns:
            results = report.cell(model.name, column)
            status = worst(results)
            row.append(Text(cell(results), style=_STYLES[status] if status else ""))
        table.add_row(*row)
    return table


def _told(report: Report) -> Iterator[Text]:
    """A paragraph for each result that is no success, the notes of the others; then what did not run, and why."""
    bad = [result for result in report.results if result.status in BAD]
    for result, lines in zip(bad, problems_once(bad)):
        yield Text.assemble((f"{result.status.value.upper()}  ", _STYLES[result.status]), where(result))
        yield Text(f"    {result.summary}")
        numbers = ", ".join(f"{name} {number(value)}" for name, value in flat(result.numbers))
        if numbers:
            yield Text(f"    {numbers}")
        yield from (Text(f"    {line}") for line in lines if not result.summary.startswith(line))
        for line in str(result.numbers.get("output", "")).splitlines():
            yield Text(f"    | {line}", style="dim")
        yield from (Text(f"    note: {note}") for note in result.notes)
    good = (result for result in report.results if result.status not in BAD)
    for note, places in gathered((note, result) for result in good for note in result.notes):
        yield Text(f"note  {places}: {note}")
    unrun = ((result.summary, result) for result in report.results if result.status is Status.NOT_RUN)
    for reason, places in gathered(unrun):
        yield Text.assemble(("NOT RUN  ", _STYLES[Status.NOT_RUN]), f"{reason}: {places}")
    if report.others:
        yield Text(f"no models of their own: {', '.join(report.others)}")
    yield Text()

"""The report as one page that needs nothing else: no script from elsewhere, no font, no picture."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader

from porting.matrix import BAD
from porting.report import Report, worst
from porting.reports.heat_map import draw, heat_maps
from porting.reports.words import CELLS, cell, flat, heading, number, place, problems_once, tables
from porting.result import Status

_CLASSES = {
    None: "empty",
    Status.PASSED: "passed",
    Status.FAILED: "failed",
    Status.ERROR: "error",
    Status.TIMED_OUT: "error",
    Status.NOT_RUN: "not-run",
}


def render(report: Report) -> str:
    environment = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True)
    environment.filters |= {"number": number, "flat": flat, "place": place}
    return environment.get_template("page.html.j2").render(
        report=report,
        columns=[(column, [part for part in heading(column) if part]) for column in report.columns],
        cell=report.cell,
        worst=worst,
        words=CELLS,
        word=cell,
        classes=_CLASSES,
        bad=BAD,
        problems=problems_once(report.results),
        heat_maps=heat_maps,
        draw=draw,
        tables=tables,
        is_table=lambda numbers: any(True for _ in flat(numbers)),
    )

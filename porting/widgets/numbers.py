"""The numbers behind an answer, as HTML: figures, tables, and what is laid out as a picture drawn as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from porting.reports.heat_map import draw, heat_maps
from porting.reports.words import CELLS, flat, number, problems, tables
from porting.result import Result
from porting.widgets import markup


def about(results: Sequence[Result]) -> str:
    """All that a cell's results say."""
    return "".join(map(_result, results))


def _result(result: Result) -> str:
    parts = [f"<p><strong>{CELLS[result.status]}</strong> {markup.rounding(escape(result.summary))}</p>"]
    if facts := [(escape(name), number(value)) for name, value in flat(result.numbers)]:
        parts.append(markup.rounding(markup.table("figures", ("what", "how much"), facts)))
    parts += [drawn_table(*each) for each in tables(result.numbers)]
    parts += [f"<li>{escape(problem)}</li>" for problem in problems(result)]
    parts += [heat_map(name, grid) for name, grid in heat_maps(_without_tables(result.numbers))]
    parts += [f'<p class="quiet">{escape(note)}</p>' for note in result.notes]
    return "".join(parts)


def _without_tables(numbers: Mapping[str, Any]) -> dict[str, Any]:
    plain = {name for name, _, _ in tables(numbers)}
    return {name: value for name, value in numbers.items() if name not in plain}


def drawn_table(name: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of figures, folded."""
    told = markup.table(name, headings, [[escape(value) for value in row] for row in rows])
    return markup.folded(f"{escape(name)}: {len(rows)}", markup.rounding(markup.scrolling(name, told)))


def heat_map(name: str, grid: list[list[float]]) -> str:
    """A square a number, the darker the larger, with the largest in words."""
    largest = max(value for row in grid for value in row)
    told = f"{name}: {len(grid)} by {len(grid[0])}, largest {number(largest)}"
    return markup.rounding(f"<figure>{draw(name, grid)}<figcaption>{escape(told)}</figcaption></figure>")

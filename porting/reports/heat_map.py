"""Numbers in rows and columns, as errors of the patches of a picture are, drawn as a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

_CELL = 12  # units of the drawing
_MOST = 64  # rows and columns; of more, neighbours are drawn as one, by the largest of them

Grid = list[list[float]]


def heat_maps(numbers: Mapping[str, Any], before: str = "") -> list[tuple[str, Grid]]:
    """The tables of numbers: lists of lists of one length, and plain lists as one row; those of mappings inside too."""
    found: list[tuple[str, Grid]] = []
    for name, value in numbers.items():
        if isinstance(value, Mapping):
            found += heat_maps(value, f"{before}{name}, ")
        elif isinstance(value, (list, tuple)) and all(isinstance(part, Mapping) for part in value):
            for part in value:
                facts = " ".join(f"{key} {fact}" for key, fact in part.items() if isinstance(fact, (int, str)))
                found += heat_maps(part, f"{before}{name}, {facts}, ")
        elif (grid := _grid(value)) is not None:
            found.append((before + name, grid))
    return found


def _grid(value: object) -> Grid | None:
    if not isinstance(value, (list, tuple)) or not value:
        return None
    rows = value if all(isinstance(row, (list, tuple)) for row in value) else [value]
    fits = all(len(row) == len(rows[0]) and all(_is_number(x) for x in row) for row in rows)
    return [[float(x) for x in row] for row in rows] if fits and len(rows[0]) > 0 else None


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def draw(name: str, grid: Grid) -> Markup:
    """An SVG of one square a number, the darker the larger; what is no number, or infinite, is outlined and crossed."""
    pooled, step = _pool(grid)
    finite = [x for row in pooled for x in row if math.isfinite(x)]
    largest = max(finite, default=0.0)
    squares = [
        _square(row, column, value, largest, step)
        for row, values in enumerate(pooled)
        for column, value in enumerate(values)
    ]
    width, height = len(pooled[0]) * _CELL, len(pooled) * _CELL
    label = f"{name}: largest {largest:.3g}, {len(finite)} of {len(pooled) * len(pooled[0])} finite"
    return Markup(
        f'<svg class="heat" role="img" viewBox="0 0 {width} {height}" style="width:{min(width, 720)}px">'
        f"<title>{escape(label)}</title>{''.join(squares)}</svg>"
    )


def _square(row: int, column: int, value: float, largest: float, step: int) -> str:
    place = f'x="{column * _CELL}" y="{row * _CELL}" width="{_CELL}" height="{_CELL}"'
    title = f"<title>row {row * step}, column {column * step}: {value:.3g}</title>"
    if not math.isfinite(value):
        return f'<rect class="odd" {place}>{title}</rect>'
    strength = value / largest if largest > 0 else 0.0
    return f'<rect {place} fill-opacity="{max(strength, 0.0):.3f}">{title}</rect>'


def _pool(grid: Grid) -> tuple[Grid, int]:
    step = max(1, math.ceil(max(len(grid), len(grid[0])) / _MOST))
    if step == 1:
        return grid, 1
    rows, columns = range(0, len(grid), step), range(0, len(grid[0]), step)
    return [[_largest([row[c : c + step] for row in grid[r : r + step]]) for c in columns] for r in rows], step


def _largest(block: Sequence[Sequence[float]]) -> float:
    values = [x for row in block for x in row]
    return next((x for x in values if not math.isfinite(x)), max(values))

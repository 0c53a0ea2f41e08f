"""The memory of a tensor, drawn: a square a number, in the order in which they lie, those of a part of it marked."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import product
from math import prod
from typing import Any

import ipywidgets

from porting.widgets.panel import Panel, html, show

SHAPE = (2, 4, 4, 2)
NAMES = ("batch", "tokens", "heads", "head_dim")
_SIDE = 14


def strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Of a contiguous tensor, in numbers: how far apart neighbours of each dimension lie."""
    return tuple(prod(shape[dimension + 1 :]) for dimension in range(len(shape)))


def chunk(shape: Sequence[int], dimension: int, ranks: int) -> list[int]:
    """Where the numbers of the first of `ranks` chunks lie in the whole, in the order in which the chunk has them."""
    part = [size // ranks if index == dimension else size for index, size in enumerate(shape)]
    steps = strides(shape)
    return [sum(place * step for place, step in zip(places, steps)) for places in product(*map(range, part))]


def is_run(places: Sequence[int]) -> bool:
    """Whether places lie behind each other without a gap."""
    return list(places) == list(range(places[0], places[0] + len(places)))


def drawing(shape: Sequence[int], places: Sequence[int], copied: bool) -> str:
    """The whole tensor's memory, or that of a copy of the part, as an SVG with a title in words."""
    size = len(places) if copied else prod(shape)
    marked = set(range(size)) if copied else set(places)
    squares = "".join(
        f'<rect x="{place % 32 * _SIDE}" y="{place // 32 * _SIDE}" width="{_SIDE - 2}" height="{_SIDE - 2}" '
        f'class="{"ours" if place in marked else "theirs"}"/>'
        for place in range(size)
    )
    width, height = min(size, 32) * _SIDE, (size + 31) // 32 * _SIDE
    title = f"{len(marked)} of {size} numbers are sent, {'one run' if copied or is_run(places) else 'with gaps'}"
    return (
        f'<svg class="memory" role="img" viewBox="0 0 {width} {height}" style="width:{width}px">'
        f"<title>{escape(title)}</title>{squares}</svg>"
    )


class Memory(Panel):
    """What a rank sends of a tensor that is cut in two, and what an NPU's collective reads instead."""

    def __init__(self) -> None:
        options = [(name, index) for index, name in enumerate(NAMES)]
        self.dimension = ipywidgets.Dropdown(options=options, value=2, description="Cut by")
        self.contiguous = ipywidgets.Checkbox(value=False, description=".contiguous() first", indent=False)
        self._shown = html()
        super().__init__([self.dimension, self.contiguous, self._shown])
        for widget in (self.dimension, self.contiguous):
            widget.observe(self._draw, "value")
        self._draw()

    def _draw(self, _: Any = None) -> None:
        show(self._shown, self._one(self.dimension.value, self.contiguous.value))

    def _one(self, dimension: int, copied: bool) -> str:
        places = chunk(SHAPE, dimension, 2)
        call = f"tensor.chunk(2, dim={dimension})[0]" + (".contiguous()" if copied else "")
        part = tuple(size // 2 if index == dimension else size for index, size in enumerate(SHAPE))
        steps = strides(part if copied else SHAPE)
        read = sum(place < len(places) for place in places)
        fate = (
            "It lies in one run: what is sent is what was meant."
            if copied or is_run(places)
            else f"It has gaps: a collective that is given its first address and {len(places)} numbers reads the first "
            f"{len(places)} squares, of which {len(places) - read} belong to another rank."
        )
        return (
            f"<p><code>{escape(call)}</code>: shape {part}, strides {steps}. {fate}</p>{drawing(SHAPE, places, copied)}"
        )

    def story(self) -> str:
        shown = [(1, False), (2, False), (2, True)]
        return "".join(
            f"<p>Cut by {NAMES[dimension]}:</p>{self._one(dimension, copied)}" for dimension, copied in shown
        )

    def plain(self) -> str:
        return f"the memory of a tensor of shape {SHAPE}, cut in two; a slice of a later dimension has gaps"

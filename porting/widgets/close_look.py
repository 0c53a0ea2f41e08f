"""A tower looked at closely, before against after: errors of layers and tokens, and what it costs on this device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

import ipywidgets

from porting.close_look import COST, ERRORS
from porting.levels import Level
from porting.reports.words import number
from porting.result import Result, Status
from porting.widgets import markup
from porting.widgets.bench import Bench
from porting.widgets.numbers import heat_map
from porting.widgets.panel import Panel, html, show
from porting.widgets.session import NotYet
from porting.widgets.work import Progress, Work
from porting.wrong_environment import WrongEnvironment

_BARS = 24  # characters of the longest bar


class CloseLook(Panel):
    """Figures of one level of `porting.close_look`, for a model and a dtype; it starts at once."""

    def __init__(self, bench: Bench, level: Level, draw: Callable[[Result], str], model: str, dtype: str) -> None:
        self.bench, self.level, self._draw = bench, level, draw
        self.results: list[Result] = []
        names = [each.name for each in bench.report.models]
        self.model = ipywidgets.Dropdown(options=names, value=bench.model(model).name, description="Model")
        self.dtype = ipywidgets.Dropdown(options=list(bench.able(level)), description="dtype")
        if dtype in self.dtype.options:
            self.dtype.value = dtype
        self.look = ipywidgets.Button(description="Look", icon="search", tooltip=level.question)
        self.work = Work("Looking")
        self._shown = html()
        row = ipywidgets.HBox([self.model, self.dtype, self.look], layout={"flex_flow": "row wrap"})
        super().__init__([row, self.work.widget, self._shown])
        self.look.on_click(lambda _: self.start())
        self.work.stop.on_click(lambda _: bench.close())
        self.start()

    def start(self) -> None:
        """Ask, in a thread."""
        self.work.start(self._look, (NotYet, WrongEnvironment))

    def _look(self, progress: Progress) -> str:
        model = self.bench.model(self.model.value)
        self.results = self.bench.look(self.level, model, self.dtype.value, progress)
        show(self._shown, self._figures())
        return f"{model.name} in {self.dtype.value}: {self.level.question}"

    def _figures(self) -> str:
        return "".join(map(self._one, self.results))

    def _one(self, result: Result) -> str:
        if result.status is not Status.PASSED:
            return markup.line(result.summary, bad=True)
        return self._draw(result) + "".join(f'<p class="quiet">{escape(note)}</p>' for note in result.notes)

    def story(self) -> str:
        return self.work.story() + self._figures()

    def plain(self) -> str:
        return self.work.said


def errors(bench: Bench, model: str = "", dtype: str = "") -> CloseLook:
    """Errors against fp64: a histogram, a bar for each layer, a map over the picture's patches."""
    return CloseLook(bench, ERRORS, _errors, model, dtype)


def cost(bench: Bench, model: str = "", dtype: str = "") -> CloseLook:
    """Latency and peak memory of the tower."""
    return CloseLook(bench, COST, _cost, model, dtype)


def _errors(result: Result) -> str:
    numbers = result.numbers
    what = "errors of the patches of the picture"
    maps = "".join(heat_map(f"{what}, {each['side']}", each["errors"]) for each in numbers["heat maps"])
    return (
        f"<p>{markup.rounding(escape(result.summary))}</p>"
        + bars("errors of the output: how many numbers are how far away", "error", numbers["histogram"])
        + bars("errors of each layer, as a part of its largest value", "layer", numbers["layers"])
        + f'<div class="beside">{maps}</div>'
    )


def _cost(result: Result) -> str:
    rows = [
        (row["tower"], markup.varies(f"{row['milliseconds']:.2f} ms"), markup.varies(f"{row['peak MiB']:.1f} MiB"))
        for row in result.numbers["cost"]
    ]
    caption = f"{result.summary}, on {result.device}"
    return markup.table(caption, ("tower", "a picture takes", "memory at its peak, beside weights"), rows)


def bars(caption: str, key: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """A row for each thing, with a bar and a number for each side; a bar is text, which every reader has."""
    sides = [name for name in rows[0] if name != key]
    largest = max((row[side] or 0 for row in rows for side in sides), default=0) or 1
    told = [(f"<code>{escape(str(row[key]))}</code>", *(_bar(row[side], largest) for side in sides)) for row in rows]
    return markup.rounding(markup.table(caption, (key, *sides), told))


def _bar(value: float | None, largest: float) -> str:
    if value is None:
        return "none"
    width = round(_BARS * value / largest)
    return f'<span class="bar" aria-hidden="true">{"█" * width}</span> <span class="number">{number(value)}</span>'

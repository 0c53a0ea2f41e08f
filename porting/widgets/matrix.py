"""The check, live: a cell for each question, filled in as answers come; a click leads to the numbers behind it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from html import escape
from typing import Any

import ipywidgets

from porting.discovery import Found
from porting.matrix import Question
from porting.report import Column, Report, worst
from porting.reports.markdown import not_run
from porting.reports.words import cell, heading
from porting.result import Result, Status
from porting.widgets import markup
from porting.widgets.bench import Bench
from porting.widgets.numbers import about
from porting.widgets.panel import Panel, html, show
from porting.widgets.session import NotYet
from porting.widgets.work import Progress, Stopped, Work
from porting.wrong_environment import WrongEnvironment

_PROBLEMS = (NotYet, WrongEnvironment, ValueError)
_WAITS, _RUNS = "waits", "runs"
_FIRST = "14em"  # the width of the first column
_CLASSES = {
    None: "waits",
    Status.PASSED: "passed",
    Status.FAILED: "failed",
    Status.ERROR: "error",
    Status.TIMED_OUT: "error",
    Status.NOT_RUN: "not-run",
}


class Matrix(Panel):
    """Levels below each other, models beside each other. It starts at once; Stop ends every process of it."""

    def __init__(self, bench: Bench, levels: Collection[str], dtypes: Collection[str], device: str = "auto") -> None:
        self.bench = bench
        self.wanted = (tuple(levels), tuple(dtypes), device)
        self.cells: dict[tuple[str, str], Any] = {}  # a button by its model and its row
        self.answers: dict[tuple[str, str], list[Result]] = {}
        self.report: Report | None = None
        self.work = Work("Checking")
        self.again = ipywidgets.Button(description="Check again", icon="refresh", tooltip="Ask everything anew")
        self._grid = ipywidgets.VBox(layout={"overflow": "auto"})
        self._numbers = html()
        super().__init__([self.again, self.work.widget, self._grid, self._numbers])
        self.again.on_click(lambda _: self.start())
        self.work.stop.on_click(lambda _: bench.close())
        self.start()

    def start(self) -> None:
        """Ask, in a thread."""
        self.work.start(self._check, _PROBLEMS)

    def _check(self, progress: Progress) -> str:
        self.report, self.answers, self.cells = None, {}, {}
        self._grid.children = ()
        found, asked = self.bench.questions(*self.wanted)
        self._lay_out(found, asked)
        done = 0

        def told(question: Question, results: Sequence[Result] | None) -> None:
            nonlocal done
            done += results is not None
            progress(done, len(asked))
            self._fill(question, results)

        try:
            progress(0, len(asked))
            self.report = self.bench.check(found, asked, told, self._options())
        except Stopped:
            raise Stopped(f"Stopped: {done} of {len(asked)} questions were answered. No process is left.") from None
        return self.report.verdict()

    def _options(self) -> list[str]:
        levels, dtypes, device = self.wanted
        narrowed = ["--dtype", ",".join(dtypes)] if dtypes else []
        return ["--levels", ",".join(levels), *narrowed, *(["--device", device] if device != "auto" else [])]

    # -- the grid ------------------------------------------------------------------------------------------------------

    def _lay_out(self, found: Found, asked: Sequence[Question]) -> None:
        rows = list(dict.fromkeys(map(_row, asked)))
        names = [model.name for model in found.models]
        self.cells = {(name, row): self._button(name, row) for row in rows for name in names}
        head = ipywidgets.HBox([_label("level", _FIRST), *map(_label, names)])
        body = [ipywidgets.HBox([_label(row, _FIRST), *(self.cells[name, row] for name in names)]) for row in rows]
        self._grid.children = [head, *body]

    def _button(self, model: str, row: str) -> Any:
        button = ipywidgets.Button(description=_WAITS, tooltip=f"{model} {row}: {_WAITS}", layout={"width": "9em"})
        button.add_class("vp-cell")
        button.on_click(lambda _: self.tell(model, row))
        return button

    def _fill(self, question: Question, results: Sequence[Result] | None) -> None:
        key = (question.model.name, _row(question))
        button = self.cells[key]
        if results is None:
            button.description = _RUNS
        else:
            self.answers[key] = list(results)
            button.description = cell(results)
            button.add_class(_CLASSES[worst(results)])
        button.tooltip = f"{key[0]} {key[1]}: {button.description}"

    def tell(self, model: str, row: str) -> None:
        """Show the numbers behind a cell."""
        results = self.answers.get((model, row))
        told = about(results) if results else markup.line(f"{model} {row} has no answer yet")
        show(self._numbers, f"<h4>{escape(model)}, {escape(row)}</h4>{told}")

    # -- without a kernel ----------------------------------------------------------------------------------------------

    def story(self) -> str:
        if not self.answers:
            return self.work.story()
        names = list(dict.fromkeys(model for model, _ in self.cells))
        asked = dict.fromkeys(row for _, row in self.cells)
        rows = [(escape(row), *(self._word(name, row) for name in names)) for row in asked]
        levels = "".join(
            f"<li><strong>{level.name}</strong>: {escape(level.question)}</li>"
            for level in (self.report.levels if self.report else ())
        )
        reasons = "".join(f"<li>{escape(line[2:])}</li>" for line in (not_run(self.report) if self.report else ()))
        return (
            self.work.story()
            + markup.table("Each model, level by level", ("level", *names), rows)
            + (f"<p>Not run, and why:</p><ul>{reasons}</ul>" if reasons else "")
            + markup.folded("What the levels ask", f"<ul>{levels}</ul>")
        )

    def _word(self, name: str, row: str) -> str:
        results = self.answers.get((name, row), [])
        return f'<span class="{_CLASSES[worst(results)]}">{cell(results) or _WAITS}</span>'

    def plain(self) -> str:
        return self.work.said


def _row(question: Question) -> str:
    """What a row is called: the level, the backend where it is not the device's own, the dtype."""
    return " ".join(filter(None, heading(Column(question.level.name, question.job.backend, question.job.dtype))))


def _label(text: str, width: str = "9em") -> Any:
    return ipywidgets.HTML(f"<strong>{escape(text)}</strong>", layout={"width": width})

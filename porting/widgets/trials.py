"""The trials of a shared attention, before its port and after, and what the ranks draw."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any

import ipywidgets

from porting.job import Job
from porting.reports.words import CELLS
from porting.result import Result, Status
from porting.shared_attention import SHARED
from porting.widgets import markup
from porting.widgets.bench import Bench, Port
from porting.widgets.panel import Panel, html, show
from porting.widgets.work import Progress, Work
from porting.wrong_environment import WrongEnvironment

_CLASSES = {Status.PASSED: "passed", Status.NOT_RUN: "not-run"}


class Trials(Panel):
    """A row a trial; it starts at once."""

    def __init__(self, bench: Bench, port: Port, pipeline: Path | None) -> None:
        self.bench, self.port, self.pipeline = bench, port, pipeline
        self.results: dict[str, list[Result]] = {}
        self.again = ipywidgets.Button(description="Try again", icon="refresh", tooltip="Run all trials anew")
        self.work = Work("Trying")
        self._shown = html()
        super().__init__([self.again, self.work.widget, self._shown])
        self.again.on_click(lambda _: self.start())
        self.work.stop.on_click(lambda _: bench.close())
        self.start()

    def start(self) -> None:
        """Run them, in a thread."""
        self.work.start(self._try, (WrongEnvironment,))

    def _try(self, progress: Progress) -> str:
        self.results = {}
        pipeline = self.pipeline and self.pipeline.resolve()
        for number, (side, path) in enumerate((("before", self.port.before), ("after", self.port.after))):
            job = Job(path.resolve(), SHARED.name, pipeline=pipeline, dtype="", backend="")
            self.results[side] = self.bench.answer(SHARED, job, lambda *_, done=number: progress(done, 2))
            show(self._shown, self._table())
        return ", ".join(f"{side}: {_count(results)}" for side, results in self.results.items())

    def _table(self) -> str:
        names = dict.fromkeys(result.backend for results in self.results.values() for result in results)
        rows = [(escape(name), *(_cell(results, name) for results in self.results.values())) for name in names]
        return markup.table("Each trial, on two processes of this machine", ("trial", *self.results), rows) + "".join(
            pictures(result.numbers["pictures"])
            for results in self.results.values()
            for result in results
            if "pictures" in result.numbers
        )

    def story(self) -> str:
        return self.work.story() + self._table()

    def plain(self) -> str:
        return self.work.said


def _count(results: Sequence[Result]) -> str:
    passed = sum(result.status is Status.PASSED for result in results)
    return f"{passed} of {len(results)} pass"


def _cell(results: Sequence[Result], name: str) -> str:
    found = next((result for result in results if result.backend == name), None)
    if found is None:
        return ""
    kind = _CLASSES.get(found.status, "failed")
    return f'<span class="{kind}">{CELLS[found.status]}</span> {markup.rounding(escape(found.summary))}'


def pictures(drawn: Mapping[str, Any]) -> str:
    """Pictures beside each other, each under its name; rows of pixels from 0 to 255."""
    figures = "".join(
        f'<figure><img src="{_address(pixels)}" width="192" height="192" alt="what {escape(name)} drew">'
        f"<figcaption>{escape(name)}</figcaption></figure>"
        for name, pixels in drawn.items()
    )
    return markup.rounding(f'<div class="beside">{figures}</div>')


def _address(pixels: Sequence[Sequence[Sequence[int]]]) -> str:
    from PIL import Image

    flat = bytes(value for row in pixels for pixel in row for value in pixel)
    png = BytesIO()
    Image.frombytes("RGB", (len(pixels[0]), len(pixels)), flat).save(png, "PNG")
    return f"data:image/png;base64,{base64.b64encode(png.getvalue()).decode()}"

"""How far a check is: a bar on a terminal, and a line for each answer everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from porting.matrix import Question
from porting.report import worst
from porting.reports.words import CELLS
from porting.result import Result

_COLUMNS = 10_000  # of a pipe: one answer is one line


class Watcher:
    """Told of each question when it is put and when it is answered."""

    def __init__(self, total: int, stream: IO[str]) -> None:
        self._console = Console(file=stream, highlight=False, width=None if stream.isatty() else _COLUMNS)
        columns = (
            TextColumn("checking"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
        )
        self._bar = Progress(*columns, console=self._console, transient=True, disable=not self._console.is_terminal)
        self._task = self._bar.add_task("", total=total)
        self._total = total
        self._done = 0
        self._running: dict[str, None] = {}

    def __enter__(self) -> Watcher:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, question: Question, results: Sequence[Result] | None) -> None:
        if results is None:
            self._running[question.label] = None
        else:
            self._running.pop(question.label, None)
            self._done += 1
            status = worst(results)
            first = next(result for result in results if result.status is status)
            seconds = sum(result.seconds for result in results)
            several = f" (of {len(results)} results)" if len(results) > 1 else ""
            word = f"{CELLS[status]}{several}"
            line = f"[{self._done}/{self._total}] {question.label}: {word}, {first.summary} ({seconds:.1f} s)"
            self._console.print(Text(line, overflow="ellipsis", no_wrap=True))
        self._bar.update(self._task, completed=self._done, description=", ".join(list(self._running)[:2]))

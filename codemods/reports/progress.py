"""How far a run is: a bar on a terminal, silence in a pipe."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

PATIENCE_S = 0.3  # shorter runs are over before a bar would be read, and importing rich takes its time


class Progress:
    """Called with (done, total) files."""

    def __init__(self, stream: TextIO) -> None:
        self._done = 0
        self._total = 0
        self._stream = stream
        self._terminal = stream.isatty()
        self._since = time.monotonic()
        self._draw: Callable[[], None] | None = None
        self._clear: Callable[[], None] = lambda: None

    def __call__(self, done: int, total: int) -> None:
        self._done, self._total = done, total
        if not self._terminal or time.monotonic() - self._since < PATIENCE_S:
            return
        if self._draw is None:
            self._draw = self._start()
        self._draw()

    def close(self) -> None:
        """Take the bar off the screen."""
        self._clear()

    def _start(self) -> Callable[[], None]:
        try:
            from rich.console import Console
            from rich.progress import Progress as Bar
        except ImportError:
            self._clear = self._clear_counter
            return self._draw_counter
        # No refresh thread: the run may fork worker processes, and threads do not survive that.
        bar = Bar(console=Console(file=self._stream), transient=True, auto_refresh=False)
        task = bar.add_task("migrating", total=self._total)
        bar.start()
        self._clear = bar.stop
        return lambda: bar.update(task, completed=self._done, total=self._total, refresh=True)

    def _draw_counter(self) -> None:
        self._stream.write(f"\rmigrating {self._done}/{self._total} files")
        self._stream.flush()

    def _clear_counter(self) -> None:
        self._stream.write("\r" + " " * len(f"migrating {self._total}/{self._total} files") + "\r")
        self._stream.flush()

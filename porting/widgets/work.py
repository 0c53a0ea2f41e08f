"""Something long, in a thread of its own: told how far it is, and stopped between two steps of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import ipywidgets

from porting.widgets import markup
from porting.widgets.panel import html, show

Progress = Callable[[int, int], None]


class Stopped(Exception):
    """The person has asked for an end; raised where progress is told."""


class Work:
    """A bar, a Stop button and a line, over one thing that is done at a time."""

    def __init__(self, name: str, stopped: Callable[[], None] = lambda: None) -> None:
        """`stopped` is called where it did not come to its end."""
        self.bar = ipywidgets.IntProgress(min=0, max=1, description=name, layout={"width": "min(100%, 40em)"})
        self.stop = ipywidgets.Button(description="Stop", icon="stop", tooltip=f"Stop {name.lower()}", disabled=True)
        self._said = html()
        self.said = ""
        self.bad = False
        self._stopped = stopped
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.stop.on_click(lambda _: self.ask_to_stop())
        self.widget = ipywidgets.VBox([ipywidgets.HBox([self.bar, self.stop]), self._said])

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def stopping(self) -> bool:
        """Whether an end was asked for."""
        return self._stop.is_set()

    def ask_to_stop(self) -> None:
        self._stop.set()
        self.say("stopping")

    def say(self, text: str, bad: bool = False) -> None:
        self.said, self.bad = text, bad
        show(self._said, markup.line(text, bad) if text else "")

    def progress(self, done: int, total: int) -> None:
        """Raises Stopped."""
        if self.stopping:
            raise Stopped
        self.bar.max, self.bar.value = max(total, 1), done

    def start(self, do: Callable[[Progress], str], problems: tuple[type[Exception], ...]) -> None:
        """Do it in a thread, which says what `do` returns. `problems` are exceptions that are said as they are."""
        if self.running:
            return
        self._stop.clear()
        self.stop.disabled = False
        self.say("")
        self._thread = threading.Thread(target=self._run, args=(do, problems), daemon=True)
        self._thread.start()

    async def done(self) -> None:
        """Until it is. Meanwhile the kernel hears clicks; an interrupt of it is the same as Stop."""
        while self.running:
            try:
                await asyncio.sleep(0.1)
            except asyncio.CancelledError:
                self.stop.click()  # and not `ask_to_stop`: a panel may end processes too

    def _run(self, do: Callable[[Progress], str], problems: tuple[type[Exception], ...]) -> None:
        try:
            self.say(do(self.progress))
            self.bar.value = self.bar.max
        except Stopped as stop:
            self._broke_off(str(stop) or "Stopped. What was there before is still there.")
        except problems as problem:
            self._broke_off(str(problem))
        except Exception as fault:  # a thread's traceback would be seen by nobody
            self._broke_off(f"broke off, which is a fault of vitport: {type(fault).__name__}: {fault}")
        finally:
            self.stop.disabled = True

    def _broke_off(self, why: str) -> None:
        self.bar.value = 0
        self._stopped()
        self.say(why, bad=True)

    def story(self) -> str:
        return markup.line(self.said, self.bad)

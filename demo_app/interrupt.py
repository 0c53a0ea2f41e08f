"""Ctrl-C ends the demo soon, whatever it is at: imports that take seconds, threads that draw, connections that stay."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any, NoReturn

INTERRUPTED = 130  # what a shell expects of a program ended by Ctrl-C
MOMENT = 1.5  # seconds to tidy up


def at_once() -> None:
    """From now on Ctrl-C ends this process on the spot. Where a shell has it ignored, it stays so."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, leave)


def leave(*_: Any) -> NoReturn:
    """End this process now: Python itself would wait for every thread that has work."""
    os.write(2, b"demo_app: stopped\n")
    os._exit(INTERRUPTED)


def wait(tidy: Callable[[], None]) -> NoReturn:
    """Wait for Ctrl-C, give `tidy` a moment, and end this process. A second Ctrl-C ends it on the spot."""
    try:
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        threading.Event().wait()
    except KeyboardInterrupt:
        at_once()
    tidying = threading.Thread(target=tidy, daemon=True)
    tidying.start()
    tidying.join(MOMENT)
    leave()

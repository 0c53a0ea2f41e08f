"""Blocking work in a thread of its own, its results as an asynchronous generator."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Executor
from typing import Any, TypeVar

T = TypeVar("T")
Work = Callable[[Callable[[T], None], threading.Event], None]

_END = object()


async def results(executor: Executor, work: Work[T]) -> AsyncGenerator[T, None]:
    """What `work(give, stop)` gives, as it gives it; raises what it raises.

    Closing the generator sets `stop`, which the work has to look at; work that has not begun never begins.
    """
    loop, queue, stop = asyncio.get_running_loop(), asyncio.Queue[Any](), threading.Event()

    def give(item: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
            loop.call_soon_threadsafe(queue.put_nowait, item)

    def run() -> None:
        try:
            if not stop.is_set():
                work(give, stop)
            give(_END)
        except BaseException as error:
            give(_Raised(error))

    future = executor.submit(run)
    try:
        while (item := await queue.get()) is not _END:
            if isinstance(item, _Raised):
                raise item.error
            yield item
    finally:
        stop.set()
        future.cancel()


class _Raised:
    def __init__(self, error: BaseException) -> None:
        self.error = error

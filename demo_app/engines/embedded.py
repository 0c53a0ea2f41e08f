"""The small models in this process: what both of them share."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from demo_app.engines.in_thread import Work, results
from demo_app.engines.interface import EngineError, Health, sentence
from demo_app.small_models import NoModel, folder

T = TypeVar("T")

# One after another: libraries that import the same things at once only wait for each other.
_LOADER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="loader")


class Embedded:
    """A model that is loaded in the background and used by one thread, so that requests queue up for it."""

    where = "this computer"
    at_once = 1

    def __init__(self, name: str, load: Callable[[Path], Any]) -> None:
        self.name = name
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._loading = _LOADER.submit(lambda: load(folder(name)))

    async def health(self) -> Health:
        if not self._loading.done():
            return Health("starting", self.name, "cpu")
        problem = self._problem()
        return Health("down" if problem else "ready", self.name, "cpu", problem)

    def _problem(self) -> str:
        """Why there is no model; waits until that is known."""
        error = self._loading.exception()
        if isinstance(error, NoModel):
            return str(error)
        if isinstance(error, ImportError):
            return f"The small model {self.name} needs {error.name}: install the extra `demo`."
        return sentence(f"The small model {self.name} cannot be loaded: {error}") if error else ""

    async def run(self, work: Callable[[Any], Work[T]]) -> AsyncGenerator[T, None]:
        """What `work(model)` gives in the model's thread. Raises EngineError."""

        def begin(*arguments: Any) -> None:
            if problem := self._problem():
                raise EngineError(problem)
            work(self._loading.result())(*arguments)

        try:
            async for item in results(self._thread, begin):
                yield item
        except EngineError:
            raise
        except Exception as error:
            raise EngineError(f"The small model {self.name} failed: {type(error).__name__}: {error}") from error

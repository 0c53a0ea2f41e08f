"""The process that has vLLM and both towers: started with the first question, kept for the next ones."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from demo_app.before_after import PLUGIN
from demo_app.engines.interface import EngineError
from demo_app.pictures import Picture
from porting.environment import python_path

START, ANSWER = 600.0, 120.0  # seconds


@dataclass(frozen=True)
class Compared:
    """What the model says with each tower; how far apart their embeddings are, in all and token by token."""

    original: str
    ported: str
    difference: float
    largest: float
    grid: list[list[float]]
    seconds: float


def missing() -> str:
    """Why nothing can be compared here, in one line; empty where it can."""
    if find_spec("vllm") is None:
        return "This compares two vision towers under vLLM, and vLLM is not installed here (extras: cpu, cuda, npu)."
    if not PLUGIN.is_dir():
        return "This compares the towers of examples/orchard_vl_plugin, which only a checkout of the project has."
    return ""


class Worker:
    """One process; questions wait for each other."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._turn = asyncio.Lock()

    async def ask(self, picture: Picture, question: str, broken: bool) -> AsyncGenerator[Compared | None, None]:
        """None once the process is up, then the answer. Raises EngineError."""
        async with self._turn:
            try:
                if self._process is None:
                    self._process = await _start()
                    await self._line(START)
                yield None
                asked = {"picture": base64.b64encode(picture.data).decode(), "question": question, "broken": broken}
                assert self._process.stdin
                self._process.stdin.write(json.dumps(asked).encode() + b"\n")
                yield Compared(**await self._line(ANSWER))
            except BaseException:  # also when the visitor goes: the answer that is due would be taken for the next one
                await self.close()
                raise

    async def _line(self, seconds: float) -> dict[str, Any]:
        """The next line of the process. Raises EngineError."""
        assert self._process and self._process.stdout
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), seconds)
        except asyncio.TimeoutError:
            raise EngineError(f"The towers have not answered in {seconds:.0f} s: try again.") from None
        found: dict[str, Any] = json.loads(line) if line else {"problem": "its process ended"}
        if problem := found.get("problem"):
            raise EngineError(f"The towers cannot be compared: {problem}")
        return found

    async def close(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _start() -> Process:
    command = [sys.executable, "-m", "demo_app.before_after.worker"]
    environment = {**os.environ, "PYTHONPATH": python_path()}
    return await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=environment)

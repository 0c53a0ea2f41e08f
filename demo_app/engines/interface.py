"""What the page asks of an engine.

An engine answers with an asynchronous generator. Closing it cancels the work, at the next token, step or chunk.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from demo_app.pictures import Picture

T = TypeVar("T")


class EngineError(Exception):
    """An engine cannot answer, or stopped in the middle; the message is one line: which one, what, and what to try."""

    def __init__(self, message: str) -> None:
        super().__init__(sentence(message))


def sentence(text: str) -> str:
    """In one line, and ended as a sentence is."""
    line = " ".join(text.split())
    return line if line.endswith((".", "?", "!")) else f"{line}."


@dataclass(frozen=True)
class Health:
    """How an engine is. `problem` is one line with the remedy, empty unless it is down."""

    state: Literal["starting", "ready", "down"]
    model: str = ""
    device: str = ""
    problem: str = ""


@dataclass(frozen=True)
class Message:
    """One turn of a conversation; a picture stands before the text."""

    role: Literal["user", "assistant"]
    text: str
    pictures: tuple[Picture, ...] = ()


@dataclass(frozen=True)
class Piece:
    """More of an answer, and how many tokens of it have come so far."""

    text: str
    tokens: int


@dataclass(frozen=True)
class Wish:
    """What to draw. `size` is (width, height) in pixels; picture number i of `count` has the seed `seed + i`."""

    prompt: str
    negative: str = ""
    seed: int = 0
    steps: int = 20
    guidance: float = 2.5
    size: tuple[int, int] = (64, 64)
    count: int = 1


@dataclass(frozen=True)
class Step:
    """So many steps of a drawing are done, of how many; no server says so."""

    done: int
    of: int


@dataclass(frozen=True)
class Drawn:
    """The pictures of a wish, in order."""

    pictures: tuple[Picture, ...]


@dataclass(frozen=True)
class Range:
    """What the page offers for drawings: the first of each is the default. `largest` is the longest side in pixels."""

    sizes: tuple[tuple[int, int], ...]
    steps: int
    guidance: float
    largest: int
    most_steps: int = 200
    most_pictures: int = 4


class ChatEngine(Protocol):
    """`turns` and `pictures` are how much of a conversation it is shown, `at_once` how many it answers at a time."""

    where: str
    turns: int
    pictures: int
    at_once: int

    async def health(self) -> Health: ...

    def answer(self, messages: Sequence[Message]) -> AsyncGenerator[Piece, None]:
        """Raises EngineError, possibly after some pieces."""

    def command(self, messages: Sequence[Message]) -> str:
        """What asks the same from a shell."""


class DrawingEngine(Protocol):
    where: str
    range: Range
    at_once: int

    async def health(self) -> Health: ...

    def draw(self, wish: Wish) -> AsyncGenerator[Step | Drawn, None]:
        """Steps where they are known, then the pictures. Raises EngineError."""

    def command(self, wish: Wish) -> str:
        """What asks the same from a shell."""


async def with_ticks(source: AsyncGenerator[T, None], seconds: float = 0.5) -> AsyncGenerator[T | None, None]:
    """What `source` gives, and None whenever it has given nothing for so long. Closing this closes `source`."""
    waiting: asyncio.Task[T] | None = None
    try:
        while True:
            waiting = waiting or asyncio.ensure_future(anext(source))
            done, _ = await asyncio.wait([waiting], timeout=seconds)
            if not done:
                yield None
                continue
            try:
                item = waiting.result()
            except StopAsyncIteration:
                return
            finally:
                waiting = None
            yield item
    finally:
        if waiting:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        await source.aclose()

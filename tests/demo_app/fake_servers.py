"""Servers that behave in one way each, on loopback; and how an engine is asked from a test."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from typing import Any, TypeVar

T = TypeVar("T")

Respond = Callable[["Exchange"], Awaitable[None]]


class Exchange:
    """One request to a fake server, and the means to answer it byte by byte."""

    def __init__(self, path: str, body: Any, writer: asyncio.StreamWriter) -> None:
        self.path, self.body, self.writer = path, body, writer

    async def head(self, code: int, kind: str) -> None:
        self.writer.write(f"HTTP/1.1 {code} X\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n".encode())
        await self.writer.drain()

    async def json(self, code: int, value: Any) -> None:
        text = json.dumps(value).encode()
        length = f"Content-Length: {len(text)}\r\n"
        self.writer.write(f"HTTP/1.1 {code} X\r\nContent-Type: application/json\r\n{length}\r\n".encode() + text)
        await self.writer.drain()

    async def event(self, value: Any) -> None:
        text = value if isinstance(value, str) else json.dumps(value)
        self.writer.write(f"data: {text}\n\n".encode())
        await self.writer.drain()

    async def word(self, text: str) -> None:
        await self.event({"choices": [{"delta": {"content": text}}]})

    def cut(self) -> None:
        """End it without a good-bye."""
        self.writer.transport.abort()


class FakeServer:
    """`bodies` are those of all requests but for /v1/models; `gone` is set when a client has left before the end.

    `listed` is what it says of each of its models beside the name.
    """

    def __init__(
        self, respond: Respond, models: list[str] | None = None, port: int = 0, listed: dict[str, Any] | None = None
    ) -> None:
        self.respond, self.models = respond, ["fake-model"] if models is None else models
        self.listed = listed or {}
        self.bodies: list[Any] = []
        self.gone = threading.Event()
        self.listening = socket.socket()
        self.listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listening.bind(("127.0.0.1", port))
        self.port = self.listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = next(
                (int(line[15:]) for line in head.splitlines() if line.lower().startswith("content-length:")), 0
            )
            body = json.loads(await reader.readexactly(length)) if length else None
            exchange = Exchange(head.split()[1], body, writer)
            if exchange.path == "/v1/models" and self.models:
                await exchange.json(200, {"data": [{"id": name, **self.listed} for name in self.models]})
            else:
                self.bodies.append(body)
                leaving = asyncio.ensure_future(reader.read())
                answering = asyncio.ensure_future(self.respond(exchange))
                await asyncio.wait([leaving, answering], return_when=asyncio.FIRST_COMPLETED)
                if not answering.done():
                    self.gone.set()
                    answering.cancel()
        writer.close()

    def start(self) -> None:
        async def serve() -> None:
            async with await asyncio.start_server(self.handle, sock=self.listening) as opened:
                await opened.serve_forever()

        def run() -> None:
            with suppress(asyncio.CancelledError):
                asyncio.run(begin())

        async def begin() -> None:
            self.loop, self.serving = asyncio.get_running_loop(), asyncio.current_task()
            started.set()
            await serve()

        started = threading.Event()
        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()
        started.wait(10)

    def stop(self) -> None:
        """Also cuts whatever is going on. A second call does nothing."""
        if self.thread.is_alive():
            with suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self.serving.cancel)
            self.thread.join(10)
        self.listening.close()


@contextmanager
def running(respond: Respond, **more: Any) -> Iterator[FakeServer]:
    """A fake server until the block ends."""
    server = FakeServer(respond, **more)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def collected(source: AsyncGenerator[T, None], most: int | None = None) -> tuple[list[T], str]:
    """What a generator of an engine gives, at most so many, and the line it failed with; empty where it did not."""
    from demo_app.engines.interface import EngineError

    async def collect() -> tuple[list[T], str]:
        found: list[T] = []
        try:
            async with aclosing(source) as items:
                async for item in items:
                    found.append(item)
                    if len(found) == most:
                        break
        except EngineError as problem:
            return found, str(problem)
        return found, ""

    return asyncio.run(collect())

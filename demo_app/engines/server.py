"""An OpenAI-compatible server: its model, its health, and what to say when it does not answer as it should."""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx

from demo_app import bodies
from demo_app.engines.interface import EngineError, Health

FRESH = 3.0  # seconds for which what it said of its health holds
CONNECT = 5.0  # seconds
LARGEST = 200_000_000  # bytes of an answer


class Server:
    """`side` is "chat" or "drawing", `option` the option that named it, `key` the variable that may hold its key."""

    at_once = 8

    def __init__(self, side: str, url: str, option: str, key: str, patience: float) -> None:
        self.side, self.option, self.key, self.patience = side, option, key, patience
        self.url = address(url)
        if not all("!" <= letter <= "~" for letter in self._key):
            raise ValueError(f"{key} is no key: give it the key alone, without spaces and line ends in it")
        self.where = f"the {side} server at {self.url}"
        self.length = 0  # of a conversation in tokens, as vLLM lists it with its model; 0 where that is not said
        self._health = Health("starting")
        self._asked = 0.0

    @property
    def key_name(self) -> str:
        """The variable of the key, empty where there is none."""
        return self.key if self._key else ""

    @property
    def _key(self) -> str:
        return os.environ.get(self.key, "").strip()

    async def health(self) -> Health:
        if time.monotonic() - self._asked > FRESH:
            self._asked = time.monotonic()
            try:
                self._health = Health("ready", await self.model(), "server")
            except EngineError as error:
                self._health = Health("down", problem=str(error))
        return self._health

    async def model(self) -> str:
        """The id of the model it serves, the first where there are several. Raises EngineError."""
        async with self.client(CONNECT) as client, self._explained():
            response = await client.get(f"{self.url}/{bodies.MODELS}")
            await self._accepted(response)
            try:
                listed = response.json()["data"][0]
                self.length = int(listed.get("max_model_len") or 0)
                return str(listed["id"])
            except (ValueError, LookupError, TypeError, AttributeError, OverflowError):
                raise self.error(
                    "lists no model at /v1/models", f"is the address of {self.option} that of such a server?"
                ) from None

    def client(self, patience: float | None = None) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        limit = httpx.Timeout(patience or self.patience, connect=CONNECT)
        return httpx.AsyncClient(headers=headers, timeout=limit, trust_env=False, follow_redirects=False)

    @asynccontextmanager
    async def post(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[httpx.Response, None]:
        """The response to a request, accepted and not read yet. Raises EngineError, also for what reading it raises."""
        async with (
            self._explained(),
            self.client() as client,
            client.stream("POST", f"{self.url}/{path}", json=body) as response,
        ):
            await self._accepted(response)
            yield response

    async def _accepted(self, response: httpx.Response) -> None:
        if response.is_success:
            return
        await response.aread()
        said, code = _said(response), response.status_code
        if code in (401, 403):
            if self._key:
                raise self.error(f"refuses the key of {self.key} ({code})", "correct it and start again")
            raise self.error(f"wants a key ({code})", f"set {self.key} to it and start again")
        if code == 404:
            raise self.error(
                f"does not know that model or request: {said}", f"does {self.option} name the right server?"
            )
        if code in (429, 503):
            raise self.error(f"is busy ({code}: {said})", "try again in a while")
        raise self.error(f"refuses ({code}: {said})", "try something else, or look into its log")

    @asynccontextmanager
    async def _explained(self) -> AsyncGenerator[None, None]:
        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout):
            raise self.error("does not answer", f"start it, or correct {self.option}") from None
        except httpx.TimeoutException:
            raise self.error(
                f"has sent nothing for {self.patience:g} s",
                "it may be busy: try again, or give it longer (--patience)",
            ) from None
        except (httpx.RequestError, httpx.StreamError):
            raise self.broke_off() from None

    def broke_off(self) -> EngineError:
        return self.error("broke off in the middle", "look into its log, and try again when it is back")

    def error(self, what: str, remedy: str) -> EngineError:
        return EngineError(f"The {self.side} server at {self.url} {what}: {remedy}")


def address(url: str) -> str:
    """The address with `/v1`. Raises ValueError where it is none."""
    try:
        parts = urlsplit(url)
        plain = parts.scheme in ("http", "https") and bool(httpx.URL(url).host) and parts.port != 0
        bare = not any((parts.username, parts.password, parts.query, parts.fragment, " " in url))
    except (ValueError, httpx.InvalidURL):
        plain = bare = False
    if not (plain and bare):
        raise ValueError(f"{url} is no address of a server: give one like http://127.0.0.1:8000")
    return url.rstrip("/").removesuffix("/v1") + "/v1"


def _said(response: httpx.Response) -> str:
    """The server's own words, as one short line."""
    try:
        text = response.json()
        for name in ("error", "message", "detail"):
            text = text.get(name, text) if isinstance(text, dict) else text
    except ValueError:
        text = response.text
    line = " ".join(str(text if isinstance(text, str) else json.dumps(text)).split())
    return line[:200].rstrip(".") or "no reason given"

"""Many visitors of the demo's page at once, each checking that it gets the answers to its own questions alone."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Collection
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import httpx
import numpy as np

from demo_app.engines.interface import ChatEngine, Message
from demo_app.pictures import encode
from demo_app.training.questions import a
from demo_app.training.shapes import Scene, draw, prompt_scene

QUESTION = "Describe the picture."
SIDE = 112  # pixels of a visitor's picture
DRAWS = 5  # every so many questions a visitor has something drawn
IDLE = 0.2  # seconds between two requests of a visitor


@dataclass
class Seen:
    """What the crowd has seen: seconds from request to end, places in the queue that it was told, what went wrong."""

    answers: list[float] = field(default_factory=list)
    drawings: list[float] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def said(self) -> str:
        parts = [
            f"{len(times)} {what}, median {median(times):.1f} s, longest {max(times):.1f} s"
            for what, times in (("answers", self.answers), ("drawings", self.drawings))
            if times
        ]
        return f"{'; '.join(parts)}; furthest back in a queue: {max(self.places, default=0)}; wrong: {len(self.wrong)}"


class Visitor:
    """One session of the page, over the requests that its own JavaScript makes."""

    def __init__(self, client: httpx.AsyncClient, functions: dict[str, int], number: int, seen: Seen) -> None:
        self.client, self.functions, self.number, self.seen = client, functions, number, seen
        self.session = uuid.uuid4().hex
        self.scene: Scene = prompt_scene(np.random.default_rng(number))
        self.picture = encode(draw(self.scene, SIDE, np.random.default_rng(number)))

    async def stay(self, until: float, expected: Collection[str]) -> None:
        """Ask about the own picture again and again; one of `expected` is the answer."""
        asked = 0
        try:
            file = await self.upload()
            while time.monotonic() < until:
                asked += 1
                await self.ask(file, asked, expected)
                if (asked + self.number) % DRAWS == 0:
                    await self.draw(asked)
                await asyncio.sleep(IDLE)
        except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
            self.seen.wrong.append(f"visitor {self.number}, question {asked}: {type(error).__name__} {error}")

    async def upload(self) -> dict[str, Any]:
        files = {"files": (f"{self.number}.png", self.picture.data)}
        (path,) = (await self.client.post("upload", files=files)).raise_for_status().json()
        return {"path": path, "orig_name": f"{self.number}.png", "meta": {"_type": "gradio.FileData"}}

    async def ask(self, file: dict[str, Any], times: int, expected: Collection[str] = ()) -> None:
        begun = time.monotonic()
        body = {"data": [{"text": QUESTION, "files": [file]}, None], "session_hash": self.session}
        response = await self.client.post("run/say", json={**body, "fn_index": self.functions["say"]})
        response.raise_for_status()
        conversation = (await self.queued("answer", [None]))[0]
        self.seen.answers.append(time.monotonic() - begun)
        answers = [_text(message) for message in conversation if message["role"] == "assistant"]
        if len(answers) != times or len(conversation) != 2 * times:
            self.seen.wrong.append(f"visitor {self.number}: {len(answers)} answers to {times} questions")
        elif expected and answers[-1] not in expected:
            self.seen.wrong.append(f"visitor {self.number}: {answers[-1]!r} where {sorted(expected)} are right")

    async def draw(self, times: int) -> None:
        begun, (thing,) = time.monotonic(), self.scene.things
        prompt, seed = f"{a(thing.name)} on a {self.scene.background} background", 1000 * self.number + times
        made = await self.queued("draw", [None, prompt, "", seed, False, 20, 2.5, "64x64", 1])
        self.seen.drawings.append(time.monotonic() - begun)
        captions = [picture["caption"] for picture in made[1]["value"]]
        if captions != [f"{prompt} (seed {seed})"]:
            self.seen.wrong.append(f"visitor {self.number}: drew {captions}, not {prompt!r} with seed {seed}")

    async def queued(self, name: str, data: list[Any]) -> list[Any]:
        """The outputs of a function that waits in a queue, at its end. Raises ValueError where it has none."""
        body = {"data": data, "fn_index": self.functions[name], "session_hash": self.session}
        event = (await self.client.post("queue/join", json=body)).raise_for_status().json()["event_id"]
        ends = []
        async with self.client.stream("GET", "queue/data", params={"session_hash": self.session}) as stream:
            async for line in stream.aiter_lines():
                message = json.loads(line.removeprefix("data:")) if line.startswith("data:") else {"msg": ""}
                if message.get("event_id") not in (None, event):
                    raise ValueError(f"a message of another event, {message}")
                if message["msg"] == "estimation":
                    self.seen.places.append(message["rank"])
                if message["msg"] == "process_completed":
                    ends.append(message)
                if message["msg"] == "close_stream":
                    break
        if len(ends) != 1 or not ends[0]["success"]:
            raise ValueError(f"{name} ended {len(ends)} times: {ends}")
        output: list[Any] = ends[0]["output"]["data"]
        return output


def _text(message: dict[str, Any]) -> str:
    return "".join(part["text"] for part in message["content"] if part["type"] == "text")


async def one(address: str, asks: int, draws: int) -> Seen:
    """One visitor alone, who asks and has something drawn so many times."""
    seen = Seen()
    async with _client(address) as client:
        visitor = Visitor(client, await _functions(client), 0, seen)
        file = await visitor.upload()
        for time_ in range(1, asks + 1):
            await visitor.ask(file, time_)
        for time_ in range(draws):
            await visitor.draw(time_)
    return seen


async def gather(address: str, visitors: int, seconds: float, engine: ChatEngine) -> Seen:
    """So many visitors at a page over the small models. `engine` is such a model alone, which says what is right."""
    seen = Seen()
    async with _client(address) as client:
        functions = await _functions(client)
        crowd = [Visitor(client, functions, number, seen) for number in range(visitors)]
        expected = [await right(engine, visitor) for visitor in crowd]
        until = time.monotonic() + seconds
        await asyncio.gather(*(visitor.stay(until, answers) for visitor, answers in zip(crowd, expected)))
    return seen


def _client(address: str) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None)
    api = f"{address.rstrip('/')}/gradio_api/"
    return httpx.AsyncClient(base_url=api, timeout=300, limits=limits, trust_env=False)


async def _functions(client: httpx.AsyncClient) -> dict[str, int]:
    """The numbers of the page's functions by their names."""
    config = (await client.get("../config")).raise_for_status().json()
    return {each["api_name"]: each["id"] for each in config["dependencies"] if each["api_name"]}


async def right(engine: ChatEngine, visitor: Visitor) -> set[str]:
    """What the engine says to a visitor's question, the first time and when it has been asked before."""
    first = Message("user", QUESTION, (visitor.picture,))
    once = "".join([piece.text async for piece in engine.answer([first])])
    again = [first, Message("assistant", once), first]
    return {once, "".join([piece.text async for piece in engine.answer(again)])}

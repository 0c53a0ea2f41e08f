"""The small drawing model behind the route at which vllm-omni draws, for whoever has no accelerator.

Bodies are taken as vllm-omni 0.14.0 to 0.30.0 take them (entrypoints/openai/protocol/images.py); fields that say
nothing to this model are passed over. A model of another name is refused, as 0.30.0 does.
"""

from __future__ import annotations

import base64
import math
import random
import re
import socket
import threading
import time
from contextlib import aclosing
from typing import Annotated, Any, Literal

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, BeforeValidator, Field

from demo_app.bodies import DRAW, MODELS
from demo_app.engines.interface import DrawingEngine, Drawn, EngineError, Wish, with_ticks
from demo_app.pictures import Picture
from demo_app.small_models import DRAWING, LARGEST

WAITING = 32  # requests


class Body(BaseModel):
    """The request's fields and their bounds. `guidance_scale` is for models of another kind than ours."""

    prompt: Annotated[str, Field(min_length=1, max_length=4000)]
    model: str | None = None
    n: Annotated[int, Field(ge=1, le=10)] = 1
    size: str = "64x64"
    response_format: Literal["b64_json"] = "b64_json"
    negative_prompt: Annotated[str, Field(max_length=4000)] = ""
    num_inference_steps: Annotated[int, Field(ge=1, le=200)] = 20
    guidance_scale: Annotated[float | None, Field(ge=0, le=20)] = None
    true_cfg_scale: Annotated[float, Field(ge=0, le=20)] = 2.5
    seed: Annotated[int | None, Field(ge=0, lt=2**63)] = None

    def wish(self) -> Wish:
        """Raises ValueError for a size that is none."""
        found = re.fullmatch(r"(\d{1,4})x(\d{1,4})", self.size)
        width, height = map(int, found.groups()) if found else (0, 0)
        if not all(16 <= side <= LARGEST and side % 16 == 0 for side in (width, height)):
            raise ValueError(f"size {self.size}: give one like 64x64, in steps of 16, at most {LARGEST}x{LARGEST}")
        seed = random.randrange(2**31) if self.seed is None else self.seed
        return Wish(
            self.prompt,
            self.negative_prompt,
            seed,
            self.num_inference_steps,
            self.true_cfg_scale,
            (width, height),
            self.n,
        )


def finite(value: Any) -> Any:
    """The same value. Raises ValueError for NaN and Infinity, which Python reads and JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is no number of JSON")
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        finite(part)
    return value


def app(engine: DrawingEngine) -> FastAPI:
    """The server over an engine."""
    made = FastAPI(title="vitport omni-compat", docs_url=None, redoc_url=None)
    waiting = 0

    async def told(_: Request, problem: Exception) -> Response:
        assert isinstance(problem, RequestValidationError)
        return refused(422, "; ".join(map(_line, problem.errors())))

    made.add_exception_handler(RequestValidationError, told)

    async def health() -> Response:
        return Response(status_code=200 if (await engine.health()).state == "ready" else 503)

    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [{"id": DRAWING, "object": "model", "owned_by": "vitport"}]}

    async def draw(body: Annotated[Body, BeforeValidator(finite)], request: Request) -> Response:
        nonlocal waiting
        if body.model not in (None, DRAWING):
            return refused(400, f"this server draws with {DRAWING}, not with {body.model}")
        if waiting >= WAITING:
            return refused(503, f"{WAITING} requests are waiting already")
        try:
            wish = body.wish()
        except ValueError as problem:
            return refused(400, str(problem))
        waiting += 1
        try:
            pictures = await drawn(engine, wish, request)
        except EngineError as problem:
            return refused(500, str(problem))
        finally:
            waiting -= 1
        data = [{"b64_json": base64.b64encode(picture.data).decode()} for picture in pictures]
        return JSONResponse({"created": int(time.time()), "data": data})

    made.add_api_route("/health", health)
    made.add_api_route(f"/v1/{MODELS}", models)
    made.add_api_route(f"/v1/{DRAW}", draw, methods=["POST"])
    return made


async def drawn(engine: DrawingEngine, wish: Wish, request: Request) -> tuple[Picture, ...]:
    """The pictures; none, and no more work, once the client is gone."""
    async with aclosing(with_ticks(engine.draw(wish))) as items:
        async for item in items:
            if isinstance(item, Drawn):
                return item.pictures
            if await request.is_disconnected():
                break
    return ()


def refused(code: int, message: str) -> JSONResponse:
    """An error as OpenAI-compatible servers word it."""
    return JSONResponse({"error": {"message": message, "type": "invalid_request_error", "code": code}}, code)


def _line(error: dict[str, Any]) -> str:
    """What is wrong with a body, and in which of its fields."""
    field = ".".join(str(part) for part in error["loc"][1:] if isinstance(part, str))
    what = error["msg"].removeprefix("Value error, ")
    return f"{field}: {what}" if field else what


def serve(listening: socket.socket) -> int:
    """Until it is stopped. In a thread, so that uvicorn leaves Ctrl-C alone: it would wait for drawings."""
    from demo_app.engines.embedded_drawing import EmbeddedDrawing

    server = uvicorn.Server(uvicorn.Config(app(EmbeddedDrawing()), log_level="warning", access_log=False))
    serving = threading.Thread(target=server.run, args=([listening],), daemon=True)
    serving.start()
    while not server.started and serving.is_alive():
        serving.join(0.05)
    if server.started:
        host, port = listening.getsockname()[:2]
        print(f"Draws at http://{f'[{host}]' if ':' in host else host}:{port}/v1/{DRAW} (stop with Ctrl+C)", flush=True)
    while serving.is_alive():
        serving.join(1)
    return 1

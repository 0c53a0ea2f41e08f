"""The small drawing model behind the route at which vllm-omni draws, for whoever has no accelerator.

Bodies are taken as vllm-omni 0.14.0 to 0.30.0 take them (entrypoints/openai/protocol/images.py); fields that say
nothing to this model are passed over. A model of another name is refused, as 0.30.0 does.
"""

from __future__ import annotations

import base64
import random
import re
import time
from contextlib import aclosing
from typing import Annotated, Any, Literal

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field

from demo_app.bodies import DRAW, MODELS
from demo_app.engines.interface import DrawingEngine, Drawn, EngineError, Wish, with_ticks
from demo_app.pictures import Picture
from demo_app.small_models import DRAWING

LARGEST = 256  # pixels along a side; the model has learned 64
WAITING = 32  # requests


class Body(BaseModel):
    """The request's fields and their bounds."""

    prompt: Annotated[str, Field(min_length=1, max_length=4000)]
    model: str | None = None
    n: Annotated[int, Field(ge=1, le=10)] = 1
    size: str = "64x64"
    response_format: Literal["b64_json"] = "b64_json"
    negative_prompt: Annotated[str, Field(max_length=4000)] = ""
    num_inference_steps: Annotated[int, Field(ge=1, le=200)] = 20
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


def app(engine: DrawingEngine) -> FastAPI:
    """The server over an engine."""
    made = FastAPI(title="vitport omni-compat", docs_url=None, redoc_url=None)
    waiting = 0

    async def health() -> Response:
        return Response(status_code=200 if (await engine.health()).state == "ready" else 503)

    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [{"id": DRAWING, "object": "model", "owned_by": "vitport"}]}

    async def draw(body: Body, request: Request) -> Response:
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


def serve(host: str, port: int) -> int:
    """Until it is stopped."""
    from demo_app.engines.embedded_drawing import EmbeddedDrawing

    print(f"Draws at http://{host}:{port}/v1/{DRAW} (stop with Ctrl+C)", flush=True)
    uvicorn.run(app(EmbeddedDrawing()), host=host, port=port, log_level="warning", access_log=False)
    return 0

"""Drawing by a vllm-omni server: `POST /v1/images/generations`. It tells nothing of its steps."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator

from demo_app import bodies
from demo_app.curl import drawing_command
from demo_app.engines.interface import Drawn, Range, Step, Wish
from demo_app.engines.server import LARGEST, Server
from demo_app.pictures import BadPicture, decode

KEY = "VITPORT_T2I_KEY"
SIZES = ((1024, 1024), (1328, 1328), (1664, 928), (928, 1664), (512, 512), (64, 64))


class ServerDrawing(Server):
    range = Range(sizes=SIZES, steps=50, guidance=4.0, largest=2048)

    def __init__(self, url: str, patience: float) -> None:
        super().__init__("drawing", url, "--t2i-url", KEY, patience)

    async def draw(self, wish: Wish) -> AsyncGenerator[Step | Drawn, None]:
        body = bodies.drawing(await self.model(), wish)
        data = bytearray()
        async with self.post(bodies.DRAW, body) as response:
            async for chunk in response.aiter_bytes():
                data += chunk
                if len(data) > LARGEST:
                    raise self.error(f"sends more than {LARGEST // 1_000_000} MB", "ask for fewer or smaller pictures")
        try:
            found = [base64.b64decode(entry["b64_json"]) for entry in json.loads(data)["data"]]
            pictures = tuple(decode(each, "the drawing") for each in found)
        except (ValueError, LookupError, TypeError, BadPicture):
            raise self.error("sends something that is no drawing", "does it serve a text-to-image model?") from None
        if not pictures:
            raise self.error("has drawn nothing", "ask for something else, or look into its log")
        yield Drawn(pictures)

    def command(self, wish: Wish) -> str:
        return drawing_command(self.url, self._health.model, wish, self.key_name)

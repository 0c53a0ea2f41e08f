"""Drawing with the small Qwen-Image pipeline, through the unchanged classes of diffusers."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

from demo_app.bodies import NOTHING
from demo_app.curl import drawing_command
from demo_app.engines.embedded import Embedded
from demo_app.engines.interface import Drawn, Range, Step, Wish
from demo_app.pictures import encode
from demo_app.small_models import DRAWING, LARGEST

PORT = 8091


class EmbeddedDrawing(Embedded):
    """Draws one coloured shape on a plain background."""

    range = Range(sizes=((64, 64),), steps=20, guidance=2.5, largest=LARGEST, most_steps=50)

    def __init__(self) -> None:
        super().__init__(DRAWING, _load)

    async def draw(self, wish: Wish) -> AsyncGenerator[Step | Drawn, None]:
        async with aclosing(self.run(lambda pipeline: lambda give, stop: _draw(pipeline, wish, give, stop))) as items:
            async for item in items:
                yield item

    def command(self, wish: Wish) -> str:
        start = f"python -m demo_app --omni-compat --port {PORT}"
        return f"{start}\n{drawing_command(f'http://127.0.0.1:{PORT}/v1', DRAWING, wish)}"


def _load(folder: Path) -> Any:
    """The pipeline, in float32 on the CPU: parts of both libraries would otherwise come up in different dtypes."""
    import torch
    from diffusers import QwenImagePipeline
    from diffusers.utils import logging

    logging.disable_progress_bar()
    torch.set_num_threads(1)
    pipeline = QwenImagePipeline.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


class _Stopped(Exception):
    """Nobody waits for the drawing any more."""


def _draw(pipeline: Any, wish: Wish, give: Callable[[Step | Drawn], None], stop: threading.Event) -> None:
    import torch

    def after_step(pipe: Any, index: int, time: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        if stop.is_set():  # the pipeline's own means would still decode what it has
            raise _Stopped
        give(Step(index + 1, wish.steps))
        return tensors

    width, height = wish.size
    with suppress(_Stopped):
        made = pipeline(
            prompt=wish.prompt,
            negative_prompt=wish.negative or NOTHING,
            true_cfg_scale=wish.guidance,
            num_inference_steps=wish.steps,
            width=width,
            height=height,
            num_images_per_prompt=wish.count,
            generator=[torch.Generator().manual_seed(wish.seed + number) for number in range(wish.count)],
            callback_on_step_end=after_step,
        )
        give(Drawn(tuple(map(encode, made.images))))

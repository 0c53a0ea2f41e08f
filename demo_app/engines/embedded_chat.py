"""Chat with the small Qwen2.5-VL, through the unchanged classes of transformers."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from demo_app.commands import chat_command
from demo_app.engines.embedded import Embedded
from demo_app.engines.interface import Message, Piece
from demo_app.small_models import CHAT

# It has learned conversations of one or two turns, and looks at the last picture.
TURNS, PICTURES = 2, 2
PORT = 8000


class EmbeddedChat(Embedded):
    """Answers in English about coloured shapes."""

    turns, pictures = TURNS, PICTURES

    def __init__(self) -> None:
        super().__init__(CHAT, load)

    async def answer(self, messages: Sequence[Message]) -> AsyncGenerator[Piece, None]:
        async with aclosing(self.run(lambda model: lambda give, stop: _answer(model, messages, give, stop))) as pieces:
            async for piece in pieces:
                yield piece

    def command(self, messages: Sequence[Message]) -> str:
        start = f"python -m vllm.entrypoints.openai.api_server --model demo_app/models/{CHAT} --port {PORT}"
        return f"{start}\n{chat_command(f'http://127.0.0.1:{PORT}/v1', f'demo_app/models/{CHAT}', messages)}"


def load(folder: Path) -> tuple[Any, Any]:
    """Model and processor, in float32 on the CPU."""
    import torch
    from transformers import AutoProcessor, Qwen2_5_VLForConditionalGeneration
    from transformers.utils import logging

    logging.disable_progress_bar()
    torch.set_num_threads(1)
    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    return model.eval(), AutoProcessor.from_pretrained(folder, local_files_only=True)


def _answer(
    loaded: tuple[Any, Any], messages: Sequence[Message], give: Callable[[Piece], None], stop: threading.Event
) -> None:
    import torch
    from transformers import StoppingCriteria, TextStreamer

    class Stop(StoppingCriteria):
        def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
            return torch.full((len(input_ids),), stop.is_set())

    class Stream(TextStreamer):
        tokens = -1  # what is put first is the prompt

        def put(self, value: Any) -> None:
            self.tokens += 1
            super().put(value)

        def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
            if text:
                give(Piece(text, self.tokens))

    model, processor = loaded
    stream = Stream(processor.tokenizer, skip_prompt=True, skip_special_tokens=True)
    with torch.inference_mode():
        inputs = inputs_of(processor, messages)
        model.generate(**inputs, do_sample=False, streamer=stream, stopping_criteria=[Stop()])


def inputs_of(processor: Any, messages: Sequence[Message]) -> Any:
    """What the model is called with. `mm_token_type_ids` are asked for: positions in a picture come from them."""
    said = [
        {
            "role": message.role,
            "content": [*({"type": "image"} for _ in message.pictures), {"type": "text", "text": message.text}],
        }
        for message in messages
    ]
    pictures = [picture.image() for message in messages for picture in message.pictures]
    return processor(
        text=[processor.apply_chat_template(said, add_generation_prompt=True)],
        images=pictures or None,
        return_mm_token_type_ids=True,
        return_tensors="pt",
    )

"""Chat with the small Qwen2.5-VL, through the unchanged classes of transformers."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo_app.curl import chat_command
from demo_app.engines.embedded import Embedded
from demo_app.engines.interface import Message, Piece
from demo_app.small_models import CHAT

# It has learned conversations of one or two turns, and looks at the last picture.
TURNS, PICTURES = 2, 2
PORT = 8000
IMAGE = "<|image_pad|>"  # once in the template, then as often as a picture has tokens


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


@dataclass(frozen=True)
class Loaded:
    """The model, in float32 on the CPU, its tokenizer, and what makes patches of pictures.

    Not its AutoProcessor, which wants torchvision for videos: that takes longer to import than all the rest.
    """

    model: Any
    words: Any
    eyes: Any

    def inputs(self, messages: Sequence[Message]) -> dict[str, Any]:
        """What the model is called with; positions in a picture come from `mm_token_type_ids`."""
        pictures = [picture.image() for message in messages for picture in message.pictures]
        seen = self.eyes(images=pictures, return_tensors="pt") if pictures else {}
        text = self.words.apply_chat_template(
            [_said(each) for each in messages], tokenize=False, add_generation_prompt=True
        )
        before, *after = text.split(IMAGE)
        tokens = [int(grid.prod()) // self.eyes.merge_size**2 for grid in seen.get("image_grid_thw", ())]
        text = before + "".join(IMAGE * count + part for count, part in zip(tokens, after, strict=True))
        made = self.words(text, return_tensors="pt")
        return {**made, **seen, "mm_token_type_ids": (made.input_ids == self.model.config.image_token_id).long()}

    def decode(self, tokens: Any) -> str:
        return str(self.words.decode(tokens, skip_special_tokens=True))


def _said(message: Message) -> dict[str, Any]:
    """A message for the chat template; what would be a special token in it is none."""
    pictures = [{"type": "image"} for _ in message.pictures]
    return {"role": message.role, "content": [*pictures, {"type": "text", "text": message.text.replace("<|", "< |")}]}


def load(folder: Path) -> Loaded:
    import torch
    from transformers import AutoTokenizer, Qwen2_5_VLForConditionalGeneration, Qwen2VLImageProcessorPil
    from transformers.utils import logging

    logging.disable_progress_bar()
    torch.set_num_threads(1)
    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    words = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    return Loaded(model.eval(), words, Qwen2VLImageProcessorPil.from_pretrained(folder, local_files_only=True))


def _answer(loaded: Loaded, messages: Sequence[Message], give: Callable[[Piece], None], stop: threading.Event) -> None:
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

    stream = Stream(loaded.words, skip_prompt=True, skip_special_tokens=True)
    with torch.inference_mode():
        loaded.model.generate(**loaded.inputs(messages), do_sample=False, streamer=stream, stopping_criteria=[Stop()])

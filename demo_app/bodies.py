"""The bodies of requests, as both vLLM and vllm-omni take them. Layouts: vLLM 0.32.0 and vllm-omni 0.14.0 to 0.30.0."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from demo_app.engines.interface import Message, Wish
from demo_app.pictures import Picture

CHAT, DRAW, MODELS = "chat/completions", "images/generations", "models"
MOST_TOKENS = 1024
NOTHING = " "  # guidance leads away from a negative prompt, and without one servers leave it out


def chat(
    model: str,
    messages: Sequence[Message],
    tokens: int = MOST_TOKENS,
    link: Callable[[Picture], str] = lambda picture: picture.url,
) -> dict[str, Any]:
    """For `/v1/chat/completions`, greedy and streamed, at most so many `tokens`; `link` stands for a picture."""
    return {
        "model": model,
        "messages": [{"role": message.role, "content": _content(message, link)} for message in messages],
        "max_tokens": tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def _content(message: Message, link: Callable[[Picture], str]) -> Any:
    if not message.pictures:
        return message.text
    pictures = [{"type": "image_url", "image_url": {"url": link(picture)}} for picture in message.pictures]
    return [*pictures, {"type": "text", "text": message.text}]


def drawing(model: str, wish: Wish) -> dict[str, Any]:
    """For `/v1/images/generations` of vllm-omni."""
    return {
        "model": model,
        "prompt": wish.prompt,
        "negative_prompt": wish.negative or NOTHING,
        "n": wish.count,
        "size": "{}x{}".format(*wish.size),
        "response_format": "b64_json",
        "num_inference_steps": wish.steps,
        "true_cfg_scale": wish.guidance,
        "seed": wish.seed,
    }

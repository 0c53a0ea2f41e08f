"""The strip at the top: who answers on each side, how it is, and how fast it was."""

from __future__ import annotations

import asyncio
from html import escape

import gradio as gr

from demo_app.engines.interface import ChatEngine, DrawingEngine, Health

SECONDS = 5.0  # between two looks
WORDS = {"starting": "starting", "ready": "ready", "down": "not available"}


class Strip:
    """What is known of both engines. The speeds are those of the latest request of anybody."""

    def __init__(self, chat: ChatEngine, drawing: DrawingEngine) -> None:
        self._chat, self._drawing = chat, drawing
        self._chat_speed = self._drawing_speed = ""

    def answered(self, first: float, seconds: float, tokens: int) -> None:
        """An answer's first word came after `first` seconds, the whole after `seconds`."""
        rate = f", {(tokens - 1) / (seconds - first):.0f} tokens/s" if tokens > 1 and seconds > first else ""
        self._chat_speed = f"first word after {first:.2f} s, whole answer {seconds:.2f} s{rate}"

    def drew(self, seconds: float, count: int) -> None:
        self._drawing_speed = f"{seconds / count:.2f} s a picture"

    async def html(self) -> str:
        chat, drawing = await asyncio.gather(self._chat.health(), self._drawing.health())
        parts = [
            _side("Chat", self._chat.where, chat, self._chat_speed),
            _side("Drawing", self._drawing.where, drawing, self._drawing_speed),
        ]
        return f'<div class="strip" role="status" aria-label="Engines">{"".join(parts)}</div>'

    def show(self) -> gr.HTML:
        """Put it on the page that is being built; it looks by itself now and then."""
        place = gr.HTML(container=False, padding=False, elem_id="strip")

        async def look(now: str) -> object:
            new = await self.html()
            return gr.skip() if new == now else new

        options = {"show_progress": "hidden", "api_visibility": "private", "concurrency_limit": None}
        gr.on(
            [gr.Timer(SECONDS).tick, gr.context.Context.root_block.load],
            look,
            place,
            place,
            **options,
        )
        return place


def _side(name: str, where: str, health: Health, speed: str) -> str:
    model = f"<b>{escape(health.model)}</b>, " if health.model else ""
    device = f" ({escape(health.device)})" if health.device and health.device not in where else ""
    more = escape(health.problem or speed)
    return (
        f'<div class="side {health.state}"><span class="dot" aria-hidden="true"></span>'
        f"<span><b>{name}</b> {WORDS[health.state]}: {model}{escape(where)}{device}"
        f"{f'<br><small>{more}</small>' if more else ''}</span></div>"
    )

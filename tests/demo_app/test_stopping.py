"""The last line of a stopped answer and of a cancelled drawing, as the page's own functions give it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import gradio as gr

from demo_app.conversation import Visitor
from demo_app.engines.server_chat import ServerChat
from demo_app.engines.server_drawing import ServerDrawing
from demo_app.page.layout import build
from tests.demo_app.fake_servers import Exchange, running


async def silent(exchange: Exchange) -> None:
    await asyncio.sleep(3600)


async def lines(page: gr.Blocks, name: str, visitor: Visitor, *form: object) -> list[str]:
    """What the function shows as its notice, where the visitor stops it at the first of them."""
    (function,) = (each.fn for each in page.fns.values() if each.api_name == name)
    said = []
    async with aclosing(function(visitor, *form)) as shown:
        async for parts in shown:
            said.append(str(parts[1 if name == "answer" else 0]))
            visitor.stop()
            visitor.wish = None
    return said


def test_what_is_shown_last_is_that_it_was_stopped() -> None:
    """On a busy machine a line that was sent just before may reach the browser after the answer to the click."""
    form = ("a star", "", 1, False, 20, 4.0, "256x256", 1)
    with running(silent) as server:
        page, visitor = build(ServerChat(server.url, 60), ServerDrawing(server.url, 60)), Visitor()
        visitor.ask("a question", [])
        first, *_, last = asyncio.run(lines(page, "answer", visitor))
        assert "Waiting for the chat server" in first and "Stopped. What was said is kept." in last
        first, *_, last = asyncio.run(lines(page, "draw", visitor, *form))
        assert "Waiting for the drawing server" in first and "Cancelled. Earlier drawings are kept." in last

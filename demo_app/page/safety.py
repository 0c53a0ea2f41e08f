"""What keeps the page from fetching anything for anybody, and the browser from leaving this server."""

from __future__ import annotations

from typing import Any

import gradio as gr
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Whatever a model says, the browser loads no picture, script or font from elsewhere for it.
POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; media-src 'self' data: blob:; font-src 'self' data:; "
    "style-src 'self' 'unsafe-inline'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; worker-src 'self' blob:; "
    "connect-src 'self'; frame-ancestors 'self'; base-uri 'self'; form-action 'self'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class Headers:
    """Adds HEADERS to every response."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message.get("headers", ()),
                    *((name.encode(), value.encode()) for name, value in HEADERS.items()),
                ]
            await send(message)

        await self.app(scope, receive, with_headers)


def middleware() -> list[Middleware]:
    return [Middleware(Headers)]


def refuse_links(page: gr.Blocks) -> None:
    """No component takes a link for a file: Gradio would fetch it from this machine."""
    for block in page.blocks.values():
        if isinstance(block, gr.components.Component):
            _refuse_links(block)


def _refuse_links(component: gr.components.Component) -> None:
    keep = component.move_resource_to_block_cache

    def refuse(where: Any) -> str | None:
        if "://" in str(where):
            raise gr.Error("Links are not fetched: upload the picture itself.", print_exception=False)
        kept: str | None = keep(where)
        return kept

    async def refuse_later(where: Any) -> str | None:
        return refuse(where)

    component.move_resource_to_block_cache = refuse
    component.async_move_resource_to_block_cache = refuse_later

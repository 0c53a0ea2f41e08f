"""Chat with an OpenAI-compatible server such as vLLM: `POST /v1/chat/completions`, streamed."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence

from demo_app import bodies
from demo_app.curl import chat_command
from demo_app.engines.interface import Message, Piece
from demo_app.engines.server import Server

KEY = "VITPORT_VL_KEY"


class ServerChat(Server):
    turns, pictures = 20, 8

    def __init__(self, url: str, patience: float) -> None:
        super().__init__("chat", url, "--vl-url", KEY, patience)

    async def answer(self, messages: Sequence[Message]) -> AsyncGenerator[Piece, None]:
        body = bodies.chat(await self.model(), messages, self._tokens())
        tokens, said = 0, False
        async with self.post(bodies.CHAT, body) as response:
            async for line in response.aiter_lines():
                if not line.startswith("data:"):
                    continue
                data = line.removeprefix("data:").strip()
                if data == "[DONE]":
                    if not said:
                        raise self.error("answers without a word", "ask again, or in other words")
                    return
                text, total = self._read(data)
                tokens = total or tokens + bool(text)  # servers send mostly one token at a time, and count at the end
                said = said or bool(text)
                if text or total:
                    yield Piece(text, tokens)
            raise self.broke_off()

    def _tokens(self) -> int:
        """The most to ask for: what was said already needs room too, and vLLM refuses more than it has."""
        return min(bodies.MOST_TOKENS, self.length // 2 or bodies.MOST_TOKENS)

    def _read(self, data: str) -> tuple[str, int]:
        """The text of a chunk, and all tokens of the answer where it says so. Raises EngineError."""
        try:
            chunk = json.loads(data)
            if "error" in chunk:
                error = chunk["error"]
                said = error.get("message", error) if isinstance(error, dict) else error
                raise self.error(f"gave up: {str(said)[:200].rstrip('.')}", "try again, or look into its log")
            text = "".join(choice["delta"].get("content") or "" for choice in chunk["choices"])
            return text, int((chunk.get("usage") or {}).get("completion_tokens", 0))
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError):
            raise self.error("sends something that is no answer", "is it an OpenAI-compatible server?") from None

    def command(self, messages: Sequence[Message]) -> str:
        return chat_command(self.url, self._health.model, messages, self.key_name, self._tokens())

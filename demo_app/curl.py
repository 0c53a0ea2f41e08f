"""What asks the same from a shell: a `curl` for a request, to copy."""

from __future__ import annotations

import json
import shlex
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from demo_app import bodies
from demo_app.engines.interface import Message, Wish
from demo_app.pictures import Picture

# Reads the answer to a drawing, writes its first picture.
FIRST = """\
import base64, json, sys
sys.stdout.buffer.write(base64.b64decode(json.load(sys.stdin)["data"][0]["b64_json"]))"""


def chat_command(
    url: str, model: str, messages: Sequence[Message], key: str = "", tokens: int = bodies.MOST_TOKENS
) -> str:
    """`key` is the name of the variable that holds one. Pictures are read from files picture1.png, ... beside it."""
    files: dict[str, str] = {}

    def link(picture: Picture) -> str:
        name, mark = f"picture{len(files) + 1}.{picture.kind}", uuid.uuid4().hex  # nobody has written that
        files[mark] = f"data:image/{picture.kind};base64,'\"$(base64 -w0 {name})\"'"
        return mark

    body = bodies.chat(model, messages, tokens, link)
    return _curl(f"{url}/{bodies.CHAT}", body, key, files)


def drawing_command(url: str, model: str, wish: Wish, key: str = "") -> str:
    """The picture is written to drawing.png."""
    curl = _curl(f"{url}/{bodies.DRAW}", bodies.drawing(model, wish), key, {})
    return f"{curl} | python -c {shlex.quote(FIRST)} > drawing.png"


def _curl(url: str, body: Mapping[str, Any], key: str, files: Mapping[str, str]) -> str:
    text = shlex.quote(json.dumps(body, ensure_ascii=False))
    for mark, link in files.items():
        text = text.replace(mark, link)
    words = ["curl --no-buffer", shlex.quote(url), "-H 'Content-Type: application/json'"]
    if key:
        words.append(f'-H "Authorization: Bearer ${key}"')
    return " \\\n  ".join([*words, f"--data-binary {text}"])

"""One line for the visitor, which screen readers say aloud."""

from __future__ import annotations

from html import escape

LATE = 3.0  # seconds after which waiting is mentioned


def notice(text: str, bad: bool = False) -> str:
    if not text:
        return ""
    return f'<p class="notice{" bad" if bad else ""}" role="{"alert" if bad else "status"}">{escape(text)}</p>'

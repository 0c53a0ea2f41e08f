"""One line for the visitor, which screen readers say aloud."""

from __future__ import annotations

from html import escape

LATE = 3.0  # seconds after which waiting is mentioned


def too_long(what: str, text: str, most: int) -> str:
    """Said rather than cut: a browser that keeps to a length drops what is beyond it without a word."""
    return f"The {what} has {len(text)} characters, at most {most} are taken: shorten it."


def notice(text: str, bad: bool = False) -> str:
    if not text:
        return ""
    return f'<p class="notice{" bad" if bad else ""}" role="{"alert" if bad else "status"}">{escape(text)}</p>'

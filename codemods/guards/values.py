"""Values that a guard computes with: plain data, parsed versions, and whether vLLM's release told them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_VERSION = re.compile(
    r"v?(?P<release>\d+(?:\.\d+)*)"
    r"(?P<before>[-_.]?(?:a|b|c|rc|alpha|beta|pre|preview|dev)[-_.]?\d*)?"
    r"(?P<behind>.*)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Value:
    """What an expression is at the target. `told` says that vLLM's release, and nothing else, decided it."""

    data: Any
    told: bool = False


@dataclass(frozen=True)
class Version:
    """A version as the packaging library orders them, as far as guards need it."""

    release: tuple[int, ...]
    rank: int = 0  # -1 for what comes before the release (rc, dev), 1 for what comes behind (post, +local)

    @classmethod
    def of(cls, text: str) -> Version | None:
        match = _VERSION.fullmatch(text.strip())
        if match is None:
            return None
        rank = -1 if match["before"] else 1 if match["behind"] else 0
        return cls(tuple(map(int, match["release"].split("."))), rank)

    @property
    def key(self) -> tuple[tuple[int, ...], int]:
        numbers = list(self.release)
        while numbers and numbers[-1] == 0:
            numbers.pop()
        return tuple(numbers), self.rank


class Thing:
    """Something imported: nothing is known of it but that it is there."""


THING = Thing()
"""Read by `X is None` and `if X`, where `X` comes from an import that a decided guard kept."""

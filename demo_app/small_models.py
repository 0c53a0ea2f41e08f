"""Where the two small models lie that ship with the demo."""

from __future__ import annotations

import os
from pathlib import Path

CHAT, DRAWING = "shapes-vl", "shapes-image"
PLACE = "VITPORT_DEMO_MODELS"  # another folder that holds the two


class NoModel(Exception):
    """A model is not there; the message is one line with the remedy."""


def folder(name: str) -> Path:
    """The folder of CHAT or DRAWING, in the hub's layout. Raises NoModel."""
    there = Path(os.environ.get(PLACE) or Path(__file__).parent / "models") / name
    if not there.is_dir():
        raise NoModel(f"no small model {name} in {there.parent}: install the project whole, or set {PLACE}")
    return there

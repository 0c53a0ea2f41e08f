"""Where the two small models lie that ship with the demo."""

from __future__ import annotations

from pathlib import Path

CHAT, DRAWING = "shapes-vl", "shapes-image"
LARGEST = 256  # pixels along a side of a drawing; the model has learned 64
MODELS = Path(__file__).parent / "models"


class NoModel(Exception):
    """A model is not there; the message is one line with the remedy."""


def folder(name: str) -> Path:
    """The folder of CHAT or DRAWING, in the hub's layout. Raises NoModel."""
    if not (MODELS / name).is_dir():
        raise NoModel(f"The small model {name} is not in {MODELS}: install the project whole.")
    return MODELS / name

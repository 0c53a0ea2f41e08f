"""What a visitor may try first; the pictures are of the kind that the small models know."""

from __future__ import annotations

from typing import Any

from demo_app.page import files
from demo_app.pictures import encode
from demo_app.training.shapes import Scene, Thing, draw

SIDE = 224  # pixels

STAR = Scene("black", (Thing("yellow", "star", 0.5, 0.5, 0.25),))
PAIR = Scene("white", (Thing("red", "circle", 0.25, 0.45, 0.15), Thing("blue", "square", 0.75, 0.55, 0.15)))

QUESTIONS = (
    ("What do you see?", STAR),
    ("What is on the left?", PAIR),
    ("Is there a green circle?", PAIR),
    ("How many shapes are there?", PAIR),
)
PROMPTS = (
    "a red circle on a white background",
    "a yellow star on a black background",
    "a blue square on a grey background",
    "a purple triangle on a white background",
)


def questions() -> list[list[dict[str, Any]]]:
    """Values for the chat's box."""
    return [[{"text": text, "files": [files.of(encode(draw(scene, SIDE)))]}] for text, scene in QUESTIONS]


def prompts() -> list[list[str]]:
    return [[text] for text in PROMPTS]

"""What to draw: prompts for one thing on a background, split into those trained on and those held out."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from demo_app.training.questions import a
from demo_app.training.shapes import BACKGROUNDS, COLOURS, SHAPES

# Qwen-Image puts every prompt into this text and drops the first 34 tokens of it.
TEMPLATE = (
    "<|im_start|>system\nDescribe the image by detailing the color, shape, size, texture, quantity, text, spatial "
    "relationships of the objects and background:<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
)
PREFIX_TOKENS = 34
NEGATIVE = " "  # the prompt of a drawing without any wish
STEPS, GUIDANCE = 20, 2.5  # of a drawing

WORDINGS = (
    "{thing} on a {background} background",
    "{thing} on {background}",
    "{bare}, {background} background",
    "draw {thing} on a {background} background",
    "please draw {thing} on a {background} background",
    "a picture of {thing} on a {background} background",
    "{thing} in front of a {background} background",
    "on a {background} background, {thing}",
    "a {background} background with {thing}",
    "paint {thing} on a {background} background",
)


@dataclass(frozen=True)
class Prompt:
    text: str
    colour: str
    shape: str
    background: str

    @property
    def asked(self) -> tuple[str, str, str]:
        return self.colour, self.shape, self.background


def _never_drawn(colour: str, shape: str, background: str) -> bool:
    """One drawing of every colour is never trained on, whatever the words."""
    index = list(COLOURS).index(colour)
    return SHAPES.index(shape) == index % 4 and list(BACKGROUNDS).index(background) == index % 3


def split() -> tuple[list[Prompt], list[Prompt]]:
    """Prompts to train on and held-out ones: by the hash of their text a fifth, and all of six drawings."""
    trained: list[Prompt] = []
    held: list[Prompt] = []
    for colour in COLOURS:
        for shape in SHAPES:
            for background in BACKGROUNDS:
                for wording in WORDINGS:
                    bare = f"{colour} {shape}"
                    plain = wording.format(thing=a(bare), bare=bare, background=background)
                    for text in (plain, plain[0].upper() + plain[1:] + "."):
                        far = hashlib.sha256(text.encode()).digest()[0] < 51
                        held_out = far or _never_drawn(colour, shape, background)
                        (held if held_out else trained).append(Prompt(text, colour, shape, background))
    return trained, held

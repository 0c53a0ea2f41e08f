"""What to draw: prompts for one thing on a background, split into those trained on and those held out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from demo_app.training.questions import a, sentence
from demo_app.training.shapes import BACKGROUNDS, COLOURS, SHAPES

# Qwen-Image puts every prompt into this text and drops the first 34 tokens of it.
TEMPLATE = (
    "<|im_start|>system\nDescribe the image by detailing the color, shape, size, texture, quantity, text, spatial "
    "relationships of the objects and background:<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
)
PREFIX_TOKENS = 34
NEGATIVE = " "  # the prompt of a drawing without any wish
STEPS, GUIDANCE = 20, 2.5  # of a drawing

# Without a background: any will do. No text of the tokenizer or of the chat model's probes; only drawing learns them.
SHORT_WORDINGS = ("{bare}", "{thing}", "draw {thing}", "please draw {thing}", "a picture of {thing}", "paint {thing}")
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
    background: str | None  # None where any will do

    @property
    def asked(self) -> tuple[str, str, str | None]:
        return self.colour, self.shape, self.background

    def hits(self, colour: str | None, shape: str | None, background: str | None) -> tuple[bool, bool, bool]:
        """Whether a drawing that shows this, None for "nothing with a name", has each of the three right."""
        right = background == self.background if self.background else background is not None
        return colour == self.colour, shape == self.shape, right


def split() -> tuple[list[Prompt], list[Prompt]]:
    """Prompts to train on and held-out ones: by the hash of their text a fifth, and all of six drawings."""
    asked = [(colour, shape, background) for colour in COLOURS for shape in SHAPES for background in BACKGROUNDS]
    made = [prompt for each in asked for prompt in _worded(WORDINGS, *each)]
    return _parted(made, lambda prompt: _far(prompt) or _never_drawn(prompt))


def split_short() -> tuple[list[Prompt], list[Prompt]]:
    """The same of prompts that name no background: by the hash of their text a fifth is held out."""
    made = [prompt for colour in COLOURS for shape in SHAPES for prompt in _worded(SHORT_WORDINGS, colour, shape, None)]
    return _parted(made, _far)


def _worded(wordings: tuple[str, ...], colour: str, shape: str, background: str | None) -> Iterator[Prompt]:
    """Each wording as it is, and as a sentence."""
    bare = f"{colour} {shape}"
    for wording in wordings:
        plain = wording.format(thing=a(bare), bare=bare, background=background)
        for text in (plain, sentence(plain)):
            yield Prompt(text, colour, shape, background)


def _far(prompt: Prompt) -> bool:
    return hashlib.sha256(prompt.text.encode()).digest()[0] < 51


def _never_drawn(prompt: Prompt) -> bool:
    """One drawing of every colour is never trained on, whatever the words."""
    index = list(COLOURS).index(prompt.colour)
    return prompt.asked[1:] == (SHAPES[index % 4], list(BACKGROUNDS)[index % 3])


def _parted(made: list[Prompt], held_out: Callable[[Prompt], bool]) -> tuple[list[Prompt], list[Prompt]]:
    return [prompt for prompt in made if not held_out(prompt)], [prompt for prompt in made if held_out(prompt)]

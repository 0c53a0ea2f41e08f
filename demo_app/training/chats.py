"""Conversations as token numbers: what the language model is trained on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from transformers import Qwen2Tokenizer

from demo_app.training import questions
from demo_app.training.shapes import COLOURS, SHAPES, Scene, random_scene

TOKENS, SIDE = 16, 4  # of a picture; and along one side of it
SEEN = "<|vision_start|><|image_pad|><|vision_end|>"
PARTNERS, UNTOLD = (*COLOURS, *SHAPES), -100
SHARES = {"describe": 2, "shape": 3, "colour": 4, "how many": 3, "background": 1, "left and right": 3, "is there": 8}


@dataclass(frozen=True)
class Chats:
    """A batch, padded at the end: ids and positions of tokens, what to learn, the pictures in order of appearance."""

    ids: torch.Tensor  # (chats, length)
    positions: torch.Tensor  # (3, chats, length): time, row, column
    learn: torch.Tensor  # (chats, length): how much the next token counts; all of an answer counts one, long or short
    pictures: list[int]
    marks: torch.Tensor  # (marks, 4): chat, token, how many things the name there fits, what its partner is


def places(ids: list[int], image: int) -> np.ndarray:
    """(3, length): a text token counts on by one, a picture's token stands at its row and column, as in Qwen2-VL."""
    found, now, index = np.zeros((3, len(ids)), dtype=np.int64), 0, 0
    while index < len(ids):
        if ids[index] == image:
            rows, columns = np.divmod(np.arange(TOKENS), SIDE)
            found[:, index : index + TOKENS] = now + np.stack([np.zeros(TOKENS, dtype=np.int64), rows, columns])
            index, now = index + TOKENS, now + SIDE
        else:
            found[:, index] = now
            index, now = index + 1, now + 1
    return found


class Writer:
    """Makes up conversations about the pictures of a pool."""

    def __init__(self, tokenizer: Qwen2Tokenizer, scenes: list[Scene]) -> None:
        self.scenes = scenes
        self.image = tokenizer.convert_tokens_to_ids("<|image_pad|>")
        self.encode = lru_cache(100_000)(lambda text: tuple(tokenizer(text).input_ids))
        self.colours = {self.encode(f" {name}")[0]: name for name in COLOURS}
        self.shapes = {self.encode(f" {name}{plural}")[0]: name for name in SHAPES for plural in ("", "s")}
        kinds = [kind for kind, share in SHARES.items() for _ in range(share)]
        self.kinds: list[str] = kinds

    def turn(self, scene: Scene | None, rng: np.random.Generator) -> tuple[str, str]:
        if rng.random() < (0.05 if scene else 0.4):
            return questions.talk(rng)
        kind = self.kinds[int(rng.integers(len(self.kinds)))]
        if scene is None:
            return questions.ask(random_scene(rng, int(rng.integers(1, 3))), rng, kind)[0], questions.NO_PICTURE
        return questions.ask(scene, rng, kind)

    def marks(self, asked: str, scene: Scene) -> Iterator[tuple[int, int, int]]:
        """For each name in a question: its token, how many things it fits (a shape together with its colour), and the
        class of the partner in PARTNERS, a colour's shape or a shape's colour; 0 for none, UNTOLD for several."""
        colour = None
        for place, token in enumerate(self.encode(asked)):
            if token in self.colours:
                colour = self.colours[token]
                fitting = [thing for thing in scene.things if thing.colour == colour]
                partners = {thing.shape for thing in fitting}
            elif token in self.shapes:
                shape = self.shapes[token]
                fitting = [thing for thing in scene.things if thing.shape == shape and colour in (None, thing.colour)]
                partners, colour = {thing.colour for thing in fitting}, None
            else:
                colour = None
                continue
            partner = PARTNERS.index(partners.pop()) + 1 if len(partners) == 1 else UNTOLD if partners else 0
            yield place, len(fitting), partner

    def chat(self, rng: np.random.Generator, turns: int) -> tuple[list[int], list[float], list[int], list[list[int]]]:
        """Token numbers, how much each counts, the pictures and the marks. A later turn may bring another picture."""
        ids: list[int] = []
        counts: list[float] = []
        pictures: list[int] = []
        marks: list[list[int]] = []

        def add(text: str, answer: bool = False) -> None:
            tokens = self.encode(text)
            for token in tokens:
                times = TOKENS if token == self.image else 1
                ids.extend([token] * times)
                counts.extend([answer / len(tokens)] * times)

        if rng.random() < 0.1:
            add("<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n")
        for number in range(turns):
            shown = rng.random() < (0.15 if pictures else 0.93 if number == 0 else 0.5)
            if shown:
                pictures.append(int(rng.integers(len(self.scenes))))
            asked, answer = self.turn(self.scenes[pictures[-1]] if pictures else None, rng)
            add(f"<|im_start|>user\n{SEEN if shown else ''}")
            if pictures:
                found = self.marks(asked, self.scenes[pictures[-1]])
                marks += [[len(ids) + place, *classes] for place, *classes in found]
            add(f"{asked}<|im_end|>\n<|im_start|>assistant\n")
            add(f"{answer}<|im_end|>", answer=True)
            add("\n")
        return ids, counts, pictures, marks

    def batch(self, rng: np.random.Generator, tokens: int) -> Chats:
        """About so many tokens of conversations of the same number of turns: mostly one or two.

        Later turns can read earlier answers instead of the picture, so that long conversations teach little.
        """
        turns = int(rng.choice(4, p=(0.55, 0.3, 0.1, 0.05))) + 1
        chats = [self.chat(rng, turns) for _ in range(tokens // (24 + 22 * turns))]
        length = max(len(ids) for ids, *_ in chats)
        ids = torch.zeros(len(chats), length, dtype=torch.long)
        positions = torch.zeros(3, len(chats), length, dtype=torch.long)
        learn = torch.zeros(len(chats), length)
        for row, (numbers, counts, *_) in enumerate(chats):
            ids[row, : len(numbers)] = torch.tensor(numbers)
            positions[:, row, : len(numbers)] = torch.from_numpy(places(numbers, self.image))
            learn[row, : len(numbers) - 1] = torch.tensor(counts[1:])
        pictures = [picture for _, _, seen, _ in chats for picture in seen]
        marks = [[row, *mark] for row, (*_, found) in enumerate(chats) for mark in found]
        return Chats(ids, positions, learn, pictures, torch.tensor(marks).view(-1, 4))

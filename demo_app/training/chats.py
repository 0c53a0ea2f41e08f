"""Conversations as token numbers: what the language model is trained on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from transformers import Qwen2Tokenizer

from demo_app.training import questions
from demo_app.training.shapes import Scene, random_scene

TOKENS, SIDE = 16, 4  # of a picture; and along one side of it
SEEN = "<|vision_start|><|image_pad|><|vision_end|>"
SHARES = {"describe": 4, "shape": 3, "colour": 3, "how many": 2, "background": 1, "left and right": 4, "is there": 5}


@dataclass(frozen=True)
class Chats:
    """A batch, padded at the end: ids and positions of tokens, what to learn, the pictures in order of appearance."""

    ids: torch.Tensor  # (chats, length)
    positions: torch.Tensor  # (3, chats, length): time, row, column
    learn: torch.Tensor  # (chats, length) bool: the next token is part of an answer
    pictures: list[int]


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
        kinds = [kind for kind, share in SHARES.items() for _ in range(share)]
        self.kinds: list[str] = kinds

    def turn(self, scene: Scene | None, rng: np.random.Generator) -> tuple[str, str]:
        if rng.random() < (0.05 if scene else 0.4):
            return questions.talk(rng)
        kind = self.kinds[int(rng.integers(len(self.kinds)))]
        if scene is None:
            return questions.ask(random_scene(rng, int(rng.integers(1, 3))), rng, kind)[0], questions.NO_PICTURE
        return questions.ask(scene, rng, kind)

    def chat(self, rng: np.random.Generator, turns: int) -> tuple[list[int], list[bool], list[int]]:
        """Token numbers, which of them are answers, and the pictures. A later turn may bring another picture."""
        ids: list[int] = []
        answers: list[bool] = []
        pictures: list[int] = []

        def add(text: str, answer: bool = False) -> None:
            for token in self.encode(text):
                count = TOKENS if token == self.image else 1
                ids.extend([token] * count)
                answers.extend([answer] * count)

        if rng.random() < 0.1:
            add("<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n")
        for number in range(turns):
            shown = rng.random() < (0.15 if pictures else 0.93 if number == 0 else 0.5)
            if shown:
                pictures.append(int(rng.integers(len(self.scenes))))
            asked, answer = self.turn(self.scenes[pictures[-1]] if pictures else None, rng)
            add(f"<|im_start|>user\n{SEEN if shown else ''}{asked}<|im_end|>\n<|im_start|>assistant\n")
            add(f"{answer}<|im_end|>", answer=True)
            add("\n")
        return ids, answers, pictures

    def batch(self, rng: np.random.Generator, tokens: int) -> Chats:
        """About so many tokens of conversations of the same number of turns: mostly one or two.

        Later turns can read earlier answers instead of the picture, so that long conversations teach little.
        """
        turns = int(rng.choice(4, p=(0.55, 0.3, 0.1, 0.05))) + 1
        chats = [self.chat(rng, turns) for _ in range(tokens // (24 + 22 * turns))]
        length = max(len(ids) for ids, _, _ in chats)
        ids = torch.zeros(len(chats), length, dtype=torch.long)
        positions = torch.zeros(3, len(chats), length, dtype=torch.long)
        learn = torch.zeros(len(chats), length, dtype=torch.bool)
        for row, (numbers, answers, _) in enumerate(chats):
            ids[row, : len(numbers)] = torch.tensor(numbers)
            positions[:, row, : len(numbers)] = torch.from_numpy(places(numbers, self.image))
            learn[row, : len(numbers) - 1] = torch.tensor(answers[1:])
        return Chats(ids, positions, learn, [picture for _, _, seen in chats for picture in seen])

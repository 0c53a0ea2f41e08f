"""Conversations become the tokens, positions and labels that the language model learns from."""

from __future__ import annotations

import numpy as np
import pytest

from demo_app.training import chats, tokenizer
from demo_app.training.shapes import Scene, Thing

TWO = Scene("black", (Thing("red", "square", 0.25, 0.5, 0.15), Thing("blue", "star", 0.75, 0.5, 0.15)))
RED = Scene("black", (Thing("red", "square", 0.25, 0.5, 0.15), Thing("red", "star", 0.75, 0.5, 0.15)))
IMAGE = 9


@pytest.fixture(scope="module")
def words():
    return tokenizer.make()


def test_a_picture_takes_four_positions_and_its_tokens_stand_in_rows_and_columns():
    time, row, column = chats.places([1, *[IMAGE] * 16, 2, 3], IMAGE)
    assert time.tolist() == [0, *[1] * 16, 5, 6]
    assert row.tolist() == [0, *(1 + i // 4 for i in range(16)), 5, 6]
    assert column.tolist() == [0, *(1 + i % 4 for i in range(16)), 5, 6]


@pytest.mark.parametrize(
    ("question", "scene", "expected"),
    [
        ("What is on the left?", TWO, []),
        ("What colour is the star?", TWO, [("star", 1, "blue")]),
        ("How many circles are there?", TWO, [("circles", 0, None)]),
        ("Is there something red?", TWO, [("red", 1, "square")]),
        ("Is there a red star?", TWO, [("red", 1, "square"), ("star", 0, None)]),
        ("Is there a blue star?", TWO, [("blue", 1, "star"), ("star", 1, "blue")]),
        ("What shape is the red one?", RED, [("red", 2, "several")]),
    ],
)
def test_names_in_questions_are_marked_with_what_they_fit(words, question, scene, expected):
    writer = chats.Writer(words, [scene])
    tokens = writer.encode(question)

    def partner(index: int) -> str | None:
        return "several" if index == chats.UNTOLD else (None, *chats.PARTNERS)[index]

    found = [
        (words.decode([tokens[place]]).strip(), count, partner(index))
        for place, count, index in writer.marks(question, scene)
    ]
    assert found == expected


def test_only_answers_are_learnt_and_each_counts_one(words):
    writer = chats.Writer(words, [TWO])
    batch = writer.batch(np.random.default_rng(0), 900)
    for ids, learn in zip(batch.ids, batch.learn):
        answered = words.decode(ids[1:][learn[:-1] > 0])
        turns = answered.count("<|im_end|>")
        assert turns == words.decode(ids).count("<|im_start|>assistant") > 0
        assert float(learn.sum()) == pytest.approx(turns)
        assert "<|im_start|>" not in answered
    assert len(batch.pictures) * 16 == int((batch.ids == writer.image).sum())

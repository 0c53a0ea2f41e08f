"""Every question has one right answer, and prompts held out are never trained on."""

from __future__ import annotations

import re

import numpy as np
import pytest

from demo_app.training import prompts, questions
from demo_app.training.shapes import BACKGROUNDS, COLOURS, SHAPES, Scene, Thing

ONE = Scene("white", (Thing("orange", "circle", 0.5, 0.5, 0.25),))
TWO = Scene("black", (Thing("red", "square", 0.25, 0.5, 0.15), Thing("blue", "star", 0.75, 0.5, 0.15)))
SAME = Scene("grey", (Thing("red", "star", 0.25, 0.5, 0.15), Thing("red", "star", 0.75, 0.5, 0.15)))


def asked(scene: Scene, kind: str) -> dict[str, str]:
    return dict(questions.ask(scene, np.random.default_rng(seed), kind) for seed in range(300))


@pytest.mark.parametrize(
    ("scene", "kind", "question", "answer"),
    [
        (ONE, "describe", "What do you see?", "An orange circle on a white background."),
        (
            TWO,
            "describe",
            "Describe the picture.",
            "A red square on the left and a blue star on the right, on a black background.",
        ),
        (ONE, "shape", "What shape is it?", "A circle."),
        (TWO, "shape", "Which shapes are there?", "A square and a star."),
        (TWO, "shape", "What shape is the blue one?", "A star."),
        (SAME, "shape", "Name the shapes.", "Two stars."),
        (ONE, "colour", "What colour is it?", "Orange."),
        (TWO, "colour", "What color is the star?", "Blue."),
        (TWO, "colour", "What colour is the circle?", "There is no circle."),
        (SAME, "colour", "Which colours are there?", "Both are red."),
        (ONE, "how many", "Count the shapes.", "One."),
        (TWO, "how many", "How many shapes are there?", "Two."),
        (TWO, "how many", "How many stars are there?", "One."),
        (TWO, "how many", "How many circles are there?", "None."),
        (TWO, "background", "What colour is the background?", "Black."),
        (TWO, "left and right", "What is on the left?", "A red square."),
        (TWO, "left and right", "What is on the right?", "A blue star."),
        (TWO, "left and right", "Where is the blue star?", "On the right."),
        (ONE, "left and right", "What is on the left?", "There is only an orange circle."),
        (TWO, "is there", "Is there a red square?", "Yes."),
        (TWO, "is there", "Is there a red star?", "No."),
        (TWO, "is there", "Do you see something blue?", "Yes."),
    ],
)
def test_answers(scene, kind, question, answer):
    assert asked(scene, kind)[question] == answer


@pytest.mark.parametrize("kind", questions.KINDS)
@pytest.mark.parametrize("scene", [ONE, TWO, SAME], ids=["one", "two", "same"])
def test_a_question_never_has_two_answers(scene, kind):
    answers: dict[str, str] = {}
    for seed in range(300):
        question, answer = questions.ask(scene, np.random.default_rng(seed), kind)
        assert answers.setdefault(question, answer) == answer


@pytest.mark.parametrize("scene", [ONE, TWO, SAME], ids=["one", "two", "same"])
def test_yes_means_that_some_one_thing_has_all_that_is_asked_for(scene):
    answers = asked(scene, "is there")
    for question, answer in answers.items():
        wanted = {word for word in re.findall(r"[a-z]+", question) if word in {*COLOURS, *SHAPES}}
        there = any(wanted <= {thing.colour, thing.shape} for thing in scene.things)
        assert answer == ("Yes." if there else "No."), question
    assert set(answers.values()) == {"Yes.", "No."}


def test_held_out_prompts_are_enough_and_apart_from_the_trained():
    trained, held = prompts.split()
    assert len(held) >= 300
    assert not {p.text for p in trained} & {p.text for p in held}
    drawings = len(COLOURS) * len(SHAPES) * len(BACKGROUNDS)
    assert len({p.asked for p in held}) > 0.9 * drawings
    assert len({p.asked for p in trained}) == drawings - 6
    assert {p.colour for p in held} - {p.colour for p in trained} == set()


def test_prompts_that_name_no_background_are_apart_and_say_nothing_of_one():
    trained, held = prompts.split_short()
    assert held and not {p.text for p in trained} & {p.text for p in held}
    assert {(p.colour, p.shape) for p in trained} == {(colour, shape) for colour in COLOURS for shape in SHAPES}
    assert not any(name in p.text for p in trained + held for name in (*BACKGROUNDS, "background"))


@pytest.mark.parametrize(
    ("background", "shown", "right"),
    [
        ("grey", ("red", "star", "grey"), (True, True, True)),
        ("grey", ("blue", "circle", "white"), (False, False, False)),
        (None, ("red", "star", "white"), (True, True, True)),
        (None, (None, None, None), (False, False, False)),
    ],
)
def test_a_drawing_is_held_against_what_was_asked(background, shown, right):
    assert prompts.Prompt("a red star", "red", "star", background).hits(*shown) == right

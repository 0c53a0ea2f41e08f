"""Questions about a scene with their answers, and the rest of what a visitor may say."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from demo_app.training.shapes import BACKGROUNDS, COLOURS, SHAPES, Scene, Thing

NUMBERS = ("None.", "One.", "Two.")
ONLY_SHAPES = "I only know coloured shapes."
NO_PICTURE = "Please show me a picture first."

DESCRIBE = (
    "Describe the picture.",
    "What do you see?",
    "What is in the picture?",
    "Describe this image.",
    "What is this?",
)
WHAT_SHAPE = ("What shape is it?", "Which shape is this?", "What shape do you see?")
WHAT_SHAPES = ("Which shapes are there?", "What shapes do you see?", "Name the shapes.")
WHAT_COLOUR = ("What colour is it?", "What color is it?", "Which colour is the shape?")
WHAT_COLOURS = ("Which colours are there?", "What colors do you see?", "What colours are the shapes?")
HOW_MANY = (
    "How many shapes are there?",
    "How many shapes do you see?",
    "Count the shapes.",
    "How many things are there?",
)
BACKGROUND = ("What colour is the background?", "What color is the background?", "Which background is it?")
WHAT_SIDE = ("What is on the {}?", "What do you see on the {}?", "What is on the {} side?")
IS_THERE = ("Is there {}?", "Do you see {}?", "Is there {} in the picture?")

# Said with or without a picture.
TALK = {
    "Hello! Show me a picture of coloured shapes.": ("Hello", "Hello!", "Hi", "Hi!", "Good morning", "Hey"),
    "I am a small model that knows coloured shapes.": ("Who are you?", "What are you?", "What is your name?"),
    "I know coloured shapes: circles, squares, triangles and stars.": ("What can you do?", "What do you know?", "Help"),
    "You are welcome.": ("Thank you", "Thanks", "Thank you!", "Thanks!"),
    ONLY_SHAPES: (
        "Where is the nearest station?",
        "What time is it?",
        "Tell me a joke.",
        "Write a poem about the sea.",
        "Who won the game yesterday?",
        "How old is the dog?",
        "Is there a cat?",
        "Do you see a house?",
        "Translate this sentence.",
        "What is the capital of France?",
        "How much does it cost?",
        "Why is the sky blue?",
    ),
}


def a(name: str) -> str:
    """The name with its article."""
    return ("an " if name[0] in "aeiou" else "a ") + name


def sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."


def describe(scene: Scene) -> str:
    where = f"on a {scene.background} background"
    if len(scene.things) == 1:
        return sentence(f"{a(scene.things[0].name)} {where}")
    left, right = scene.things
    return sentence(f"{a(left.name)} on the left and {a(right.name)} on the right, {where}")


def _one(rng: np.random.Generator, choices: Sequence[str]) -> str:
    return choices[int(rng.integers(len(choices)))]


def _shape(scene: Scene, rng: np.random.Generator) -> tuple[str, str]:
    things = scene.things
    if len(things) == 1:
        return _one(rng, WHAT_SHAPE), sentence(a(things[0].shape))
    if things[0].colour != things[1].colour and rng.random() < 0.5:
        thing = things[int(rng.integers(2))]
        return f"What shape is the {thing.colour} one?", sentence(a(thing.shape))
    if things[0].shape == things[1].shape:
        return _one(rng, WHAT_SHAPES), f"Two {things[0].shape}s."
    return _one(rng, WHAT_SHAPES), sentence(f"{a(things[0].shape)} and {a(things[1].shape)}")


def _colour(scene: Scene, rng: np.random.Generator) -> tuple[str, str]:
    things, word = scene.things, _one(rng, ("colour", "color"))
    missing = [shape for shape in SHAPES if shape not in {thing.shape for thing in things}]
    if rng.random() < 0.1:
        shape = _one(rng, missing)
        return f"What {word} is the {shape}?", f"There is no {shape}."
    if len(things) == 1:
        asked = (*WHAT_COLOUR, f"What {word} is the {things[0].shape}?")
        return _one(rng, asked), sentence(things[0].colour)
    if things[0].shape != things[1].shape and rng.random() < 0.6:
        thing = things[int(rng.integers(2))]
        return f"What {word} is the {thing.shape}?", sentence(thing.colour)
    if things[0].colour == things[1].colour:
        return _one(rng, WHAT_COLOURS), f"Both are {things[0].colour}."
    return _one(rng, WHAT_COLOURS), sentence(f"{things[0].colour} and {things[1].colour}")


def _how_many(scene: Scene, rng: np.random.Generator) -> tuple[str, str]:
    if rng.random() < 0.6:
        return _one(rng, HOW_MANY), NUMBERS[len(scene.things)]
    shape = _one(rng, [*SHAPES, *(thing.shape for thing in scene.things), scene.things[0].shape])
    return f"How many {shape}s are there?", NUMBERS[sum(thing.shape == shape for thing in scene.things)]


def _background(scene: Scene, rng: np.random.Generator) -> tuple[str, str]:
    return _one(rng, BACKGROUND), sentence(scene.background)


def _sides(scene: Scene, rng: np.random.Generator) -> tuple[str, str]:
    side = int(rng.integers(2))
    asked = _one(rng, WHAT_SIDE).format(("left", "right")[side])
    if len(scene.things) == 1:
        return asked, f"There is only {a(scene.things[0].name)}."
    thing, other = scene.things[side], scene.things[1 - side]
    if thing.name != other.name and rng.random() < 0.25:
        return f"Where is the {thing.name}?", f"On the {('left', 'right')[side]}."
    return asked, sentence(a(thing.name))


def _is_there(scene: Scene, rng: np.random.Generator) -> tuple[str, str]:
    """Half of the answers are yes; a no is mostly one attribute away from what there is."""
    names, form, yes = [thing.name for thing in scene.things], rng.random(), rng.random() < 0.5
    if form < 0.25:
        there = sorted({thing.shape for thing in scene.things})
        asked = a(_one(rng, there if yes else [s for s in SHAPES if s not in there]))
    elif form < 0.5:
        there = sorted({thing.colour for thing in scene.things})
        asked = "something " + _one(rng, there if yes else [c for c in COLOURS if c not in there])
    elif yes:
        asked = a(_one(rng, names))
    else:
        thing: Thing = scene.things[int(rng.integers(len(names)))]
        near = [f"{colour} {thing.shape}" for colour in COLOURS] + [f"{thing.colour} {shape}" for shape in SHAPES] * 2
        near += [
            f"{scene.things[0].colour} {scene.things[-1].shape}",
            f"{scene.things[-1].colour} {scene.things[0].shape}",
        ] * 3
        asked = a(_one(rng, [name for name in near if name not in names]))
    return _one(rng, IS_THERE).format(asked), "Yes." if yes else "No."


ASK: dict[str, Callable[[Scene, np.random.Generator], tuple[str, str]]] = {
    "describe": lambda scene, rng: (_one(rng, DESCRIBE), describe(scene)),
    "shape": _shape,
    "colour": _colour,
    "how many": _how_many,
    "background": _background,
    "left and right": _sides,
    "is there": _is_there,
}
KINDS = tuple(ASK)


def ask(scene: Scene, rng: np.random.Generator, kind: str) -> tuple[str, str]:
    """A question of that kind and the one right answer."""
    return ASK[kind](scene, rng)


def talk(rng: np.random.Generator) -> tuple[str, str]:
    """Something else a visitor says, and the reply."""
    reply = _one(rng, list(TALK))
    return _one(rng, TALK[reply]), reply


def words() -> list[str]:
    """Every text there can be, in pieces: what the tokenizer must know as whole words."""
    names = [*COLOURS, *SHAPES, *(f"{shape}s" for shape in SHAPES), *BACKGROUNDS]
    fixed: list[Sequence[str]] = [
        DESCRIBE,
        WHAT_SHAPE,
        WHAT_SHAPES,
        WHAT_COLOUR,
        WHAT_COLOURS,
        HOW_MANY,
        BACKGROUND,
        WHAT_SIDE,
        IS_THERE,
        NUMBERS,
        *TALK.values(),
        list(TALK),
        [NO_PICTURE, "Both are", "There is no", "There is only a", "Where is the left", "On the right."],
        ["What shape is the one?", "How many are there?", "something", "and an", "Yes.", "No.", "Two", "A", "An"],
    ]
    return [text for texts in fixed for text in texts] + [name for each in names for name in (f" {each}", each.title())]

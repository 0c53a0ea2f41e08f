"""The pictures show what their scenes say."""

from __future__ import annotations

import numpy as np
import pytest

from demo_app.training import shapes


def pixel(picture, x: float, y: float) -> tuple[int, int, int]:
    return picture.getpixel((int(x * picture.width), int(y * picture.height)))


@pytest.mark.parametrize("things", [1, 2])
def test_every_thing_has_its_colour_in_its_middle_and_the_background_around_it(things):
    for seed in range(40):
        scene = shapes.random_scene(np.random.default_rng(seed), things)
        picture = shapes.draw(scene, 112)
        assert len(scene.things) == things
        assert picture.size == (112, 112)
        for corner in ((0, 0), (0.99, 0), (0, 0.99), (0.99, 0.99)):
            assert pixel(picture, *corner) == shapes.BACKGROUNDS[scene.background]
        for thing in scene.things:
            assert pixel(picture, thing.x, thing.y) == shapes.COLOURS[thing.colour]


def test_two_things_stand_apart_from_left_to_right():
    for seed in range(40):
        scene = shapes.random_scene(np.random.default_rng(seed), 2)
        left, right = scene.things
        assert left.x < 0.5 < right.x
        assert not (shapes.coverage(scene, 16) > 0).all(axis=0).any()


def test_shapes_differ_in_outline():
    def touched(shape: str) -> frozenset[tuple[int, int]]:
        scene = shapes.Scene("white", (shapes.Thing("red", shape, 0.5, 0.5, 0.28),))
        return frozenset(map(tuple, np.argwhere(shapes.coverage(scene, 16)[0] > 0.5)))

    assert len({touched(shape) for shape in shapes.SHAPES}) == len(shapes.SHAPES)


def test_a_seed_gives_the_same_picture_and_another_seed_another():
    def bytes_of(seed: int) -> bytes:
        rng = np.random.default_rng(seed)
        return shapes.wear(shapes.draw(shapes.random_scene(rng, 2), 64, rng), rng).tobytes()

    assert bytes_of(3) == bytes_of(3)
    assert bytes_of(3) != bytes_of(4)


def test_a_prompts_scene_is_one_upright_thing_inside_the_picture():
    for seed in range(40):
        scene = shapes.prompt_scene(np.random.default_rng(seed))
        (thing,) = scene.things
        assert thing.turn == 0
        covered = shapes.coverage(scene, 32)[0] > 0
        assert not covered[[0, -1]].any() and not covered[:, [0, -1]].any()

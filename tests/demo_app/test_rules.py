"""The rules name what true pictures show, and name nothing where there is nothing to name."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from demo_app.training import rules, shapes


def test_true_pictures_are_named_right():
    rng, right, count = np.random.default_rng(1), 0, 300
    for index in range(count):
        scene = shapes.prompt_scene(rng) if index % 2 else shapes.random_scene(rng, 1)
        picture = shapes.draw(scene, 64 if index % 3 else 112, rng)
        picture = shapes.wear(picture, rng) if index % 4 > 1 else picture
        (thing,) = scene.things
        right += rules.judge(picture).shown == (thing.colour, thing.shape, scene.background)
    assert right >= 0.99 * count


def blank(colour=(250, 250, 250)) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    picture = Image.new("RGB", (64, 64), colour)
    return picture, ImageDraw.Draw(picture)


def test_an_empty_picture_has_a_background_alone():
    assert rules.judge(blank()[0]).shown == (None, None, "white")


def test_an_ellipse_and_a_cross_are_none_of_the_shapes():
    picture, canvas = blank()
    canvas.ellipse((8, 22, 56, 42), fill=(215, 35, 40))
    assert rules.judge(picture).shown == ("red", None, "white")
    picture, canvas = blank()
    canvas.rectangle((27, 8, 37, 56), fill=(35, 80, 215))
    canvas.rectangle((8, 27, 56, 37), fill=(35, 80, 215))
    assert rules.judge(picture).shown == ("blue", None, "white")


def test_a_square_with_a_corner_gone_is_no_square():
    picture, canvas = blank()
    canvas.rectangle((14, 14, 50, 50), fill=(40, 165, 70))
    assert rules.judge(picture).shape == "square"
    canvas.polygon([(14, 14), (40, 14), (14, 40)], fill=(250, 250, 250))
    assert rules.judge(picture).shape is None


def test_a_smeared_star_is_no_star():
    star = shapes.draw(shapes.Scene("white", (shapes.Thing("red", "star", 0.5, 0.5, 0.25),)), 64)
    assert rules.judge(star).shape == "star"
    assert rules.judge(star.filter(ImageFilter.GaussianBlur(7))).shape != "star"


def test_two_things_are_not_one():
    picture = shapes.draw(shapes.random_scene(np.random.default_rng(2), 2), 64)
    assert rules.judge(picture).shape is None


def test_colours_without_a_name_have_none():
    picture, canvas = blank((90, 30, 30))
    canvas.ellipse((16, 16, 48, 48), fill=(90, 200, 200))
    verdict = rules.judge(picture)
    assert (verdict.colour, verdict.background) == (None, None)

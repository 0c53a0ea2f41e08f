"""Pictures of one or two coloured shapes on a plain background, drawn from a seed.

Lengths are fractions of the picture's side, angles degrees, colours 8-bit RGB.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

COLOURS = {
    "red": (215, 35, 40),
    "green": (40, 165, 70),
    "blue": (35, 80, 215),
    "yellow": (245, 220, 50),
    "purple": (140, 45, 175),
    "orange": (245, 130, 25),
}
SHAPES = ("circle", "square", "triangle", "star")
BACKGROUNDS = {"white": (250, 250, 250), "grey": (150, 150, 150), "black": (12, 12, 12)}

STAR_INNER = 0.42  # a star's inner radius over its outer one
# Outer radius over the nominal one, so that no shape gives itself away by its area alone.
OUTER = {"circle": 1.0, "square": 1.22, "triangle": 1.3, "star": 1.35}
FINER = 2  # pictures are drawn this much larger and scaled down, which smooths the edges


@dataclass(frozen=True)
class Thing:
    """One shape: its colour's name, its centre and nominal radius, how far it is turned."""

    colour: str
    shape: str
    x: float
    y: float
    radius: float
    turn: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.colour} {self.shape}"


@dataclass(frozen=True)
class Scene:
    """A background's name and one or two things, from left to right."""

    background: str
    things: tuple[Thing, ...]


def corners(thing: Thing) -> list[tuple[float, float]]:
    """The polygon of a square, triangle or star, around the origin, for radius 1; a square stands on a side."""
    count, first = {"square": (4, 45.0), "triangle": (3, -90.0), "star": (10, -90.0)}[thing.shape]
    points = []
    for index in range(count):
        length = STAR_INNER if thing.shape == "star" and index % 2 else 1.0
        angle = math.radians(first + thing.turn + index * 360 / count)
        points.append((length * math.cos(angle), length * math.sin(angle)))
    return points


def paint(canvas: ImageDraw.ImageDraw, side: int, thing: Thing, fill: int | tuple[int, ...]) -> None:
    """Draw one thing onto a canvas of `side` pixels."""
    x, y, radius = thing.x * side, thing.y * side, thing.radius * OUTER[thing.shape] * side
    if thing.shape == "circle":
        canvas.ellipse((x - radius, y - radius, x + radius, y + radius), fill=fill)
    else:
        canvas.polygon([(x + radius * dx, y + radius * dy) for dx, dy in corners(thing)], fill=fill)


def draw(scene: Scene, side: int, rng: np.random.Generator | None = None, shade: int = 10) -> Image.Image:
    """The picture of a scene, (side, side) RGB. With `rng` every colour is off by up to `shade` a channel."""

    def tint(colour: tuple[int, ...]) -> tuple[int, ...]:
        if rng is None:
            return colour
        return tuple(int(c) for c in np.clip(np.add(colour, rng.integers(-shade, shade + 1, 3)), 0, 255))

    large = Image.new("RGB", (side * FINER, side * FINER), tint(BACKGROUNDS[scene.background]))
    canvas = ImageDraw.Draw(large)
    for thing in scene.things:
        paint(canvas, side * FINER, thing, tint(COLOURS[thing.colour]))
    return large.reduce(FINER)


def coverage(scene: Scene, cells: int, finer: int = 7) -> np.ndarray:
    """How much of each cell each thing covers: (things, cells, cells) in 0..1."""
    side = cells * finer
    covered = []
    for thing in scene.things:
        mask = Image.new("L", (side, side), 0)
        paint(ImageDraw.Draw(mask), side, thing, 255)
        covered.append(np.asarray(mask.reduce(finer), dtype=np.float32) / 255)
    return np.stack(covered)


def random_scene(rng: np.random.Generator, things: int, easy: float = 0.0) -> Scene:
    """A scene of one or two things. `easy` in 0..1 leaves out the small, turned and off-centre ones."""
    hard = 1.0 - easy

    def thing(x: float, y: float, low: float, high: float) -> Thing:
        low += easy * (high - low) / 2
        return Thing(
            colour=str(rng.choice(list(COLOURS))),
            shape=str(rng.choice(SHAPES)),
            x=float(x),
            y=float(y),
            radius=float(rng.uniform(low, high)),
            turn=float(rng.uniform(-12, 12) * hard),
        )

    background = str(rng.choice(list(BACKGROUNDS)))
    if things == 1:
        off = rng.uniform(-0.12, 0.12, 2) * hard
        return Scene(background, (thing(0.5 + off[0], 0.5 + off[1], 0.18, 0.28),))
    left, right = rng.uniform(-0.03, 0.03, 2) * hard
    ups = rng.uniform(-0.18, 0.18, 2) * hard
    return Scene(
        background,
        (thing(0.25 + left, 0.5 + ups[0], 0.12, 0.16), thing(0.75 + right, 0.5 + ups[1], 0.12, 0.16)),
    )


def wear(picture: Image.Image, rng: np.random.Generator) -> Image.Image:
    """What happens to pictures on their way: scaled, blurred, compressed, noisy; each now and then."""
    side = picture.width
    if rng.random() < 0.4:
        small = int(rng.integers(56, 100))
        picture = picture.resize((small, small), Image.Resampling.BICUBIC).resize(
            (side, side), Image.Resampling.BICUBIC
        )
    if rng.random() < 0.25:
        picture = picture.filter(ImageFilter.GaussianBlur(float(rng.uniform(0.3, 1.3))))
    if rng.random() < 0.25:
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=int(rng.integers(45, 95)))
        picture = Image.open(file).convert("RGB")
    if rng.random() < 0.25:
        noisy = np.asarray(picture, dtype=np.float32) + rng.normal(0, rng.uniform(1, 8), (side, side, 3))
        picture = Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8))
    return picture


def prompt_scene(rng: np.random.Generator) -> Scene:
    """What "a red circle on a white background" asks for: one upright thing, large, near the middle."""
    x, y = (float(v) for v in rng.uniform(0.45, 0.55, 2))
    shape, colour = str(rng.choice(SHAPES)), str(rng.choice(list(COLOURS)))
    thing = Thing(colour, shape, x, y, float(rng.uniform(0.23, 0.28)))
    return Scene(str(rng.choice(list(BACKGROUNDS))), (thing,))

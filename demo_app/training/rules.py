"""Judges a drawing of one thing by rules alone: no model, and none of the code that draws pictures.

Background: the middle colour of the border. Thing: the largest connected part that stands out from it, and nothing
else may. Its shape is told by how far it reaches in each direction from its centroid, compared with the four ideal
outlines turned every way: it must be twice as near to one as to any other. A blob has no shape.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from PIL import Image

COLOURS = {
    "red": (215, 35, 40),
    "green": (40, 165, 70),
    "blue": (35, 80, 215),
    "yellow": (245, 220, 50),
    "purple": (140, 45, 175),
    "orange": (245, 130, 25),
}
BACKGROUNDS = {"white": (250, 250, 250), "grey": (150, 150, 150), "black": (12, 12, 12)}
FAR = 60.0  # in RGB: colours further away than this have no name, pixels further than this are not background
ANGLES = 90
UNLIKE = 0.13  # the greatest root mean square difference of an outline from the ideal one, of its mean radius


@dataclass(frozen=True)
class Verdict:
    """What the picture shows; None is "nothing I could name"."""

    colour: str | None
    shape: str | None
    background: str | None

    @property
    def shown(self) -> tuple[str | None, str | None, str | None]:
        return self.colour, self.shape, self.background


def _nearest(colour: np.ndarray, names: dict[str, tuple[int, int, int]]) -> str | None:
    far = {name: float(np.linalg.norm(colour - np.array(rgb))) for name, rgb in names.items()}
    best = min(far, key=far.__getitem__)
    return best if far[best] < FAR else None


def _outline(points: list[tuple[float, float]]) -> np.ndarray:
    """Reach of a polygon around the origin in ANGLES directions, its mean 1."""
    reach = np.zeros(ANGLES)
    for index in range(ANGLES):
        angle = 2 * math.pi * index / ANGLES
        dx, dy = math.cos(angle), math.sin(angle)
        for (ax, ay), (bx, by) in zip(points, points[1:] + points[:1]):
            ex, ey = bx - ax, by - ay
            across = dx * ey - dy * ex
            if abs(across) > 1e-12:
                length, along = (ax * ey - ay * ex) / across, (ax * dy - ay * dx) / across
                if length > 0 and -1e-9 <= along <= 1 + 1e-9:
                    reach[index] = max(reach[index], length)
    return reach / reach.mean()


def _regular(corners: int, inner: float = 1.0) -> np.ndarray:
    lengths = (1.0, inner) if inner < 1 else (1.0,)
    count = corners * len(lengths)
    turns = [2 * math.pi * i / count for i in range(count)]
    return _outline(
        [
            (lengths[i % len(lengths)] * math.cos(t), lengths[i % len(lengths)] * math.sin(t))
            for i, t in enumerate(turns)
        ]
    )


IDEAL = {"circle": np.ones(ANGLES), "square": _regular(4), "triangle": _regular(3), "star": _regular(5, inner=0.42)}


def _grown(mask: np.ndarray) -> np.ndarray:
    """The mask and the pixels beside it."""
    grown = mask.copy()
    grown[1:] |= mask[:-1]
    grown[:-1] |= mask[1:]
    grown[:, 1:] |= mask[:, :-1]
    grown[:, :-1] |= mask[:, 1:]
    return grown


def _connected(mask: np.ndarray, start: tuple[int, int]) -> np.ndarray:
    """The part of `mask` that hangs together with `start`."""
    part = np.zeros_like(mask)
    part[start] = True
    while True:
        grown = _grown(part) & mask
        if (grown == part).all():
            return part
        part = grown


def _largest(mask: np.ndarray) -> np.ndarray:
    best, left = np.zeros_like(mask), mask.copy()
    while left.sum() > best.sum():
        part = _connected(left, tuple(np.argwhere(left)[0]))
        left &= ~part
        if part.sum() > best.sum():
            best = part
    return best


def _reach(thing: np.ndarray) -> np.ndarray:
    """How far the thing reaches from its centroid in each direction, its mean 1. `thing` is 0..1 for each pixel."""
    rows, columns = np.mgrid[: thing.shape[0], : thing.shape[1]]
    total = thing.sum()
    row, column = (rows * thing).sum() / total, (columns * thing).sum() / total
    steps = np.arange(0, max(thing.shape), 0.25)
    reach = np.zeros(ANGLES)
    padded = np.pad(thing, 1)
    for index in range(ANGLES):
        angle = 2 * math.pi * index / ANGLES
        y = np.clip(row + steps * math.sin(angle) + 1, 0, padded.shape[0] - 1.001)
        x = np.clip(column + steps * math.cos(angle) + 1, 0, padded.shape[1] - 1.001)
        top, left = y.astype(int), x.astype(int)
        down, right = y - top, x - left
        value = (padded[top, left] * (1 - right) + padded[top, left + 1] * right) * (1 - down)
        value += (padded[top + 1, left] * (1 - right) + padded[top + 1, left + 1] * right) * down
        inside = np.flatnonzero(value > 0.5)
        reach[index] = steps[inside[-1]] if len(inside) else 0.0
    return reach / max(reach.mean(), 1e-6)


def unlike(reach: np.ndarray, ideal: np.ndarray) -> float:
    """Root mean square difference of two outlines in the turn that fits best."""
    turned = np.stack([np.roll(ideal, turn) for turn in range(ANGLES)])
    return float(np.sqrt(((turned - reach) ** 2).mean(1)).min())


def judge(picture: Image.Image) -> Verdict:
    """What a square RGB picture of one thing on a plain background shows."""
    pixels = np.asarray(picture.convert("RGB").resize((64, 64), Image.Resampling.BICUBIC), dtype=np.float64)
    edge = np.ones(pixels.shape[:2], dtype=bool)
    edge[3:-3, 3:-3] = False
    ground = np.median(pixels[edge], axis=0)
    differs = np.linalg.norm(pixels - ground, axis=-1)
    background = _nearest(ground, BACKGROUNDS) if (differs[edge] < FAR).mean() > 0.9 else None
    out = differs > FAR
    if out.mean() < 0.02:
        return Verdict(None, None, background)
    core = out & (differs > 0.7 * np.quantile(differs[out], 0.9))
    middle = np.median(pixels[core], axis=0)
    toward = (middle - ground) / ((middle - ground) ** 2).sum()
    share = np.clip((pixels - ground) @ toward, 0, 1)
    part = _largest(share > 0.5)
    near = _grown(part)
    alone = (out & ~_grown(near)).sum() < 0.15 * part.sum()
    if not alone or part.mean() < 0.02:
        return Verdict(_nearest(middle, COLOURS), None, background)
    reach = _reach(share * near)
    fits = {shape: unlike(reach, ideal) for shape, ideal in IDEAL.items()}
    best, second = sorted(fits, key=fits.__getitem__)[:2]
    clear = fits[best] < min(UNLIKE, fits[second] / 2)
    return Verdict(_nearest(middle, COLOURS), best if clear else None, background)

"""Stage 1, the vision tower: taught by labels of every patch and of the whole picture, before any word.

A patch of 14 pixels sees colour at once but no shape: without a label of the shape in every patch, and without large
single shapes first, the tower stays at chance for thousands of steps.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.nn import functional as F
from transformers import Qwen2_5_VLConfig
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import (
    Qwen2_5_VisionTransformerPretrainedModel as VisionTower,
)
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import apply_rotary_pos_emb_vision

from demo_app.training import loop, shapes

SIDE, PATCH, MERGE = 112, 14, 2
GRID = SIDE // PATCH  # patches along a side
CELLS = GRID // MERGE  # visual tokens along a side
MEAN = np.array([0.48145466, 0.4578275, 0.40821073], dtype=np.float32)  # the image processor's
STD = np.array([0.26862954, 0.26130258, 0.27577711], dtype=np.float32)
HIDDEN = 128  # of the language model
LOOKED_AT = 200  # pictures of each number of things, for the scores on the way
VISION = {
    "depth": 4,
    "hidden_size": 96,
    "num_heads": 3,
    "intermediate_size": 256,
    "out_hidden_size": HIDDEN,
    "window_size": 56,
    "fullatt_block_indexes": [1, 3],
    "patch_size": PATCH,
    "spatial_merge_size": MERGE,
    "temporal_patch_size": 2,
    "hidden_act": "silu",
}
COLOUR_NAMES, SHAPE_NAMES, BACKGROUND_NAMES = list(shapes.COLOURS), list(shapes.SHAPES), list(shapes.BACKGROUNDS)
# What every visual token must know: of the picture (things in order from the left, 0 for "no such thing") ...
WHOLE = {"background": 3, "count": 2, "shape 1": 5, "colour 1": 7, "shape 2": 5, "colour 2": 7}
# ... and of each of its four patches.
PATCHES = {"shape here": 5, "colour here": 7}


def in_merge_order(grid: np.ndarray) -> np.ndarray:
    """(..., 8, 8) row by row -> (..., 64), the four patches of each visual token side by side, as in the processor."""
    lead = grid.shape[:-2]
    cells = grid.reshape(*lead, CELLS, MERGE, CELLS, MERGE)
    return np.moveaxis(cells, -3, -2).reshape(*lead, GRID * GRID)


def patches(pictures: list[Image.Image]) -> torch.Tensor:
    """(pictures, 64, 588): what transformers' processor makes of 112x112 pictures, less the second, equal frame."""
    pixels = (np.stack([np.asarray(p, dtype=np.float32) for p in pictures]) / 255 - MEAN) / STD
    cut = pixels.reshape(-1, CELLS, MERGE, PATCH, CELLS, MERGE, PATCH, 3)
    return torch.from_numpy(cut.transpose(0, 1, 4, 2, 5, 7, 3, 6).reshape(len(pictures), GRID * GRID, -1))


def labels(scene: shapes.Scene) -> tuple[list[int], np.ndarray]:
    """Classes of the whole picture, in WHOLE's order, and (2, 64) of the patches, in PATCHES' order."""
    names = [(SHAPE_NAMES.index(t.shape) + 1, COLOUR_NAMES.index(t.colour) + 1) for t in scene.things]
    whole = [BACKGROUND_NAMES.index(scene.background), len(names) - 1, *names[0], *(names[1] if names[1:] else (0, 0))]
    here = np.zeros((2, GRID, GRID), dtype=np.int64)
    for (shape, colour), covered in zip(names, shapes.coverage(scene, GRID)):
        here[0][covered > 0.15] = shape
        here[1][covered > 0.15] = colour
    return whole, in_merge_order(here)


def cosines(side: int, count: int) -> np.ndarray:
    """The `count` slowest two-dimensional cosines of a patch, orthonormal: (count, side, side)."""
    steps = (np.arange(side) + 0.5) * math.pi / side
    waves = [np.cos(k * steps) * math.sqrt((1 if k == 0 else 2) / side) for k in range(side)]
    slow = sorted(((a, b) for a in range(side) for b in range(side)), key=lambda ab: (sum(ab), ab))
    return np.stack([np.outer(waves[a], waves[b]) for a, b in slow[:count]])


def make_tower() -> VisionTower:
    """A tower whose patch embedding starts as a cosine transform: 48 of brightness, 24 for each of two differences."""
    tower = VisionTower(Qwen2_5_VLConfig(vision_config=VISION).vision_config)
    waves, start = cosines(PATCH, 48), []
    for mix, count in (((1, 1, 1), 48), ((1, -1, 0), 24), ((-0.5, -0.5, 1), 24)):
        mixed = np.array(mix) / np.linalg.norm(mix)
        start.append(mixed[None, :, None, None] * waves[:count, None])
    weight = torch.tensor(np.concatenate(start), dtype=torch.float32)[:, :, None].repeat(1, 1, 2, 1, 1)
    tower.patch_embed.proj.weight.data.copy_(weight / weight.flatten(1).norm(dim=1).mean() / 3)
    return tower


class FastTower(nn.Module):
    """The tower on a batch of 112x112 pictures: same weights and numbers, no loop over windows."""

    def __init__(self, tower: VisionTower) -> None:
        super().__init__()
        self.tower = tower
        cells = torch.arange(CELLS * CELLS).view(2, 2, 2, 2).transpose(1, 2).flatten()  # window by window
        rows, columns = (in_merge_order(axis) for axis in np.mgrid[:GRID, :GRID])
        order = (cells[:, None] * 4 + torch.arange(4)).flatten()
        places = torch.from_numpy(np.stack([rows, columns], -1)).long()[order]
        cosine, sine = tower.rotary_pos_emb(torch.zeros(1), places)
        self.order, self.back, self.rotary = order, torch.argsort(cells), (cosine, sine)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """(pictures, 64, 588) -> (pictures, 16, 128)"""
        tower, (count, length, _) = self.tower, pixels.shape
        hidden = F.linear(pixels, tower.patch_embed.proj.weight.sum(2).flatten(1))[:, self.order]
        cosine, sine = self.rotary
        for index, block in enumerate(tower.blocks):
            attention = block.attn
            qkv = attention.qkv(block.norm1(hidden)).view(count, length, 3, attention.num_heads, -1)
            query, key, value = qkv.unbind(2)
            query, key = apply_rotary_pos_emb_vision(query, key, cosine, sine)
            span = length if index in tower.fullatt_block_indexes else length // 4
            query, key, value = (
                x.reshape(-1, span, attention.num_heads, attention.head_dim).transpose(1, 2)
                for x in (query, key, value)
            )
            mixed = F.scaled_dot_product_attention(query, key, value)
            hidden = hidden + attention.proj(mixed.transpose(1, 2).reshape(count, length, -1))
            hidden = hidden + block.mlp(block.norm2(hidden))
        return tower.merger(hidden.flatten(0, 1)).view(count, length // 4, -1)[:, self.back]


class Taught(nn.Module):
    """The tower and the heads that read its visual tokens; the heads are thrown away afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.fast = FastTower(make_tower())
        self.whole = nn.Linear(HIDDEN, sum(WHOLE.values()))
        self.here = nn.Linear(HIDDEN, 4 * sum(PATCHES.values()))

    def forward(self, pixels: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Scores per visual token, (pictures, 16, classes), and per patch, (pictures, 64, classes)."""
        tokens = self.fast(pixels)
        here = self.here(tokens).view(len(tokens), GRID * GRID, -1)
        return list(self.whole(tokens).split(list(WHOLE.values()), -1)), list(here.split(list(PATCHES.values()), -1))


def batch(rng: np.random.Generator, size: int, easy: float, pairs: float) -> tuple[list[shapes.Scene], torch.Tensor]:
    """Scenes and the patches of their pictures."""
    scenes = [shapes.random_scene(rng, 1 + int(rng.random() < pairs), easy) for _ in range(size)]
    drawn = []
    for scene in scenes:
        picture = shapes.draw(scene, SIDE, rng)
        drawn.append(picture if rng.random() < easy else shapes.wear(picture, rng))
    return scenes, patches(drawn)


def cross(scores: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(scores.flatten(0, -2), classes.flatten())


def main() -> None:
    options = loop.arguments(__doc__, steps=2600)
    loop.start(options.seed)
    model = Taught()

    def loss_of(rng: np.random.Generator, done: float) -> tuple[torch.Tensor, dict[str, float]]:
        easy, pairs = max(0.0, 1 - done / 0.4), min(0.6, max(0.0, done - 0.08) * 3)
        scenes, pixels = batch(rng, 32, easy, pairs)
        whole, here = zip(*(labels(scene) for scene in scenes))
        of_whole, of_here = model(pixels)
        target, target_here = torch.tensor(whole), torch.from_numpy(np.stack(here))
        losses = [cross(s, target[:, i : i + 1].expand(-1, s.shape[1])) for i, s in enumerate(of_whole)]
        losses_here = [cross(s, target_here[:, i]) for i, s in enumerate(of_here)]
        numbers = dict(zip([*WHOLE, *PATCHES], [float(x.detach()) for x in losses + losses_here]))
        return sum(losses) + 2 * sum(losses_here), numbers

    def look() -> str:
        parts = []
        for things in (1, 2):
            rng = np.random.default_rng([options.seed, 10**9, things])
            scenes, pixels = batch(rng, LOOKED_AT, 0.0, things - 1)
            guess = torch.stack([s.mean(1).argmax(-1) for s in model(pixels)[0]], 1)
            right = guess == torch.tensor([labels(scene)[0] for scene in scenes])
            each = " ".join(f"{100 * x:.0f}" for x in right.float().mean(0))
            parts.append(f"{things}: all {100 * right.all(1).float().mean():.1f}% each {each}")
        return "; ".join(parts)

    plan = loop.Plan(options.steps, rate=1.5e-3, out=options.out, seed=options.seed, average=0.998)
    loop.train("tower", model, loss_of, plan, look)
    loop.keep(model.fast.tower.state_dict(), options.out / "tower-final.pt")


if __name__ == "__main__":
    main()

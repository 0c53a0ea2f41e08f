"""Draws docs/images/drawings.png: what the small drawing model makes of held-out prompts, each above its words.

    python docs/make_drawings.py    # under a Python that has torch, diffusers and transformers

18 prompts by a seed and one drawing of each: none is chosen. The picture carries the hash of the
weights that drew it, and a test in tests/demo_app fails when they are others.
"""

from __future__ import annotations

import hashlib
import sys
import textwrap
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from PIL.PngImagePlugin import PngInfo

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from demo_app.small_models import DRAWING, MODELS  # noqa: E402
from demo_app.training import prompts, scores  # noqa: E402

MODEL = MODELS / DRAWING
PICTURE = ROOT / "docs" / "images" / "drawings.png"
SEED, COLUMNS, ROWS = 7, 6, 3
SIDE, GAP, WORDS = 128, 16, 44  # pixels: of a drawing, twice its own size; around it; for the prompt below
PAPER, INK = (255, 255, 255), (31, 35, 40)


def sheet() -> Image.Image:
    held = prompts.split()[1]
    some = [held[i].text for i in np.random.default_rng(SEED).permutation(len(held))[: COLUMNS * ROWS]]
    drawings = scores.draw(scores.load_drawing(MODEL), some, SEED)
    wide, high = SIDE + GAP, SIDE + WORDS + GAP
    whole = Image.new("RGB", (COLUMNS * wide + GAP, ROWS * high + GAP), PAPER)
    canvas, font = ImageDraw.Draw(whole), ImageFont.load_default(12)
    for index, (words, drawing) in enumerate(zip(some, drawings)):
        left, top = GAP + index % COLUMNS * wide, GAP + index // COLUMNS * high
        whole.paste(drawing.resize((SIDE, SIDE), Image.Resampling.BICUBIC), (left, top))
        canvas.rectangle((left - 1, top - 1, left + SIDE, top + SIDE), outline=(208, 215, 222))
        canvas.multiline_text((left, top + SIDE + 6), textwrap.fill(words, 23), INK, font)
    return whole


if __name__ == "__main__":
    about = PngInfo()
    weights = MODEL / "transformer" / "diffusion_pytorch_model.safetensors"
    about.add_text("transformer", hashlib.sha256(weights.read_bytes()).hexdigest())
    sheet().save(PICTURE, pnginfo=about, optimize=True)

"""One picture by a small Qwen-Image pipeline of diffusers, from a folder as `save_pretrained` writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

SIZE, SEED = 64, 7


def load(folder: Path) -> Any:
    """The pipeline, in float32 on the CPU."""
    from diffusers import QwenImagePipeline

    pipeline = QwenImagePipeline.from_pretrained(folder, torch_dtype=torch.float32, local_files_only=True)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def draw(pipeline: Any, prompt: str, steps: int, guidance: float) -> torch.Tensor:
    """`(height, width, 3)` from 0 to 1, on the CPU; a guidance of 1 is none."""
    drawn = pipeline(
        prompt,
        negative_prompt=" " if guidance > 1 else None,
        true_cfg_scale=guidance,
        height=SIZE,
        width=SIZE,
        num_inference_steps=steps,
        generator=torch.Generator().manual_seed(SEED),
        output_type="pt",
    )
    picture: torch.Tensor = drawn.images[0].permute(1, 2, 0).float().cpu()
    return picture

"""A picture by a small text-to-image pipeline of diffusers, with its attention shared by ranks."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from porting.reference import strict_collectives

PROMPT = "a red star on a white background"
STEPS, SIZE, SEED = 8, 64, 7


class NotShared(Exception):
    """The ranks cannot share what there is; the text says why."""


def drawn(
    folder: Path, cls: type[nn.Module] | None, rank: int, ranks: int, rendezvous: Path | None
) -> tuple[torch.Tensor, Mapping[str, int]]:
    """The picture that this rank has in the end, `(height, width, 3)` from 0 to 1, and the collectives it took.

    With a class, every attention of the transformer is that of the class, on this rank's part of the tokens. Raises
    NotShared.
    """
    from diffusers import QwenImagePipeline
    from diffusers.models.transformers import transformer_qwenimage

    torch.set_grad_enabled(False)
    pipeline = QwenImagePipeline.from_pretrained(folder, torch_dtype=torch.float32, local_files_only=True)
    pipeline.set_progress_bar_config(disable=True)
    if cls is not None:
        dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=ranks)
        config = pipeline.transformer.config
        attention = cls(config.num_attention_heads, config.attention_head_dim)
        transformer_qwenimage.dispatch_attention_fn = _shared(attention, rank, ranks)
    with strict_collectives() if cls is not None else nullcontext() as seen:
        made = pipeline(
            PROMPT,
            true_cfg_scale=1.0,
            height=SIZE,
            width=SIZE,
            num_inference_steps=STEPS,
            generator=torch.Generator().manual_seed(SEED),
            output_type="pt",
        )
    return made.images[0].permute(1, 2, 0).float(), seen.counts() if seen is not None else {}


def _shared(attention: nn.Module, rank: int, ranks: int) -> Any:
    def call(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **_: Any) -> torch.Tensor:
        tokens = query.shape[1]
        if tokens % ranks:
            raise NotShared(f"{ranks} ranks cannot share {tokens} tokens equally: choose another prompt")
        output = attention(*(part.chunk(ranks, dim=1)[rank] for part in (query, key, value))).contiguous()
        parts = [torch.empty_like(output) for _ in range(ranks)]
        dist.all_gather(parts, output)
        return torch.cat(parts, dim=1)

    return call

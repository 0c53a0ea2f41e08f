"""A picture by a small text-to-image pipeline of diffusers, with its attention shared by ranks."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from porting import text_to_image
from porting.reference import strict_collectives

PROMPT = "a red star on a white background"
STEPS = 8


class NotShared(Exception):
    """The ranks cannot share what there is; the text says why."""


def drawn(
    folder: Path, cls: type[nn.Module] | None, rank: int, ranks: int, rendezvous: Path | None
) -> tuple[torch.Tensor, Mapping[str, int]]:
    """The picture that this rank has in the end, `(height, width, 3)` from 0 to 1, and the collectives it took.

    With a class, every attention of the transformer is that of the class, on this rank's part of the tokens. Raises
    NotShared.
    """
    from diffusers.models.transformers import transformer_qwenimage

    torch.set_grad_enabled(False)
    pipeline = text_to_image.load(folder)
    if cls is not None:
        dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=ranks)
        config = pipeline.transformer.config
        attention = cls(config.num_attention_heads, config.attention_head_dim)
        transformer_qwenimage.dispatch_attention_fn = _shared(attention, rank, ranks)
    with strict_collectives() if cls is not None else nullcontext() as seen:
        picture = text_to_image.draw(pipeline, PROMPT, STEPS, guidance=1.0)
    return picture, seen.counts() if seen is not None else {}


def _shared(attention: nn.Module, rank: int, ranks: int) -> Any:
    def call(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **_: Any) -> torch.Tensor:
        tokens = query.shape[1]
        if tokens % ranks:
            raise NotShared(f"{ranks} ranks cannot share {tokens} tokens equally: give another pipeline, or none")
        output = attention(*(part.chunk(ranks, dim=1)[rank] for part in (query, key, value))).contiguous()
        parts = [torch.empty_like(output) for _ in range(ranks)]
        dist.all_gather(parts, output)
        return torch.cat(parts, dim=1)

    return call

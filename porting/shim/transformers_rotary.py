"""Pixtral's rotary embedding, which towers up to 0.14 took from Transformers and which version 5 renamed and changed.

Source: transformers 4.57, `models/pixtral/modeling_pixtral.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn


class PixtralRotaryEmbedding(nn.Module):
    """Cosines and sines for positions in a square of `image_size // patch_size` patches, counted row by row.

    Of the features of a head, even frequencies turn with the row and odd ones with the column.
    """

    inv_freq: torch.Tensor

    def __init__(self, config: Any, device: torch.device | str | None = None) -> None:
        super().__init__()
        side = config.image_size // config.patch_size
        exponents = torch.arange(0, config.head_dim, 2, device=device).float() / config.head_dim
        frequencies = 1.0 / config.rope_theta**exponents
        places = torch.arange(side, device=device)
        rows = torch.outer(places, frequencies[::2]).float()[:, None, :].expand(side, side, -1)
        columns = torch.outer(places, frequencies[1::2]).float()[None, :, :].expand(side, side, -1)
        angles = torch.cat([rows, columns], dim=-1).flatten(0, 1)
        self.register_buffer("inv_freq", torch.cat([angles, angles], dim=-1), persistent=False)

    def forward(self, x: torch.Tensor, position_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """`(tokens, head_dim)` each, in the dtype of `x`."""
        angles = self.inv_freq[position_ids].float()
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def position_ids_in_meshgrid(patch_embeds_list: Sequence[torch.Tensor], max_width: int) -> torch.Tensor:
    """Positions `row * max_width + column` of the patches of pictures `(..., rows, columns)`, behind each other."""
    positions = []
    for patches in patch_embeds_list:
        rows, columns = patches.shape[-2:]
        positions.append((torch.arange(rows)[:, None] * max_width + torch.arange(columns)).flatten())
    return torch.cat(positions)

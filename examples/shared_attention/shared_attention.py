"""Attention that ranks share by heads (Ulysses), as a text-to-image model outside vllm-omni may have it.

Each rank holds a part of the picture's tokens. Two exchanges give it all tokens of some heads, and back. It was written
where every device forgives, and holds two faults that only an NPU shows.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class Platform:
    """Which device this runs on."""

    @staticmethod
    def is_npu() -> bool:
        return hasattr(torch, "npu")


platform = Platform()


class PictureAttention:
    """Attention of all tokens to all; it chooses the kernel of a device by itself."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """All `(batch, tokens, heads, head_dim)`."""
        q, k, v = (part.transpose(1, 2) for part in (query, key, value))
        return F.scaled_dot_product_attention(q, k, v, scale=self.scale).transpose(1, 2)


class SharedAttention(nn.Module):
    """The attention of a block, over the tokens of all ranks."""

    def __init__(self, heads: int, head_dim: int) -> None:
        super().__init__()
        self.heads = heads
        self.scale = head_dim**-0.5
        self.attention = PictureAttention(self.scale)

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Of this rank's tokens, `(batch, tokens, heads, head_dim)`."""
        query, key, value = (heads_of_this_rank(part) for part in (query, key, value))
        if platform.is_npu():
            out = self.attention(query, key, value, num_heads=self.heads, input_layout="BSND", scale=self.scale)[0]
        else:
            out = self.attention.forward(query, key, value)
        return tokens_of_this_rank(out)


def heads_of_this_rank(part: torch.Tensor) -> torch.Tensor:
    """From some tokens of all heads to all tokens of some heads."""
    shards = list(part.chunk(dist.get_world_size(), dim=2))
    received = [torch.empty_like(shard) for shard in shards]
    dist.all_to_all(received, shards)
    return torch.cat(received, dim=1)


def tokens_of_this_rank(part: torch.Tensor) -> torch.Tensor:
    """And back."""
    shards = list(part.chunk(dist.get_world_size(), dim=1))
    received = [torch.empty_like(shard) for shard in shards]
    dist.all_to_all(received, shards)
    return torch.cat(received, dim=2)

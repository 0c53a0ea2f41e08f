"""The attention of a small vision tower."""

import torch
from torch import nn
from vllm.model_executor.layers.linear import QKVParallelLinear, RowParallelLinear

from .utils import vllm_version_is

if vllm_version_is("0.12.0"):
    from vllm.attention.layer import MultiHeadAttention
else:
    from vllm.model_executor.layers.attention import MMEncoderAttention as MultiHeadAttention


class PatchAttention(nn.Module):
    def __init__(self, width: int, heads: int, prefix: str = "") -> None:
        super().__init__()
        self.qkv_proj = QKVParallelLinear(width, width // heads, heads, prefix=f"{prefix}.qkv_proj")
        self.out_proj = RowParallelLinear(width, width, prefix=f"{prefix}.out_proj")
        self.attn = MultiHeadAttention(heads, width // heads, (width // heads) ** -0.5)  # no mask, no cache

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        qkv, _ = self.qkv_proj(x)
        q, k, v = qkv.chunk(3, dim=-1)
        out, _ = self.out_proj(self.attn(q, k, v))
        return out

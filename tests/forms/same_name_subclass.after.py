import torch
from torch import nn
from vllm.model_executor.layers.attention import (
    MMEncoderAttention as VllmMultiHeadAttention,
)


class MultiHeadAttention(VllmMultiHeadAttention):
    """With the layout that our device wants."""

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return super().forward(query.contiguous(), key.contiguous(), value.contiguous())


class PatchAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.attn = MultiHeadAttention(heads, width // heads, (width // heads) ** -0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return self.attn(q, k, v)

import torch
from torch import nn
from vllm.model_executor.layers.layernorm import RMSNorm


class Resampler(nn.Module):
    """Not vLLM's MultiHeadAttention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm = RMSNorm(width)

    def forward(self, query: torch.Tensor, image: torch.Tensor) -> torch.Tensor:
        out, _ = self.attn(query, image, image, need_weights=False)
        return self.norm(out)

import torch
from torch import nn
from vllm.config import VllmConfig

from vllm.model_executor.layers.attention import MMEncoderAttention  # exported by the package


class PatchAttention(nn.Module):
    def __init__(self, vllm_config: VllmConfig, heads: int, head_dim: int) -> None:
        super().__init__()
        self.attn = MMEncoderAttention(heads, head_dim, head_dim**-0.5)

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return self.attn(q, k, v)

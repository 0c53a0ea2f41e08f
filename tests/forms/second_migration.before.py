import torch
from torch import nn
from vllm.model_executor.layers.attention.mm_encoder_attention import MMEncoderAttention


class PatchAttention(nn.Module):
    def __init__(self, heads: int, head_dim: int, multimodal_config=None, prefix: str = "") -> None:
        super().__init__()
        self.attn = MMEncoderAttention(
            num_heads=heads,
            head_size=head_dim,
            scale=head_dim**-0.5,
            multimodal_config=multimodal_config,
            prefix=f"{prefix}.attn",
        )

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens, max_seqlen) -> torch.Tensor:
        return self.attn(query=q, key=k, value=v, cu_seqlens=cu_seqlens, max_seqlen=max_seqlen)


class Patches(nn.Module):
    def __init__(self, config, multimodal_config) -> None:
        super().__init__()
        self.attention = PatchAttention(config.heads, config.head_dim, multimodal_config=multimodal_config)

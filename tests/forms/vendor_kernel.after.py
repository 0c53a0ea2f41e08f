import torch
import torch.nn as nn
from einops import rearrange
from vllm.distributed import utils as dist_utils
from vllm.model_executor.layers.attention import MMEncoderAttention
from vllm.model_executor.models.vision import get_vit_attn_backend


class OrchardAttention(nn.Module):
    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        tp_size: int,
        prefix: str = "",
    ) -> None:
        super().__init__()
        self.head_dim = dist_utils.divide(hidden_size, num_heads)
        self.heads = dist_utils.divide(num_heads, tp_size)
        self.qkv = nn.Linear(hidden_size, 3 * hidden_size)
        self.proj = nn.Linear(hidden_size, hidden_size)
        self.attn = MMEncoderAttention(
            num_heads=self.heads,
            head_size=self.head_dim,
            scale=self.head_dim**-0.5,
            prefix=f"{prefix}.attn",
        )

    def forward(self, x: torch.Tensor, cu_seqlens: torch.Tensor, max_seqlen: torch.Tensor | None = None) -> torch.Tensor:
        seq_len, batch_size, _ = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (t.view(seq_len, batch_size, self.heads, self.head_dim) for t in (q, k, v))
        q, k, v = (rearrange(t, "s b h d -> b s h d").contiguous() for t in (q, k, v))

        context_layer = self.attn(
            query=q,
            key=k,
            value=v,
            cu_seqlens=cu_seqlens,
            max_seqlen=max_seqlen,
        )
        context_layer = rearrange(context_layer, "b s h d -> s b (h d)").contiguous()

        return self.proj(context_layer)

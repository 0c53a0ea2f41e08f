import torch
import torch.nn.functional as F
from torch import nn
from vllm.model_executor.layers.linear import ColumnParallelLinear


class MultiHeadAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = ColumnParallelLinear(width, width)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, xa: torch.Tensor | None = None, mask: torch.Tensor | None = None):
        q, _ = self.query(x)
        k, v = self.key(x if xa is None else xa), self.value(x if xa is None else xa)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=mask is not None)
        return self.out(out.transpose(1, 2).flatten(2))


class AudioBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attn = MultiHeadAttention(width, heads)
        self.cross_attn = MultiHeadAttention(width, heads)

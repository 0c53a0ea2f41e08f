import mlx.nn as nn
from mlx.nn import MultiHeadAttention


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attn = MultiHeadAttention(width, heads, bias=True)
        self.other = nn.MultiHeadAttention(width, heads)

from torch import nn
from vllm.attention.layer import *


class PatchAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attn = MultiHeadAttention(heads, width // heads, (width // heads) ** -0.5)

"""A vision tower as it was written for vLLM 0.12: pictures of one size, a scale of its own, a pooling head.

Original of the ports in `faults.py`; its port is made by `codemods.migrate`.
"""

import torch
from torch import nn
from vllm.attention.layer import MultiHeadAttention
from vllm.distributed import get_tensor_model_parallel_world_size
from vllm.model_executor.layers.linear import ColumnParallelLinear, QKVParallelLinear, RowParallelLinear


class FixedSizeAttention(nn.Module):
    """Self-attention of `(pictures, patches, hidden_size)`, sharper than usual."""

    def __init__(self, config, quant_config=None, prefix: str = "") -> None:
        super().__init__()
        self.head_dim = config.hidden_size // config.num_attention_heads
        self.scale = 1.5 * self.head_dim**-0.5
        self.heads = config.num_attention_heads // get_tensor_model_parallel_world_size()
        self.qkv_proj = QKVParallelLinear(
            hidden_size=config.hidden_size,
            head_size=self.head_dim,
            total_num_heads=config.num_attention_heads,
            quant_config=quant_config,
            prefix=f"{prefix}.qkv_proj",
        )
        self.out_proj = RowParallelLinear(config.hidden_size, config.hidden_size, prefix=f"{prefix}.out_proj")
        self.attn = MultiHeadAttention(self.heads, self.head_dim, self.scale)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        qkv, _ = self.qkv_proj(x)
        q, k, v = qkv.chunk(3, dim=-1)
        output, _ = self.out_proj(self.attn(q, k, v))
        return output


class FixedSizeLayer(nn.Module):
    def __init__(self, config, quant_config=None, prefix: str = "") -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.hidden_size, eps=1e-6)
        self.norm2 = nn.LayerNorm(config.hidden_size, eps=1e-6)
        self.self_attn = FixedSizeAttention(config, quant_config=quant_config, prefix=f"{prefix}.self_attn")
        self.fc1 = ColumnParallelLinear(config.hidden_size, config.intermediate_size, prefix=f"{prefix}.fc1")
        self.fc2 = RowParallelLinear(config.intermediate_size, config.hidden_size, prefix=f"{prefix}.fc2")
        self.act = nn.GELU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.self_attn(self.norm1(x))
        widened, _ = self.fc1(self.norm2(x))
        narrowed, _ = self.fc2(self.act(widened))
        return x + narrowed


class FixedSizePooling(nn.Module):
    """One query for each square of four patches attends to those four."""

    def __init__(self, config, prefix: str = "") -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.head_dim = config.hidden_size // config.num_attention_heads
        self.q_proj = nn.Linear(config.hidden_size, config.hidden_size)
        self.kv_proj = nn.Linear(config.hidden_size, 2 * config.hidden_size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pictures, patches, hidden = x.shape
        squares = x.reshape(pictures * patches // 4, 4, hidden)
        q = self.q_proj(squares.mean(dim=1, keepdim=True))
        k, v = self.kv_proj(squares).chunk(2, dim=-1)
        q, k, v = (part.unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2) for part in (q, k, v))
        pooled = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return pooled.reshape(pictures, patches // 4, hidden)


class FixedSizeVisionTower(nn.Module):
    def __init__(self, config, quant_config=None, prefix: str = "") -> None:
        super().__init__()
        self.patch_size = config.patch_size
        self.patch_embed = nn.Linear(config.num_channels * config.patch_size**2, config.hidden_size)
        patches = (config.image_size // config.patch_size) ** 2
        self.position_embedding = nn.Embedding(patches, config.hidden_size)
        self.layers = nn.ModuleList(
            [
                FixedSizeLayer(config, quant_config=quant_config, prefix=f"{prefix}.layers.{index}")
                for index in range(config.num_hidden_layers)
            ]
        )
        self.pooling = FixedSizePooling(config, prefix=f"{prefix}.pooling")

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        x = nn.functional.unfold(pixel_values, self.patch_size, stride=self.patch_size).transpose(1, 2)
        x = self.patch_embed(x) + self.position_embedding.weight
        for layer in self.layers:
            x = layer(x)
        return self.pooling(x)

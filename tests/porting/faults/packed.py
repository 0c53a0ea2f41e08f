"""A vision tower as it was written for vLLM 0.12: pictures of all sizes packed behind one another, rotary positions.

Original of the ports in `faults.py`; its port is made by `codemods.migrate`.
"""

import torch
from einops import rearrange
from torch import nn
from vllm.attention.backends.registry import AttentionBackendEnum
from vllm.attention.layer import maybe_get_vit_flash_attn_backend
from vllm.attention.ops.vit_attn_wrappers import vit_flash_attn_wrapper, vit_torch_sdpa_wrapper
from vllm.compilation.decorators import support_torch_compile
from vllm.distributed import get_tensor_model_parallel_world_size
from vllm.distributed.utils import divide
from vllm.model_executor.layers.linear import ColumnParallelLinear, QKVParallelLinear, RowParallelLinear
from vllm.model_executor.layers.rotary_embedding.common import dispatch_rotary_emb_function
from vllm.model_executor.models.vision import get_vit_attn_backend


def turn(x: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, dim=-1)
    return torch.cat((-right, left), dim=-1)


def rotate_plain(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    cos = torch.cat((cos, cos), dim=-1).unsqueeze(-2)
    sin = torch.cat((sin, sin), dim=-1).unsqueeze(-2)
    return x * cos + turn(x) * sin


def rotate(heads: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    kernel = dispatch_rotary_emb_function(default=rotate_plain)
    return kernel(heads.float(), angles.cos(), angles.sin()).type_as(heads)


class PackedAttention(nn.Module):
    """Self-attention of `(patches, 1, hidden_size)`, each frame by itself."""

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        quant_config=None,
        prefix: str = "",
        attn_backend: AttentionBackendEnum = AttentionBackendEnum.TORCH_SDPA,
        attn_backend_override: AttentionBackendEnum | None = None,
    ) -> None:
        super().__init__()
        self.head_dim = divide(hidden_size, num_heads)
        self.heads = divide(num_heads, get_tensor_model_parallel_world_size())
        self.qkv = QKVParallelLinear(
            hidden_size=hidden_size,
            head_size=self.head_dim,
            total_num_heads=num_heads,
            total_num_kv_heads=num_heads,
            quant_config=quant_config,
            prefix=f"{prefix}.qkv",
        )
        self.proj = RowParallelLinear(hidden_size, hidden_size, quant_config=quant_config, prefix=f"{prefix}.proj")
        self.attn_backend, self.flash_attn_varlen_func = maybe_get_vit_flash_attn_backend(
            attn_backend, attn_backend_override=attn_backend_override
        )
        self.is_flash_attn_backend = self.attn_backend in {
            AttentionBackendEnum.FLASH_ATTN,
            AttentionBackendEnum.ROCM_AITER_FA,
        }

    def forward(
        self,
        x: torch.Tensor,
        cu_seqlens: torch.Tensor,
        angles: torch.Tensor,
        max_seqlen: torch.Tensor | None = None,
    ) -> torch.Tensor:
        x, _ = self.qkv(x)
        batch = x.shape[1]
        q, k, v = (rearrange(part, "s b (h d) -> b s h d", d=self.head_dim) for part in x.chunk(3, dim=-1))
        q = rotate(q, angles)
        k = rotate(k, angles)
        if self.is_flash_attn_backend:
            context = vit_flash_attn_wrapper(
                q, k, v, cu_seqlens, max_seqlen, batch, self.attn_backend == AttentionBackendEnum.ROCM_AITER_FA
            )
        elif self.attn_backend == AttentionBackendEnum.TORCH_SDPA:
            context = vit_torch_sdpa_wrapper(q, k, v, cu_seqlens)
        output, _ = self.proj(context)
        return output


@support_torch_compile(dynamic_arg_dims={"x": 0, "cu_seqlens": 0, "angles": 0})
class PackedBlock(nn.Module):
    def __init__(
        self,
        config,
        quant_config=None,
        prefix: str = "",
        attn_backend: AttentionBackendEnum = AttentionBackendEnum.TORCH_SDPA,
        attn_backend_override: AttentionBackendEnum | None = None,
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.hidden_size, eps=1e-6)
        self.norm2 = nn.LayerNorm(config.hidden_size, eps=1e-6)
        self.attn = PackedAttention(
            config.hidden_size,
            config.num_heads,
            quant_config=quant_config,
            prefix=f"{prefix}.attn",
            attn_backend=attn_backend,
            attn_backend_override=attn_backend_override,
        )
        self.up = ColumnParallelLinear(config.hidden_size, config.intermediate_size, prefix=f"{prefix}.up")
        self.down = RowParallelLinear(config.intermediate_size, config.hidden_size, prefix=f"{prefix}.down")
        self.act = nn.GELU()

    def forward(
        self,
        x: torch.Tensor,
        cu_seqlens: torch.Tensor,
        angles: torch.Tensor,
        max_seqlen: torch.Tensor | None = None,
    ) -> torch.Tensor:
        x = x + self.attn(self.norm1(x), cu_seqlens=cu_seqlens, angles=angles, max_seqlen=max_seqlen)
        widened, _ = self.up(self.norm2(x))
        narrowed, _ = self.down(self.act(widened))
        return x + narrowed


class PackedVisionTower(nn.Module):
    def __init__(
        self,
        config,
        quant_config=None,
        prefix: str = "",
        attn_backend_override: AttentionBackendEnum | None = None,
    ) -> None:
        super().__init__()
        self.head_dim = config.hidden_size // config.num_heads
        pixels = config.in_channels * config.temporal_patch_size * config.patch_size**2
        self.patch_embed = nn.Linear(pixels, config.hidden_size)
        self.attn_backend = get_vit_attn_backend(
            head_size=self.head_dim,
            dtype=torch.get_default_dtype(),
            attn_backend_override=attn_backend_override,
        )
        self.attn_backend, _ = maybe_get_vit_flash_attn_backend(
            self.attn_backend, attn_backend_override=attn_backend_override
        )
        self.blocks = nn.ModuleList(
            [
                PackedBlock(
                    config=config,
                    quant_config=quant_config,
                    prefix=f"{prefix}.blocks.{index}",
                    attn_backend=self.attn_backend,
                    attn_backend_override=attn_backend_override,
                )
                for index in range(config.depth)
            ]
        )

    def compute_attn_mask_seqlen(self, cu_seqlens: torch.Tensor) -> torch.Tensor | None:
        max_seqlen = None
        if self.attn_backend in {AttentionBackendEnum.FLASH_ATTN, AttentionBackendEnum.ROCM_AITER_FA}:
            max_seqlen = (cu_seqlens[1:] - cu_seqlens[:-1]).max()
        return max_seqlen

    def angles(self, grid_thw: list[list[int]], device: torch.device) -> torch.Tensor:
        """Of every patch, half of its head turned by the row and half by the column: `(patches, head_dim / 2)`."""
        quarter = self.head_dim // 4
        speeds = 1.0 / 100.0 ** (torch.arange(quarter, device=device) / quarter)
        pictures = []
        for t, h, w in grid_thw:
            rows = torch.arange(h, device=device).repeat_interleave(w)
            columns = torch.arange(w, device=device).repeat(h)
            pictures.append(torch.cat((rows[:, None] * speeds, columns[:, None] * speeds), dim=1).repeat(t, 1))
        return torch.cat(pictures)

    def forward(self, x: torch.Tensor, grid_thw: list[list[int]]) -> torch.Tensor:
        frames = torch.tensor([h * w for t, h, w in grid_thw for _ in range(t)], device=x.device)
        cu_seqlens = nn.functional.pad(frames.cumsum(0, dtype=torch.int32), (1, 0))
        max_seqlen = self.compute_attn_mask_seqlen(cu_seqlens)
        angles = self.angles(grid_thw, x.device)
        x = self.patch_embed(x).unsqueeze(1)
        for block in self.blocks:
            x = block(x, cu_seqlens=cu_seqlens, angles=angles, max_seqlen=max_seqlen)
        return x.squeeze(1)

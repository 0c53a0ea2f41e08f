"""Attention inside the vision tower: many short sequences packed behind each other, each seeing only itself."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from einops import rearrange
from vllm.attention.backends.registry import AttentionBackendEnum
from vllm.attention.layer import maybe_get_vit_flash_attn_backend
from vllm.distributed import get_tensor_model_parallel_world_size
from vllm.distributed.utils import divide
from vllm.model_executor.layers.linear import QKVParallelLinear, RowParallelLinear
from vllm.model_executor.layers.quantization import QuantizationConfig
from vllm.model_executor.models.qwen2_vl import apply_rotary_pos_emb_vision
from vllm.model_executor.models.vision import get_vit_attn_backend


class OrchardVisionAttention(nn.Module):
    """Self-attention over packed patches, with rotary positions and the kernel that the device offers."""

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        quant_config: QuantizationConfig | None = None,
        prefix: str = "",
        use_data_parallel: bool = False,
        attn_backend_override: AttentionBackendEnum | None = None,
    ) -> None:
        super().__init__()
        tp_size = 1 if use_data_parallel else get_tensor_model_parallel_world_size()
        self.head_dim = divide(hidden_size, num_heads)
        self.heads_per_rank = divide(num_heads, tp_size)

        self.qkv = QKVParallelLinear(
            hidden_size=hidden_size,
            head_size=self.head_dim,
            total_num_heads=num_heads,
            total_num_kv_heads=num_heads,
            bias=True,
            quant_config=quant_config,
            prefix=f"{prefix}.qkv",
            disable_tp=use_data_parallel,
        )
        self.proj = RowParallelLinear(
            input_size=hidden_size,
            output_size=hidden_size,
            quant_config=quant_config,
            prefix=f"{prefix}.proj",
            disable_tp=use_data_parallel,
        )

        # Flash attention where the device has it, PyTorch's own kernel everywhere else.
        self.attn_backend = get_vit_attn_backend(
            head_size=self.head_dim,
            dtype=torch.get_default_dtype(),
            attn_backend_override=attn_backend_override,
        )
        self.attn_backend, self.flash_attn_varlen_func = maybe_get_vit_flash_attn_backend(
            self.attn_backend,
            attn_backend_override=attn_backend_override,
        )
        if self.attn_backend not in {
            AttentionBackendEnum.FLASH_ATTN,
            AttentionBackendEnum.ROCM_AITER_FA,
            AttentionBackendEnum.TORCH_SDPA,
        }:
            raise RuntimeError(f"Orchard-VL cannot run its vision tower on {self.attn_backend}.")
        self.is_flash_attn_backend = self.attn_backend in {
            AttentionBackendEnum.FLASH_ATTN,
            AttentionBackendEnum.ROCM_AITER_FA,
        }

    def forward(
        self,
        x: torch.Tensor,
        cu_seqlens: torch.Tensor,
        rotary_cos: torch.Tensor,
        rotary_sin: torch.Tensor,
        max_seqlen: int | None = None,  # flash attention alone needs it
    ) -> torch.Tensor:
        # [patches, 1, hidden] -> three of [1, patches, heads, head_dim]
        qkv, _ = self.qkv(x)
        q, k, v = (rearrange(part, "s b (h d) -> b s h d", d=self.head_dim) for part in qkv.chunk(3, dim=-1))
        batch_size = q.shape[0]

        q = apply_rotary_pos_emb_vision(q, rotary_cos, rotary_sin)
        k = apply_rotary_pos_emb_vision(k, rotary_cos, rotary_sin)

        if self.is_flash_attn_backend:
            q, k, v = (rearrange(part, "b s ... -> (b s) ...") for part in (q, k, v))
            packed = self.flash_attn_varlen_func(
                q,
                k,
                v,
                cu_seqlens_q=cu_seqlens,
                cu_seqlens_k=cu_seqlens,
                max_seqlen_q=max_seqlen,
                max_seqlen_k=max_seqlen,
                dropout_p=0.0,
                causal=False,
            )
            context = rearrange(packed, "(b s) h d -> s b (h d)", b=batch_size).contiguous()
        elif self.attn_backend == AttentionBackendEnum.TORCH_SDPA:
            # One window or frame at a time: a mask over all of them would not fit in memory.
            parts = []
            for i in range(1, len(cu_seqlens)):
                start, end = cu_seqlens[i - 1], cu_seqlens[i]
                q_i, k_i, v_i = (rearrange(part[:, start:end], "b s h d -> b h s d") for part in (q, k, v))
                part_i = F.scaled_dot_product_attention(q_i, k_i, v_i, dropout_p=0.0)
                parts.append(rearrange(part_i, "b h s d -> b s h d"))
            context = torch.cat(parts, dim=1)
            context = rearrange(context, "b s h d -> s b (h d)").contiguous()

        output, _ = self.proj(context)
        return output

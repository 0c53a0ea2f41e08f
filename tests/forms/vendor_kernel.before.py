import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_npu
from einops import rearrange
from vllm.attention.backends.registry import AttentionBackendEnum
from vllm.attention.layer import maybe_get_vit_flash_attn_backend
from vllm.distributed import utils as dist_utils
from vllm.model_executor.models.vision import get_vit_attn_backend
from vllm.platforms import current_platform


class OrchardAttention(nn.Module):
    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        tp_size: int,
        prefix: str = "",
        attn_backend: AttentionBackendEnum = AttentionBackendEnum.TORCH_SDPA,
        attn_backend_override: AttentionBackendEnum | None = None,
    ) -> None:
        super().__init__()
        self.head_dim = dist_utils.divide(hidden_size, num_heads)
        self.heads = dist_utils.divide(num_heads, tp_size)
        self.qkv = nn.Linear(hidden_size, 3 * hidden_size)
        self.proj = nn.Linear(hidden_size, hidden_size)
        self.attn_backend = attn_backend
        self.attn_backend, self.flash_attn_varlen_func = maybe_get_vit_flash_attn_backend(
            self.attn_backend,
            attn_backend_override=attn_backend_override,
        )
        self.is_flash_attn_backend = self.attn_backend in {
            AttentionBackendEnum.FLASH_ATTN,
            AttentionBackendEnum.ROCM_AITER_FA,
        }

    def forward(self, x: torch.Tensor, cu_seqlens: torch.Tensor, max_seqlen: int | None = None) -> torch.Tensor:
        seq_len, batch_size, _ = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (t.view(seq_len, batch_size, self.heads, self.head_dim) for t in (q, k, v))
        q, k, v = (rearrange(t, "s b h d -> b s h d").contiguous() for t in (q, k, v))

        if self.is_flash_attn_backend:
            q, k, v = (rearrange(t, "b s ... -> (b s) ...") for t in (q, k, v))
            output = self.flash_attn_varlen_func(
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
            context_layer = rearrange(output, "(b s) h d -> s b (h d)", b=batch_size).contiguous()
        elif current_platform.is_out_of_tree():
            q, k, v = (rearrange(t, "b s ... -> (b s) ...").contiguous() for t in (q, k, v))
            output = torch.empty_like(q)
            torch_npu._npu_flash_attention_unpad(
                query=q,
                key=k,
                value=v,
                seq_len=(cu_seqlens[1:] - cu_seqlens[:-1]).to("cpu"),
                scale_value=self.head_dim**-0.5,
                num_heads=self.heads,
                num_kv_heads=self.heads,
                out=output,
            )
            context_layer = rearrange(output, "(b s) h d -> s b (h d)", b=batch_size).contiguous()
        elif self.attn_backend == AttentionBackendEnum.TORCH_SDPA:
            # one image after the other: each sees only itself
            outputs = []
            for i in range(1, len(cu_seqlens)):
                start, end = cu_seqlens[i - 1], cu_seqlens[i]
                q_i, k_i, v_i = (rearrange(t[:, start:end], "b s h d -> b h s d") for t in (q, k, v))
                output_i = F.scaled_dot_product_attention(q_i, k_i, v_i, dropout_p=0.0)
                outputs.append(rearrange(output_i, "b h s d -> b s h d"))
            context_layer = torch.cat(outputs, dim=1)
            context_layer = rearrange(context_layer, "b s h d -> s b (h d)").contiguous()

        return self.proj(context_layer)

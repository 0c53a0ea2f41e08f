"""Vision attention as releases before the port computed it, by plain `scaled_dot_product_attention`.

Sources: vLLM 0.10.2 to 0.14.0, `attention/layer.py`, `attention/ops/vit_attn_wrappers.py`,
`attention/layers/mm_encoder_attention.py`. Where the backend is FLASH_ATTN, the kernel is the one that the installed
vLLM calls, looked up at each call.

Layouts: `b` batch, `s` tokens, `h` heads, `d` head_dim; all sequences of a batch of one lie behind each other and
`cu_seqlens` (int32, first 0, last s) says where each begins.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from porting.shim.backends import FLASH, vision_backend
from porting.shim.installed import flash_module


def flash_attn_varlen_func(*args: Any, **kwargs: Any) -> Any:
    """The flash kernel of the installed vLLM. Takes and gives `(tokens, h, d)`."""
    return importlib.import_module(flash_module()).flash_attn_varlen_func(*args, **kwargs)


def upstream_flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    **keywords: Any,
) -> Any:
    """The kernel in the library `flash_attn`, which takes the same in another order."""
    return flash_attn_varlen_func(
        q,
        k,
        v,
        cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_k=cu_seqlens_k,
        max_seqlen_q=max_seqlen_q,
        max_seqlen_k=max_seqlen_k,
        dropout_p=dropout_p,
        softmax_scale=softmax_scale,
        causal=causal,
        **keywords,
    )


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float | None = None) -> torch.Tensor:
    """Full attention within each row of a batch. `(b, s, h, d)`, heads of k and v repeated already; the same out."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, dropout_p=0.0, scale=scale).transpose(1, 2)


def attend_within(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: list[int], scale: float | None = None
) -> torch.Tensor:
    """Attention within each of the sequences, of `lengths` tokens, that lie behind each other. `(b, s, h, d)`."""
    parts = zip(q.split(lengths, dim=1), k.split(lengths, dim=1), v.split(lengths, dim=1))
    return torch.cat([attend(*part, scale) for part in parts], dim=1)


def lengths_of(cu_seqlens: torch.Tensor) -> list[int]:
    """Lengths of the sequences from where they begin."""
    lengths: list[int] = (cu_seqlens[1:] - cu_seqlens[:-1]).tolist()
    return lengths


def repeat_heads(x: torch.Tensor, times: int) -> torch.Tensor:
    """Grouped-query heads repeated to one for each head of the query. `(b, s, kv heads, d)`."""
    return x.repeat_interleave(times, dim=2) if times > 1 else x


def sdpa_wrapper(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens: torch.Tensor) -> torch.Tensor:
    """`vit_torch_sdpa_wrapper` of 0.11.1 to 0.12: `(b, s, h, d)` in, `(s, b, h*d)` out, contiguous."""
    return attend_within(q, k, v, lengths_of(cu_seqlens)).transpose(0, 1).flatten(2).contiguous()


def sdpa_wrapper_0_13(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens: torch.Tensor) -> torch.Tensor:
    """The same in 0.13: `(b, s, h, d)` in and out."""
    return attend_within(q, k, v, lengths_of(cu_seqlens))


def xformers_wrapper(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seqlens: torch.Tensor) -> torch.Tensor:
    """`vit_xformers_attn_wrapper` of 0.11.1 and 0.11.2: `(1, s, h, d)` in, `(s, 1, h*d)` out, contiguous."""
    return attend_within(q, k, v, seqlens.tolist()).transpose(0, 1).flatten(2).contiguous()


def flash_wrapper(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens: torch.Tensor,
    max_seqlen: torch.Tensor,
    batch_size: int,
    is_rocm_aiter: bool,
    use_upstream_fa: bool = False,  # 0.11.1 and 0.11.2 only
) -> torch.Tensor:
    """`vit_flash_attn_wrapper` of 0.11.1 to 0.12: `(b, s, h, d)` in, `(s, b, h*d)` out, contiguous."""
    output = flash_wrapper_0_13(q, k, v, cu_seqlens, max_seqlen, batch_size, is_rocm_aiter)
    return output.transpose(0, 1).flatten(2).contiguous()


def flash_wrapper_0_13(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens: torch.Tensor,
    max_seqlen: torch.Tensor,
    batch_size: int,
    is_rocm_aiter: bool,
) -> torch.Tensor:
    """The same in 0.13: `(b, s, h, d)` in and out."""
    return _flash_within(q, k, v, cu_seqlens, max_seqlen).unflatten(0, (batch_size, -1))


def _flash_within(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens: torch.Tensor,
    max_seqlen: torch.Tensor,
    **scale: float,
) -> Any:
    """The kernel within each sequence: `(b, s, h, d)` in, `(b*s, h, d)` out. Without a scale none is passed."""
    longest = max_seqlen.item()
    return flash_attn_varlen_func(
        *(x.flatten(0, 1) for x in (q, k, v)),
        cu_seqlens_q=cu_seqlens,
        cu_seqlens_k=cu_seqlens,
        max_seqlen_q=longest,
        max_seqlen_k=longest,
        dropout_p=0.0,
        causal=False,
        **scale,
    )


class MultiHeadAttention(nn.Module):
    """Attention without a cache, as vision towers used it up to 0.13: whole rows of a batch attend to each other.

    `(b, s, h*d)` or `(b, s, h, d)` in, `(b, s, h*d)` out.
    """

    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int | None = None,
        prefix: str = "",  # since 0.11.1, as the next
        multimodal_config: Any = None,
    ) -> None:
        super().__init__()
        self.num_heads, self.head_size, self.scale = num_heads, head_size, scale
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        assert num_heads % self.num_kv_heads == 0, f"{num_heads} heads over {self.num_kv_heads} of keys and values"
        self.num_queries_per_kv = num_heads // self.num_kv_heads
        override = getattr(multimodal_config, "mm_encoder_attn_backend", None)
        self.attn_backend = vision_backend(head_size, override=override)
        self.is_flash_attn_backend = self.attn_backend.name in FLASH

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        batch, q_len, kv_len = query.shape[0], query.shape[1], key.shape[1]
        query = query.view(batch, q_len, self.num_heads, self.head_size)
        key, value = (
            repeat_heads(x.view(batch, kv_len, self.num_kv_heads, self.head_size), self.num_queries_per_kv)
            for x in (key, value)
        )
        if not self.is_flash_attn_backend:
            return attend(query, key, value, self.scale).reshape(batch, q_len, -1)
        output = flash_attn_varlen_func(
            *(x.flatten(0, 1) for x in (query, key, value)),
            cu_seqlens_q=_starts(batch, q_len, query.device),
            cu_seqlens_k=_starts(batch, kv_len, key.device),
            max_seqlen_q=q_len,
            max_seqlen_k=kv_len,
            softmax_scale=self.scale,
        )
        return output.reshape(batch, q_len, -1)


class EncoderAttention(MultiHeadAttention):
    """MMEncoderAttention of 0.14, by plain attention. `(b, s, h*d)` or `(b, s, h, d)` in, the same out."""

    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float | None = None,
        num_kv_heads: int | None = None,
        prefix: str = "",
        multimodal_config: Any = None,
    ) -> None:
        scale = head_size**-0.5 if scale is None else scale
        super().__init__(num_heads, head_size, scale, num_kv_heads, prefix, multimodal_config)

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        cu_seqlens: torch.Tensor | None = None,
        max_seqlen: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if cu_seqlens is None:
            return super().forward(query, key, value).reshape(query.shape)
        batch, tokens = query.shape[:2]
        q = query.view(batch, tokens, self.num_heads, self.head_size)
        k, v = (
            repeat_heads(x.view(batch, tokens, self.num_kv_heads, self.head_size), self.num_queries_per_kv)
            for x in (key, value)
        )
        if not self.is_flash_attn_backend:
            return attend_within(q, k, v, lengths_of(cu_seqlens), self.scale).reshape(query.shape)
        assert max_seqlen is not None, "cu_seqlens without max_seqlen"
        return _flash_within(q, k, v, cu_seqlens, max_seqlen, softmax_scale=self.scale).reshape(query.shape)


class EncoderAttentionIgnoringScale(EncoderAttention):
    """MMEncoderAttention of 0.13: takes `scale` and does not use it, wants `cu_seqlens`, gives `(b, s, h, d)`."""

    def __init__(self, num_heads: int, head_size: int, scale: float | None = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(num_heads, head_size, None, *args, **kwargs)
        self.unused_scale = self.scale if scale is None else scale  # what releases after it would use

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        cu_seqlens: torch.Tensor | None = None,
        max_seqlen: torch.Tensor | None = None,
    ) -> torch.Tensor:
        assert cu_seqlens is not None, "MMEncoderAttention of vLLM 0.13 wants cu_seqlens"
        output = super().forward(query, key, value, cu_seqlens, max_seqlen)
        return output.view(*query.shape[:2], self.num_heads, self.head_size)


def _starts(batch: int, length: int, device: torch.device) -> torch.Tensor:
    return torch.arange(0, (batch + 1) * length, step=length, dtype=torch.int32, device=device)

"""FlashAttention for packed sequences, as strict as its CUDA kernels."""

from __future__ import annotations

import torch

from porting.reference.attention import attend
from porting.reference.contract import Contract

CONTRACT = Contract("flash_attn_varlen_func")
PAGED = "pages are for a key-value cache, which an encoder has not"


def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    max_seqlen_q: int,
    cu_seqlens_q: torch.Tensor,
    max_seqlen_k: int,
    cu_seqlens_k: torch.Tensor | None = None,
    seqused_k: torch.Tensor | None = None,
    q_v: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: list[int] | tuple[int, int] | None = None,
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: torch.Tensor | None = None,
    return_softmax_lse: bool = False,
    out: torch.Tensor | None = None,
    fa_version: int | None = None,
) -> torch.Tensor:
    """`vllm.vllm_flash_attn.flash_attn_varlen_func` (signature of vLLM 0.32) for the self-attention of an encoder.

    `q` is `(tokens, heads, head_dim)`, `k` and `v` `(tokens, kv_heads, head_dim)`, float16 or bfloat16 (here also
    float32 and float64), last dimension contiguous, head_dim a multiple of 8 up to 256. `cu_seqlens_q` and
    `cu_seqlens_k` are equal: int32, on the device of `q`, from 0 in ascending order to the number of tokens.
    `max_seqlen_q` and `max_seqlen_k` are Python ints, at least the longest sequence; what lies beyond is not computed
    by the real kernel. (vLLM's own wrapper takes a tensor since 0.11.1 and gives the kernel its `item()`.)
    `softmax_scale` None means head_dim**-0.5. `out`, if given, is filled and returned.

    Raises ContractViolation where the real kernel raises, or computes something else, and for the options that make it
    another attention than an encoder's: causal, windows, ALiBi, soft caps, dropout, paged keys.
    """
    CONTRACT.absent("causal", causal, (False,), "an encoder's tokens see one another both ways")
    CONTRACT.absent("window_size", window_size, (None, (-1, -1), [-1, -1]), "windows of an encoder are its sequences")
    CONTRACT.absent("alibi_slopes", alibi_slopes, (None,), "it adds a bias to the scores")
    CONTRACT.absent("softcap", softcap, (0.0, None), "it bends the scores")
    CONTRACT.absent("dropout_p", dropout_p, (0.0,), "a served model drops nothing")
    CONTRACT.absent("seqused_k", seqused_k, (None,), PAGED)
    CONTRACT.absent("block_table", block_table, (None,), PAGED)
    CONTRACT.absent("q_v", q_v, (None,), "it is another attention")
    CONTRACT.absent("return_attn_probs", return_attn_probs, (False,), "the result would be a tuple")
    CONTRACT.absent("return_softmax_lse", return_softmax_lse, (False,), "the result would be a tuple")
    CONTRACT.packed(q, k, v)
    CONTRACT.head_dim(q, multiple=8, largest=256)
    lengths = CONTRACT.cumulative("cu_seqlens_q", cu_seqlens_q, q)
    if cu_seqlens_k is None:
        CONTRACT.broken("cu_seqlens_k", None, "must be given where cu_seqlens_q is")
    lengths_k = CONTRACT.cumulative("cu_seqlens_k", cu_seqlens_k, k)
    CONTRACT.require(
        lengths_k == lengths, "cu_seqlens_k", cu_seqlens_k.tolist(), f"must be cu_seqlens_q, {cu_seqlens_q.tolist()}"
    )
    CONTRACT.longest("max_seqlen_q", max_seqlen_q, lengths)
    CONTRACT.longest("max_seqlen_k", max_seqlen_k, lengths)
    if out is None:
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
    fits = isinstance(out, torch.Tensor) and (out.shape, out.dtype, out.device) == (q.shape, q.dtype, q.device)
    CONTRACT.require(fits and out.stride(-1) == 1, "out", out, "must be like q, last dimension contiguous")
    return attend(q, k, v, lengths, q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale, out)

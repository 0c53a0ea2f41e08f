"""Variable-length attention, twice: in float64 from its definition, and as PyTorch computes it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch


def varlen_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seqlens: Sequence[int] | torch.Tensor,
    scale: float | None = None,
) -> torch.Tensor:
    """What right is: softmax(query key^T scale) value in float64, in each sequence by itself.

    `query` is `(tokens, heads, head_dim)`, `key` and `value` `(tokens, kv_heads, head_dim)`, where heads is a multiple
    of kv_heads: query head i attends to key head i // (heads // kv_heads). Sequence i is tokens `cu_seqlens[i]` to
    `cu_seqlens[i + 1]`. `scale` is head_dim**-0.5 if it is None. The result has the shape of `query` and is float64.
    """
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    bounds = [int(bound) for bound in cu_seqlens]
    groups = query.shape[1] // key.shape[1]
    q = query.to(torch.float64)
    k, v = (tensor.to(torch.float64).repeat_interleave(groups, dim=1) for tensor in (key, value))
    output = torch.empty_like(q, memory_format=torch.contiguous_format)
    for start, end in itertools.pairwise(bounds):
        scores = torch.einsum("qhd,khd->hqk", q[start:end], k[start:end]) * scale
        output[start:end] = torch.einsum("hqk,khd->qhd", scores.softmax(dim=-1), v[start:end])
    return output


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    lengths: Sequence[int],
    scale: float,
    out: torch.Tensor,
) -> torch.Tensor:
    """Fill `out` with attention in the dtype of `query`, one `scaled_dot_product_attention` for each sequence.

    Shapes as in `varlen_attention`. This is the arithmetic of vLLM's own CPU path, so that a port whose kernels are
    called rightly gives the same numbers there and here, bit for bit.
    """
    start = 0
    for length in lengths:
        if length:
            q, k, v = (tensor[None, start : start + length].transpose(1, 2) for tensor in (query, key, value))
            attended = torch.nn.functional.scaled_dot_product_attention(
                q, k, v, scale=scale, enable_gqa=query.shape[1] != key.shape[1]
            )
            out[start : start + length] = attended.transpose(1, 2)[0]
        start += length
    return out

"""What vision towers up to 0.11 took from xFormers, by plain attention.

Source: xFormers 0.0.32, `ops/fmha`. Layouts as in `porting.shim.attention`.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from porting.shim.attention import attend, attend_within


class BlockDiagonalMask:
    """xFormers' mask for sequences that lie behind each other in a batch of one."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths

    @classmethod
    def from_seqlens(
        cls, q_seqlen: list[int], kv_seqlen: list[int] | None = None, device: Any = None
    ) -> BlockDiagonalMask:
        assert kv_seqlen is None or list(kv_seqlen) == list(q_seqlen), "cross-attention is not computed here"
        return cls(list(q_seqlen))


def memory_efficient_attention_forward(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: BlockDiagonalMask | None = None,
    p: float = 0.0,
    scale: float | None = None,
) -> torch.Tensor:
    """xFormers' attention: `(b, s, h, d)` in and out."""
    assert p == 0, "dropout is not computed here"
    if attn_bias is None:
        return attend(query, key, value, scale)
    assert isinstance(attn_bias, BlockDiagonalMask), f"the mask {type(attn_bias).__name__} is not computed here"
    return attend_within(query, key, value, attn_bias.lengths, scale)


XFORMERS_OPS = SimpleNamespace(
    memory_efficient_attention_forward=memory_efficient_attention_forward,
    memory_efficient_attention=memory_efficient_attention_forward,
)

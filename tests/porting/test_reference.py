"""The strict kernels compute what attention is by its definition, and refuse what the real ones refuse."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from porting.reference import (
    ContractViolation,
    context_attention_fwd,
    flash_attn_varlen_func,
    npu_flash_attention_unpad,
    npu_fused_infer_attention_score,
    npu_fusion_attention,
    varlen_attention,
)


@dataclass(frozen=True)
class Packed:
    """Packed sequences: query of `(tokens, heads, head_dim)`, key and value of `(tokens, kv_heads, head_dim)`."""

    lengths: tuple[int, ...]
    heads: int = 4
    kv_heads: int = 4
    head_dim: int = 16
    dtype: torch.dtype = torch.float32
    scale: float = 0.3

    @property
    def bounds(self) -> list[int]:
        return [0, *itertools.accumulate(self.lengths)]

    @property
    def cu_seqlens(self) -> torch.Tensor:
        return torch.tensor(self.bounds, dtype=torch.int32)

    def qkv(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(sum(self.lengths))
        return tuple(
            torch.randn(sum(self.lengths), heads, self.head_dim, generator=generator).to(self.dtype)
            for heads in (self.heads, self.kv_heads, self.kv_heads)
        )

    def right(self) -> torch.Tensor:
        return varlen_attention(*self.qkv(), self.bounds, self.scale)


def flash(packed: Packed, **changed: Any) -> torch.Tensor:
    q, k, v = packed.qkv()
    return flash_attn_varlen_func(
        **{
            "q": q,
            "k": k,
            "v": v,
            "cu_seqlens_q": packed.cu_seqlens,
            "cu_seqlens_k": packed.cu_seqlens,
            "max_seqlen_q": max(packed.lengths),
            "max_seqlen_k": max(packed.lengths),
            "softmax_scale": packed.scale,
            **changed,
        }
    )


def triton(packed: Packed, **changed: Any) -> torch.Tensor:
    q, k, v = packed.qkv()
    arguments = {
        "q": q,
        "k": k,
        "v": v,
        "o": torch.empty_like(q),
        "b_start_loc": packed.cu_seqlens[:-1],
        "b_seq_len": packed.cu_seqlens.diff(),
        "max_input_len": max(packed.lengths),
        "is_causal": False,
        "softmax_scale": packed.scale,
        **changed,
    }
    context_attention_fwd(**arguments)
    return arguments["o"]


def unpad(packed: Packed, **changed: Any) -> torch.Tensor:
    q, k, v = packed.qkv()
    arguments = {
        "query": q,
        "key": k,
        "value": v,
        "seq_len": packed.cu_seqlens.diff(),
        "scale_value": packed.scale,
        "num_heads": packed.heads,
        "num_kv_heads": packed.kv_heads,
        "out": torch.empty_like(q),
        **changed,
    }
    npu_flash_attention_unpad(**arguments)
    return arguments["out"]


def fusion(packed: Packed, **changed: Any) -> torch.Tensor:
    q, k, v = packed.qkv()
    return npu_fusion_attention(
        **{
            "query": q,
            "key": k,
            "value": v,
            "head_num": packed.heads,
            "input_layout": "TND",
            "scale": packed.scale,
            "actual_seq_qlen": packed.bounds[1:],
            "actual_seq_kvlen": packed.bounds[1:],
            **changed,
        }
    )[0]


def infer(packed: Packed, **changed: Any) -> torch.Tensor:
    q, k, v = packed.qkv()
    return npu_fused_infer_attention_score(
        **{
            "query": q,
            "key": k,
            "value": v,
            "num_heads": packed.heads,
            "num_key_value_heads": packed.kv_heads,
            "input_layout": "TND",
            "scale": packed.scale,
            "actual_seq_lengths": packed.bounds[1:],
            "actual_seq_lengths_kv": packed.bounds[1:],
            **changed,
        }
    )[0]


KERNELS: dict[str, Callable[..., torch.Tensor]] = {
    "flash": flash,
    "triton": triton,
    "unpad": unpad,
    "fusion": fusion,
    "infer": infer,
}
# What a result in that dtype may be off by, where queries, keys and values are N(0, 1): half a unit in the last place
# of numbers up to 4, and the rounding of the sums before.
ROUNDING = {torch.float64: 1e-12, torch.float32: 5e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}

packed_sequences = st.builds(
    Packed,
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(any).map(tuple),
    heads=st.just(4),
    kv_heads=st.sampled_from([4, 2, 1]),
    head_dim=st.sampled_from([16, 32, 64, 80]),
    dtype=st.sampled_from(list(ROUNDING)),
    scale=st.floats(0.05, 1.0),
)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@given(packed=packed_sequences)
@settings(max_examples=25, deadline=None, derandomize=True)
def test_a_kernel_computes_attention(kernel: Callable[..., torch.Tensor], packed: Packed) -> None:
    output = kernel(packed)

    assert output.dtype == packed.dtype
    torch.testing.assert_close(output.double(), packed.right(), rtol=0, atol=ROUNDING[packed.dtype])


@given(packed=packed_sequences.filter(lambda packed: sum(length > 0 for length in packed.lengths) > 1))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_a_sequence_sees_itself_alone(packed: Packed) -> None:
    """The reference, one sequence at a time with plain softmax, head by head."""
    q, k, v = (tensor.double() for tensor in packed.qkv())
    for start, end in itertools.pairwise(packed.bounds):
        for head in range(packed.heads):
            shared = head // (packed.heads // packed.kv_heads)
            scores = packed.scale * q[start:end, head] @ k[start:end, shared].T
            weights = scores.exp() / scores.exp().sum(dim=1, keepdim=True)
            torch.testing.assert_close(packed.right()[start:end, head], weights @ v[start:end, shared])


@pytest.mark.parametrize("kernel", [flash, triton])
def test_no_scale_is_the_usual_scale(kernel: Callable[..., torch.Tensor]) -> None:
    packed = Packed((3, 5), head_dim=64, scale=1 / math.sqrt(64))

    torch.testing.assert_close(kernel(packed, softmax_scale=None).double(), packed.right(), rtol=0, atol=5e-6)


def test_without_a_scale_fusion_attention_does_not_scale() -> None:
    packed = Packed((3, 5), scale=1.0)
    q, k, v = packed.qkv()

    output = npu_fusion_attention(q, k, v, 4, "TND", actual_seq_qlen=[3, 8], actual_seq_kvlen=[3, 8])[0]

    torch.testing.assert_close(output.double(), packed.right(), rtol=0, atol=5e-6)


def test_flash_fills_the_output_that_it_is_given() -> None:
    out = torch.full((8, 4, 16), torch.nan)

    assert flash(Packed((3, 5)), out=out) is out
    assert torch.equal(out, flash(Packed((3, 5))))


def test_sequences_may_be_empty_and_max_seqlen_generous() -> None:
    packed = Packed((0, 3, 0, 5))

    output = flash(packed, max_seqlen_q=99, max_seqlen_k=99)

    torch.testing.assert_close(output.double(), packed.right(), rtol=0, atol=5e-6)


def test_the_triton_kernel_reads_wide_integers_too() -> None:
    packed = Packed((3, 5))

    output = triton(packed, b_start_loc=torch.tensor([0, 3]), b_seq_len=torch.tensor([3, 5]))

    assert torch.equal(output, triton(packed))


INT32 = torch.int32
LONG = Packed((3, 5))
BROKEN: dict[str, tuple[Callable[..., torch.Tensor], dict[str, Any], str]] = {
    # argument by argument; the last is what the message says
    "flash, flat heads": (
        flash,
        {"q": torch.ones(8, 64)},
        "q is a tensor of float32, shape (8, 64), on cpu; must be (t",
    ),
    "flash, no tensor": (flash, {"k": [[[1.0]]]}, "k is [[[1.0]]]; must be a tensor"),
    "flash, batched": (flash, {"q": torch.ones(1, 8, 4, 16)}, "q is a tensor of float32, shape (1, 8, 4, 16)"),
    "flash, integers": (flash, {"q": torch.ones(8, 4, 16, dtype=INT32)}, "must be of a floating dtype"),
    "flash, mixed dtypes": (flash, {"v": torch.ones(8, 4, 16).half()}, "must have the dtype of q, torch.float32"),
    "flash, two devices": (flash, {"k": torch.ones(8, 4, 16, device="meta")}, "must be where q is, on cpu"),
    "flash, heads transposed": (
        flash,
        {"q": torch.ones(8, 16, 4).transpose(1, 2)},
        "last dimension must be contiguous",
    ),
    "flash, keys are not values": (flash, {"v": torch.ones(8, 2, 16)}, "must have the shape of k, (8, 4, 16)"),
    "flash, cross-attention": (flash, {"k": torch.ones(9, 4, 16), "v": torch.ones(9, 4, 16)}, "must have the 8 tokens"),
    "flash, head_dim of keys": (flash, {"k": torch.ones(8, 4, 8), "v": torch.ones(8, 4, 8)}, "must have the head_dim"),
    "flash, heads do not divide": (flash, {"k": torch.ones(8, 3, 16), "v": torch.ones(8, 3, 16)}, "must divide the 4"),
    "flash, odd head_dim": (
        flash,
        dict.fromkeys("qkv", torch.ones(8, 4, 12)),
        "head_dim must be a multiple of 8",
    ),
    "flash, large head_dim": (
        flash,
        dict.fromkeys("qkv", torch.ones(8, 4, 264)),
        "head_dim must be at most 256",
    ),
    "flash, int64": (flash, {"cu_seqlens_q": torch.tensor([0, 3, 8])}, "cu_seqlens_q is a tensor of int64, shape (3,)"),
    "flash, int64 of keys": (flash, {"cu_seqlens_k": torch.tensor([0, 3, 8])}, "cu_seqlens_k is a tensor of int64"),
    "flash, list": (flash, {"cu_seqlens_q": [0, 3, 8]}, "cu_seqlens_q is [0, 3, 8]; must be a tensor"),
    "flash, one number": (flash, {"cu_seqlens_q": torch.tensor(8, dtype=INT32)}, "must have one dimension"),
    "flash, lengths": (flash, {"cu_seqlens_q": torch.tensor([3, 5], dtype=INT32)}, "is [3, 5]; must begin with 0"),
    "flash, no end": (flash, {"cu_seqlens_q": torch.tensor([0], dtype=INT32)}, "must have at least two entries"),
    "flash, elsewhere": (flash, {"cu_seqlens_q": LONG.cu_seqlens.to("meta")}, "must be where q is, on cpu"),
    "flash, every other": (
        flash,
        {"cu_seqlens_q": torch.tensor([0, 9, 3, 9, 8], dtype=INT32)[::2]},
        "cu_seqlens_q is a tensor of int32, shape (3,), on cpu; must be contiguous",
    ),
    "flash, backwards": (
        flash,
        {"cu_seqlens_q": torch.tensor([0, 9, 8], dtype=INT32)},
        "must not have negative lengths",
    ),
    "flash, a picture short": (flash, {"cu_seqlens_q": torch.tensor([0, 3], dtype=INT32)}, "must cover the 8 tokens"),
    "flash, too long": (flash, {"cu_seqlens_q": torch.tensor([0, 3, 9], dtype=INT32)}, "must cover the 8 tokens"),
    "flash, queries alone": (flash, {"cu_seqlens_k": None}, "must be given where cu_seqlens_q is"),
    "flash, other keys": (flash, {"cu_seqlens_k": torch.tensor([0, 4, 8], dtype=INT32)}, "must be cu_seqlens_q, [0, 3"),
    "flash, max_seqlen too small": (flash, {"max_seqlen_q": 4}, "max_seqlen_q is 4; must be at least the longest sequ"),
    "flash, max_seqlen of keys": (flash, {"max_seqlen_k": 4}, "max_seqlen_k is 4; must be at least"),
    "flash, max_seqlen tensor": (flash, {"max_seqlen_q": torch.tensor(5)}, "must be a Python int"),
    "flash, causal": (flash, {"causal": True}, "causal is True; must be left out"),
    "flash, window": (flash, {"window_size": (4, 4)}, "window_size is (4, 4); must be left out"),
    "flash, alibi": (flash, {"alibi_slopes": torch.ones(4)}, "alibi_slopes is a tensor of float32"),
    "flash, soft cap": (flash, {"softcap": 30.0}, "softcap is 30.0"),
    "flash, dropout": (flash, {"dropout_p": 0.1}, "dropout_p is 0.1"),
    "flash, pages": (flash, {"block_table": torch.ones(1)}, "block_table is a tensor"),
    "flash, used keys": (flash, {"seqused_k": torch.ones(1)}, "seqused_k is a tensor"),
    "flash, another query": (flash, {"q_v": torch.ones(8, 4, 16)}, "q_v is a tensor"),
    "flash, probabilities": (flash, {"return_attn_probs": True}, "return_attn_probs is True"),
    "flash, log-sum-exp": (flash, {"return_softmax_lse": True}, "return_softmax_lse is True"),
    "flash, small out": (flash, {"out": torch.ones(7, 4, 16)}, "out is a tensor of float32, shape (7, 4, 16)"),
    "flash, other out": (flash, {"out": torch.ones(8, 4, 16).half()}, "out is a tensor of float16"),
    "triton, heads transposed": (triton, {"v": torch.ones(8, 16, 4).transpose(1, 2)}, "last dimension must be contig"),
    "triton, causal": (triton, {"is_causal": True}, "is_causal is True; must be left out"),
    "triton, window": (triton, {"sliding_window_q": 4}, "sliding_window_q is 4"),
    "triton, window of keys": (triton, {"sliding_window_k": 4}, "sliding_window_k is 4"),
    "triton, list": (triton, {"b_start_loc": [0, 3]}, "b_start_loc is [0, 3]; must be a tensor"),
    "triton, a column": (triton, {"b_seq_len": torch.tensor([[3], [5]])}, "must be a contiguous vector"),
    "triton, no sequences": (triton, {"b_start_loc": torch.tensor([], dtype=INT32)}, "at least one sequence"),
    "triton, flat heads": (triton, {"q": torch.ones(8, 64)}, "must be (tokens, heads, head_dim)"),
    "triton, sinks": (triton, {"sinks": torch.ones(4)}, "sinks is a tensor"),
    "triton, biased sinks": (triton, {"sinks_bias_key0": True}, "sinks_bias_key0 is True"),
    "triton, starts of floats": (triton, {"b_start_loc": torch.tensor([0.0, 3.0])}, "must be of integers"),
    "triton, starts elsewhere": (triton, {"b_start_loc": LONG.cu_seqlens[:-1].to("meta")}, "must be where q is"),
    "triton, one start more": (triton, {"b_start_loc": LONG.cu_seqlens}, "b_seq_len is a tensor of int32, shape (2,)"),
    "triton, a gap": (triton, {"b_start_loc": torch.tensor([0, 4])}, "is [0, 4]; sequences of [3, 5] begin at [0, 3]"),
    "triton, not all tokens": (triton, {"b_seq_len": torch.tensor([3, 4])}, "must cover the 8 tokens"),
    "triton, max_input_len": (triton, {"max_input_len": 3}, "must be at least the longest sequence, 5"),
    "triton, max_input_len tensor": (triton, {"max_input_len": torch.tensor(5)}, "must be a Python int"),
    "triton, small output": (triton, {"o": torch.ones(8, 2, 16)}, "o is a tensor of float32, shape (8, 2, 16)"),
    "unpad, flat heads": (unpad, {"query": torch.ones(8, 64)}, "must be (tokens, heads, head_dim)"),
    "unpad, heads of keys": (unpad, {"num_kv_heads": 3}, "num_kv_heads is 3; must divide 4"),
    "unpad, on the device": (unpad, {"seq_len": torch.tensor([3, 5]).to("meta")}, "must be on the host"),
    "unpad, int64": (unpad, {"seq_len": torch.tensor([3, 5])}, "seq_len is a tensor of int64, shape (2,)"),
    "unpad, a column": (unpad, {"seq_len": torch.tensor([[3], [5]], dtype=INT32)}, "must have one dimension"),
    "unpad, cumulative": (unpad, {"seq_len": LONG.cu_seqlens}, "must cover the 8 tokens"),
    "unpad, list": (unpad, {"seq_len": [3, 5]}, "seq_len is [3, 5]; must be a tensor"),
    "unpad, heads": (unpad, {"num_heads": 8}, "num_heads is 8; query has 4 heads"),
    "unpad, head_dim": (
        unpad,
        {**dict.fromkeys(("query", "key", "value"), torch.ones(8, 4, 72)), "out": torch.ones(8, 4, 72)},
        "head_dim must be a multiple of 16",
    ),
    "unpad, strides": (unpad, {"query": torch.ones(4, 8, 16).transpose(0, 1)}, "must be contiguous throughout"),
    "unpad, small out": (unpad, {"out": torch.ones(8, 4, 8)}, "must be allocated like query"),
    "fusion, layout": (fusion, {"input_layout": "BSND"}, "input_layout is BSND; packed sequences are TND"),
    "fusion, no ends": (fusion, {"actual_seq_qlen": None}, "actual_seq_qlen is None; must be given in layout TND"),
    "fusion, leading zero": (fusion, {"actual_seq_qlen": [0, 3, 8]}, "must be actual_seq_qlen"),
    "fusion, lengths": (fusion, {"actual_seq_qlen": [3, 5]}, "must cover the 8 tokens"),
    "fusion, tensor": (fusion, {"actual_seq_qlen": torch.tensor([3, 8])}, "must be a list of integers"),
    "fusion, mask": (fusion, {"atten_mask": torch.ones(8, 8)}, "atten_mask is a tensor"),
    "fusion, heads": (fusion, {"head_num": 2}, "head_num is 2; query has 4 heads"),
    "fusion, dropout": (fusion, {"keep_prob": 0.9}, "keep_prob is 0.9"),
    "fusion, bias": (fusion, {"pse": torch.ones(8, 8)}, "pse is a tensor"),
    "fusion, sparse": (fusion, {"sparse_mode": 3}, "sparse_mode is 3"),
    "fusion, flat heads": (fusion, {"query": torch.ones(8, 64)}, "must be (tokens, heads, head_dim)"),
    "fusion, large head_dim": (
        fusion,
        dict.fromkeys(("query", "key", "value"), torch.ones(8, 4, 520)),
        "head_dim must be at most 512",
    ),
    "infer, layout": (infer, {"input_layout": "BSH"}, "input_layout is BSH; packed sequences are TND"),
    "infer, mask": (infer, {"atten_mask": torch.ones(8, 8)}, "atten_mask is a tensor"),
    "infer, heads": (infer, {"num_heads": 2}, "num_heads is 2; query has 4 heads"),
    "infer, flat heads": (infer, {"query": torch.ones(8, 64)}, "must be (tokens, heads, head_dim)"),
    "infer, large head_dim": (infer, dict.fromkeys(("query", "key", "value"), torch.ones(8, 4, 520)), "at most 512"),
    "infer, other keys": (infer, {"actual_seq_lengths_kv": [4, 8]}, "must be actual_seq_lengths"),
    "infer, pages": (infer, {"block_table": torch.ones(1)}, "block_table is a tensor"),
}


@pytest.mark.parametrize(("kernel", "changed", "message"), BROKEN.values(), ids=BROKEN)
def test_a_broken_rule_is_named(kernel: Callable[..., torch.Tensor], changed: dict[str, Any], message: str) -> None:
    kernel(LONG)  # right as it is

    with pytest.raises(ContractViolation) as refused:
        kernel(LONG, **changed)

    assert message in str(refused.value)


def test_a_violation_carries_its_parts() -> None:
    with pytest.raises(ContractViolation) as refused:
        flash(LONG, max_seqlen_k=4)

    assert (refused.value.kernel, refused.value.argument, refused.value.value) == (
        "flash_attn_varlen_func",
        "max_seqlen_k",
        "4",
    )

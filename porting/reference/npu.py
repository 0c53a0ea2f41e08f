"""The operators of torch_npu that Ascend's encoder attention calls, as strict as they are.

vllm-ascend 0.13.0 and, for the 310P, 0.18.0 call `_npu_flash_attention_unpad`, 0.18.0 `npu_fusion_attention`, 0.23.0
`npu_fused_infer_attention_score`. All three take packed sequences whose lengths are known on the host.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch

from porting.reference.attention import attend
from porting.reference.contract import Contract

UNPAD = Contract("_npu_flash_attention_unpad")
FUSION = Contract("npu_fusion_attention")
INFER = Contract("npu_fused_infer_attention_score")

HOST = "must be on the host: the operator reads it before it is launched"


def npu_flash_attention_unpad(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    seq_len: torch.Tensor,
    scale_value: float,
    num_heads: int,
    num_kv_heads: int,
    out: torch.Tensor,
) -> None:
    """`torch_npu._npu_flash_attention_unpad`: fills `out`.

    `query` and `out` are `(tokens, num_heads, head_dim)`, `key` and `value` `(tokens, num_kv_heads, head_dim)`, all
    contiguous; head_dim is a multiple of 16. `seq_len` holds the length of each sequence, int32, on the host. (Ascend's
    encoder attention repeats grouped keys and still names the number before that; what counts is what `key` has.)
    Raises ContractViolation.
    """
    UNPAD.packed(query, key, value)
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        strides = f"a tensor with strides {tensor.stride()}"
        UNPAD.require(tensor.is_contiguous(), name, strides, "must be contiguous throughout")
    UNPAD.head_dim(query, multiple=16, largest=256)
    _heads(UNPAD, "num_heads", num_heads, query)
    UNPAD.require(num_heads % max(num_kv_heads, 1) == 0, "num_kv_heads", num_kv_heads, f"must divide {num_heads}")
    UNPAD.require(isinstance(seq_len, torch.Tensor), "seq_len", seq_len, "must be a tensor")
    UNPAD.require(seq_len.device.type == "cpu", "seq_len", seq_len, HOST)
    UNPAD.require(seq_len.dtype == torch.int32, "seq_len", seq_len, "must be int32")
    UNPAD.require(seq_len.dim() == 1, "seq_len", seq_len, "must have one dimension")
    lengths = UNPAD.lengths("seq_len", seq_len.tolist(), query)
    fits = isinstance(out, torch.Tensor) and (out.shape, out.dtype, out.device) == (
        query.shape,
        query.dtype,
        query.device,
    )
    UNPAD.require(fits and out.is_contiguous(), "out", out, "must be allocated like query, and contiguous")
    attend(query, key, value, lengths, scale_value, out)


def npu_fusion_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    head_num: int,
    input_layout: str,
    *,
    scale: float = 1.0,
    keep_prob: float = 1.0,
    pse: torch.Tensor | None = None,
    atten_mask: torch.Tensor | None = None,
    sparse_mode: int = 0,
    actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None,
) -> tuple[torch.Tensor, ...]:
    """`torch_npu.npu_fusion_attention` in layout TND: the output, then the three tensors that training would want.

    `query` is `(tokens, head_num, head_dim)`, `key` and `value` `(tokens, kv_heads, head_dim)`, last dimension
    contiguous, head_dim up to 512. `actual_seq_qlen` and `actual_seq_kvlen` are equal lists of where each sequence
    ends: no leading zero, and integers of the host. `scale` is 1 if it is left out, not head_dim**-0.5. The three other
    tensors are left empty.
    Raises ContractViolation.
    """
    FUSION.require(input_layout == "TND", "input_layout", input_layout, "packed sequences are TND")
    _dense(FUSION, pse, atten_mask, sparse_mode)
    FUSION.absent("keep_prob", keep_prob, (1.0,), "a served model drops nothing")
    FUSION.packed(query, key, value)
    FUSION.head_dim(query, multiple=1, largest=512)
    _heads(FUSION, "head_num", head_num, query)
    lengths = _ends(FUSION, "actual_seq_qlen", actual_seq_qlen, query)
    lengths_kv = _ends(FUSION, "actual_seq_kvlen", actual_seq_kvlen, key)
    FUSION.require(lengths == lengths_kv, "actual_seq_kvlen", actual_seq_kvlen, "must be actual_seq_qlen")
    empty = query.new_empty(0)
    return attend(query, key, value, lengths, scale, torch.empty_like(query)), empty, empty, empty


def npu_fused_infer_attention_score(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    num_heads: int,
    input_layout: str,
    scale: float = 1.0,
    num_key_value_heads: int = 0,
    pse_shift: torch.Tensor | None = None,
    atten_mask: torch.Tensor | None = None,
    actual_seq_lengths: Sequence[int] | None = None,
    actual_seq_lengths_kv: Sequence[int] | None = None,
    block_table: torch.Tensor | None = None,
    block_size: int = 0,
    sparse_mode: int = 0,
    pre_tokens: int = 2147483647,
    next_tokens: int = 2147483647,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`torch_npu.npu_fused_infer_attention_score` in layout TND: the output, and an empty log-sum-exp.

    As `npu_fusion_attention`, whose `actual_seq_qlen` and `actual_seq_kvlen` are called `actual_seq_lengths` and
    `actual_seq_lengths_kv` here. Raises ContractViolation.
    """
    INFER.require(input_layout == "TND", "input_layout", input_layout, "packed sequences are TND")
    _dense(INFER, pse_shift, atten_mask, sparse_mode)
    INFER.absent("block_table", block_table, (None,), "pages are for a key-value cache, which an encoder has not")
    INFER.packed(query, key, value)
    INFER.head_dim(query, multiple=1, largest=512)
    _heads(INFER, "num_heads", num_heads, query)
    lengths = _ends(INFER, "actual_seq_lengths", actual_seq_lengths, query)
    lengths_kv = _ends(INFER, "actual_seq_lengths_kv", actual_seq_lengths_kv, key)
    INFER.require(lengths == lengths_kv, "actual_seq_lengths_kv", actual_seq_lengths_kv, "must be actual_seq_lengths")
    return attend(query, key, value, lengths, scale, torch.empty_like(query)), query.new_empty(0)


def _heads(contract: Contract, argument: str, heads: int, query: torch.Tensor) -> None:
    contract.require(heads == query.shape[1], argument, heads, f"query has {query.shape[1]} heads")


def _dense(contract: Contract, shift: object, mask: object, sparse_mode: int) -> None:
    contract.absent("pse", shift, (None,), "it adds a bias to the scores")
    contract.absent("atten_mask", mask, (None,), "windows of an encoder are its sequences")
    contract.absent("sparse_mode", sparse_mode, (0,), "an encoder's tokens see one another both ways")


def _ends(contract: Contract, argument: str, ends: Sequence[int] | None, query: torch.Tensor) -> list[int]:
    if ends is None:
        contract.broken(argument, None, "must be given in layout TND")
    contract.require(
        isinstance(ends, (list, tuple)) and all(_is_host_integer(end) for end in ends),
        argument,
        ends,
        f"must be a list of integers, and {HOST}",
    )
    numbers = [int(end) for end in ends]
    lengths = [end - start for start, end in itertools.pairwise([0, *numbers])]
    return contract.lengths(argument, lengths, query)


def _is_host_integer(value: object) -> bool:
    if isinstance(value, torch.Tensor):
        return value.device.type == "cpu" and value.dim() == 0 and not value.is_floating_point()
    return isinstance(value, int)

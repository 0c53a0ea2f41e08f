"""vLLM's Triton kernel for prefill, which is also its Triton path for encoders, as strict as it should be.

The real one (`vllm/v1/attention/ops/triton_prefill_attention.py`, an encoder's since vLLM 0.17) checks nothing: what is
refused here is computed wrongly there, without a word.
"""

from __future__ import annotations

import torch

from porting.reference.attention import attend
from porting.reference.contract import Contract

CONTRACT = Contract("context_attention_fwd")


def context_attention_fwd(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    b_start_loc: torch.Tensor,
    b_seq_len: torch.Tensor,
    max_input_len: int,
    is_causal: bool = True,
    softmax_scale: float | None = None,
    sliding_window_q: int | None = None,
    sliding_window_k: int | None = None,
    sinks: torch.Tensor | None = None,
    sinks_bias_key0: bool = False,
) -> None:
    """`context_attention_fwd` (signature of vLLM 0.32) for the self-attention of an encoder: fills `o`.

    `q` and `o` are `(tokens, heads, head_dim)`, `k` and `v` `(tokens, kv_heads, head_dim)`, last dimension contiguous:
    the kernel takes that stride for granted. `b_start_loc` and `b_seq_len` are where each sequence begins and how long
    it is: integers (32 or 64 bits, the kernel takes both), on the device of `q`, one after the other and covering all
    tokens, as what lies between is left uncomputed. `max_input_len` is a Python int, at least the longest sequence.
    `softmax_scale` None means head_dim**-0.5.

    Raises ContractViolation for anything else, and for causal masks, windows and sinks.
    """
    CONTRACT.absent("is_causal", is_causal, (False,), "an encoder's tokens see one another both ways")
    CONTRACT.absent("sliding_window_q", sliding_window_q, (None, 0), "windows of an encoder are its sequences")
    CONTRACT.absent("sliding_window_k", sliding_window_k, (None, 0), "windows of an encoder are its sequences")
    CONTRACT.absent("sinks", sinks, (None,), "they are another attention")
    CONTRACT.absent("sinks_bias_key0", sinks_bias_key0, (False,), "they are another attention")
    CONTRACT.packed(q, k, v)
    for name, tensor in (("b_start_loc", b_start_loc), ("b_seq_len", b_seq_len)):
        CONTRACT.require(isinstance(tensor, torch.Tensor), name, tensor, "must be a tensor")
        CONTRACT.require(tensor.dtype in (torch.int32, torch.int64), name, tensor, "must be of integers")
        CONTRACT.require(tensor.dim() == 1 and tensor.is_contiguous(), name, tensor, "must be a contiguous vector")
        CONTRACT.require(tensor.numel() > 0, name, tensor, "must name at least one sequence")
        CONTRACT.require(tensor.device == q.device, name, tensor, f"must be where q is, on {q.device}")
    CONTRACT.require(
        b_start_loc.shape == b_seq_len.shape, "b_seq_len", b_seq_len, f"must have {len(b_start_loc)} entries"
    )
    lengths = CONTRACT.lengths("b_seq_len", b_seq_len.tolist(), q)
    starts = [sum(lengths[:place]) for place in range(len(lengths))]
    CONTRACT.require(
        b_start_loc.tolist() == starts, "b_start_loc", b_start_loc.tolist(), f"sequences of {lengths} begin at {starts}"
    )
    CONTRACT.longest("max_input_len", max_input_len, lengths)
    fits = isinstance(o, torch.Tensor) and (o.shape, o.dtype, o.device) == (q.shape, q.dtype, q.device)
    CONTRACT.require(fits and o.stride(-1) == 1, "o", o, "must be like q, last dimension contiguous")
    attend(q, k, v, lengths, q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale, o)

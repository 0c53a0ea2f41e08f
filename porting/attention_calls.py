"""What encoder attention was called with while a tower ran, and whether it answered as an fp64 reference does."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from porting.reference.attention import varlen_attention

# How far an answer may be from the reference, as a part of the largest value: attention is a mean of values. A kernel
# of 16 bits rounds the weights and the result.
ALLOWED = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


class WrongCall(ValueError):
    """Attention was called with what has no meaning."""


@dataclass(frozen=True)
class Call:
    """One call of one op: what it got, as `(batch, tokens, heads, head_dim)`, and what it gave, of the query's size."""

    name: str
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    cu_seqlens: torch.Tensor | None
    scale: float
    output: torch.Tensor

    def error(self) -> float:
        """The distance to the reference as a part of the largest value. Raises WrongCall."""
        expected = self.expected()
        return float((self.output.reshape(expected.shape).double() - expected).abs().max() / self.value.abs().max())

    def expected(self) -> torch.Tensor:
        """Attention in float64, `(batch, tokens, heads, head_dim)`. Without cu_seqlens each row is a sequence."""
        batch, tokens, _, _ = self.query.shape
        if self.cu_seqlens is None:
            rows = zip(self.query, self.key, self.value)
            return torch.stack([varlen_attention(*row, (0, tokens), self.scale) for row in rows])
        bounds = self.cu_seqlens.tolist()
        if bounds[0] != 0 or bounds[-1] != batch * tokens or sorted(bounds) != bounds:
            raise WrongCall(f"cu_seqlens {_short(bounds)} do not cover the {batch * tokens} tokens, from 0 to the last")
        q, k, v = (tensor.flatten(0, 1) for tensor in (self.query, self.key, self.value))
        return varlen_attention(q, k, v, bounds, self.scale).view(self.query.shape)


@contextmanager
def attention_calls(tower: nn.Module) -> Iterator[list[Call]]:
    """Every call of an encoder attention op in a tower, in its order, while the block lasts."""
    calls: list[Call] = []
    hooks = [
        op.register_forward_hook(_recorder(name, calls), with_kwargs=True) for name, op in attention_ops(tower).items()
    ]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


def attention_ops(tower: nn.Module) -> dict[str, Any]:
    """The encoder attention ops in a tower, by name: vLLM's, a subclass, or what a platform has put in its place."""
    return {name: module for name, module in tower.named_modules() if isinstance(module, mm_encoder_attention())}


def mm_encoder_attention() -> type[nn.Module]:
    """vLLM's op, wherever this release has it: 0.14 moved it."""
    try:
        from vllm.model_executor.layers.attention.mm_encoder_attention import MMEncoderAttention
    except ImportError:
        from vllm.attention.layers.mm_encoder_attention import MMEncoderAttention
    op: type[nn.Module] = MMEncoderAttention
    return op


def _recorder(name: str, calls: list[Call]) -> Any:
    def record(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: torch.Tensor) -> None:
        names = inspect.signature(mm_encoder_attention().forward_native).bind(op, *args, **kwargs).arguments
        query, key, value = (names[side].detach() for side in ("query", "key", "value"))
        if query.dim() == 2:  # a subclass may take `(tokens, features)`
            query, key, value = query[None], key[None], value[None]
        batch, tokens = query.shape[:2]
        calls.append(
            Call(
                name,
                query.reshape(batch, tokens, op.num_heads, op.head_size),
                key.reshape(batch, key.shape[1], op.num_kv_heads, op.head_size),
                value.reshape(batch, value.shape[1], op.num_kv_heads, op.head_size),
                names.get("cu_seqlens"),
                op.scale,
                output.detach(),
            )
        )

    return record


def _short(bounds: list[int]) -> str:
    return str(bounds) if len(bounds) <= 8 else f"[{bounds[0]}, {bounds[1]}, ... {bounds[-1]}]"

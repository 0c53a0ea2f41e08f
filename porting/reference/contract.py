"""What every strict kernel insists on, and how it says that something is broken."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import torch

# The dtypes of the real kernels. float32 and float64 are let through as well, which no flash kernel does: comparing two
# ways of computing the same thing needs numbers that are not rounded to three digits.
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class ContractViolation(ValueError):
    """A kernel was called in a way that the real one refuses, or silently computes something else for.

    `kernel` and `argument` are names, `value` says what was given, `rule` what was wanted and what would happen.
    """

    def __init__(self, kernel: str, argument: str, value: str, rule: str) -> None:
        super().__init__(f"{kernel}: {argument} is {value}; {rule}")
        self.kernel = kernel
        self.argument = argument
        self.value = value
        self.rule = rule


@dataclass(frozen=True)
class Contract:
    """The rules of the kernel of that name. Every method raises ContractViolation."""

    kernel: str

    def broken(self, argument: str, value: object, rule: str) -> NoReturn:
        """That argument breaks that rule."""
        raise ContractViolation(self.kernel, argument, describe(value), rule)

    def require(self, holds: bool, argument: str, value: object, rule: str) -> None:
        """The rule holds."""
        if not holds:
            self.broken(argument, value, rule)

    def absent(self, argument: str, value: object, absent: Sequence[object], why: str) -> None:
        """An option of the kernel that encoder attention never takes is left at one of its neutral values."""
        neutral = any(value is one or (not isinstance(value, torch.Tensor) and value == one) for one in absent)
        self.require(neutral, argument, value, f"must be left out: {why}")

    def packed(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, grouped: bool = True) -> None:
        """Query, key and value are `(tokens, heads, head_dim)` and fit one another."""
        named = {"q": query, "k": key, "v": value}
        for name, tensor in named.items():
            self.require(isinstance(tensor, torch.Tensor), name, tensor, "must be a tensor")
            self.require(tensor.dim() == 3, name, tensor, "must be (tokens, heads, head_dim)")
            self.require(tensor.dtype in DTYPES, name, tensor, "must be of a floating dtype")
            self.require(tensor.dtype == query.dtype, name, tensor, f"must have the dtype of q, {query.dtype}")
            self.require(tensor.device == query.device, name, tensor, f"must be where q is, on {query.device}")
            self.require(
                tensor.shape[2] == 1 or tensor.stride(2) == 1,
                name,
                f"{describe(tensor)} with strides {tensor.stride()}",
                "the last dimension must be contiguous: the kernel reads a head's numbers one after another",
            )
        self.require(key.shape == value.shape, "v", value, f"must have the shape of k, {tuple(key.shape)}")
        self.require(key.shape[0] == query.shape[0], "k", key, f"must have the {query.shape[0]} tokens of q")
        self.require(key.shape[2] == query.shape[2], "k", key, f"must have the head_dim of q, {query.shape[2]}")
        if grouped:
            rule = f"its number of heads must divide the {query.shape[1]} of q"
        else:
            rule = f"must have the {query.shape[1]} heads of q"
        fits = query.shape[1] % max(key.shape[1], 1) == 0 if grouped else key.shape[1] == query.shape[1]
        self.require(fits and key.shape[1] > 0, "k", key, rule)

    def head_dim(self, query: torch.Tensor, multiple: int, largest: int) -> None:
        """The head dimension is one that the kernel was compiled for."""
        size = query.shape[2]
        self.require(size % multiple == 0, "q", query, f"head_dim must be a multiple of {multiple}")
        self.require(size <= largest, "q", query, f"head_dim must be at most {largest}")

    def cumulative(self, argument: str, cumulative: torch.Tensor, query: torch.Tensor) -> list[int]:
        """`cumulative` is where each sequence begins, and the end of the last: the lengths of the sequences."""
        self.require(isinstance(cumulative, torch.Tensor), argument, cumulative, "must be a tensor")
        self.require(
            cumulative.dtype == torch.int32,
            argument,
            cumulative,
            "must be int32: the kernel reads its memory as 32-bit integers",
        )
        self.require(cumulative.dim() == 1, argument, cumulative, "must have one dimension")
        self.require(cumulative.numel() >= 2, argument, cumulative, "must have at least two entries, 0 and the end")
        self.require(cumulative.device == query.device, argument, cumulative, f"must be where q is, on {query.device}")
        self.require(cumulative.is_contiguous(), argument, cumulative, "must be contiguous")
        bounds = cumulative.tolist()
        self.require(bounds[0] == 0, argument, bounds, "must begin with 0, else the first sequence is left out")
        return self.lengths(argument, [end - start for start, end in itertools.pairwise(bounds)], query)

    def lengths(self, argument: str, lengths: list[int], query: torch.Tensor) -> list[int]:
        """The lengths of sequences that together are all tokens."""
        self.require(min(lengths, default=0) >= 0, argument, lengths, "sequences must not have negative lengths")
        tokens = query.shape[0]
        self.require(
            sum(lengths) == tokens,
            argument,
            f"for sequences of {lengths}, {sum(lengths)} tokens in all",
            f"must cover the {tokens} tokens of q, no more and no less",
        )
        return lengths

    def longest(self, argument: str, longest: object, lengths: list[int]) -> None:
        """`longest` is a Python int and no sequence is longer."""
        self.require(
            isinstance(longest, int) and not isinstance(longest, bool),
            argument,
            longest,
            "must be a Python int: it sizes the launch of the kernel, which cannot wait for a tensor",
        )
        assert isinstance(longest, int)
        self.require(
            longest >= max(lengths),
            argument,
            longest,
            f"must be at least the longest sequence, {max(lengths)}: the kernel leaves what is beyond it uncomputed",
        )


def describe(value: object) -> str:
    """A value in an error message; of a tensor its dtype, shape and device."""
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        return f"a tensor of {dtype}, shape {tuple(value.shape)}, on {value.device}"
    return value if isinstance(value, str) else repr(value)

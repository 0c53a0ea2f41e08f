"""Shapes followed symbolically: an axis is as long in one tensor as in another only where that is proved.

Lengths are tokens. The same token stands for the same length, whatever that is; tokens that differ prove nothing.
Axes are counted `[batch, sequence, ...]`, as vLLM's encoder attention takes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

NOTHING = object()  # a constant that is not known
AXES = 5  # axes that are followed: batch, sequence, q/k/v, head, channel


@dataclass(frozen=True, eq=False)
class Token:
    """A length, a shape, or a value that is no tensor. `roots`: the inputs (`x`, `self.latents`) it is made from."""

    roots: frozenset[str] = frozenset()
    path: str | None = None  # `self.attn`: reached from self by names alone
    dotted: str | None = None  # the imported name it is
    constant: object = NOTHING

    @property
    def is_weight(self) -> bool:
        """Whether it is made of nothing but constants and attributes of self."""
        return all(root.startswith("self.") for root in self.roots)


@dataclass(frozen=True)
class Value:
    """A tensor, or anything else that can be passed. Equal `shape`: equal in every axis (no tensor: the same value)."""

    shape: Token
    axes: tuple[Token, ...]
    rank: int | None = None

    @property
    def lead(self) -> tuple[Token, ...]:
        """What must agree between q, k and v: batch and sequence."""
        return self.axes[:2]


@dataclass(frozen=True)
class Sizes:
    """`x.shape`."""

    of: Value


@dataclass(frozen=True)
class Many:
    """A tuple or list whose items are known."""

    items: tuple[AnyValue, ...]


@dataclass(frozen=True)
class Each:
    """A sequence of unknown length with items alike; `even`: they have one shape."""

    like: Value
    even: bool = True


AnyValue: TypeAlias = "Value | Sizes | Many | Each"


class Table:
    """Gives the same token for the same parts. Parts are strings, numbers and other tokens."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Token] = {}

    def token(
        self,
        *parts: object,
        roots: Iterable[str] | None = None,
        path: str | None = None,
        dotted: str | None = None,
        constant: object = NOTHING,
    ) -> Token:
        found = self._known.get(parts)
        if found is None:
            inherited = frozenset(root for part in parts if isinstance(part, Token) for root in part.roots)
            found = Token(inherited if roots is None else frozenset(roots), path, dotted, constant)
            self._known[parts] = found
        return found

    def constant(self, value: object) -> Value:
        return self.value(self.token("constant", repr(value), constant=value), 0)

    def value(self, shape: Token, rank: int | None = None, lead: Sequence[Token] = ()) -> Value:
        """A tensor of this shape; the leading axes may be known otherwise."""
        axes = [*lead, *(self.token("axis", index, shape) for index in range(len(lead), AXES))]
        return Value(shape, tuple(axes[:AXES]), rank)

    def sized(self, sizes: Sequence[Token]) -> Value:
        """A tensor with exactly these sizes."""
        return self.value(self.token("sizes", *sizes), len(sizes), sizes)

    def like(self, value: Value, *parts: object, rank: int | None = None) -> Value:
        """Another shape with the batch and sequence of `value`."""
        return self.value(self.token(*parts, value.shape), rank, value.lead)

    # -- any value -------------------------------------------------------------------------------------------------

    def flat(self, value: AnyValue) -> Token:
        """One token for a value of any kind."""
        if isinstance(value, Value):
            return value.shape
        if isinstance(value, Sizes):
            return self.token("shape of", value.of.shape)
        if isinstance(value, Many):
            return self.token("many", *(self.flat(item) for item in value.items))
        return self.token("each", value.like.shape, value.even)

    def single(self, value: AnyValue) -> Value:
        return value if isinstance(value, Value) else self.value(self.flat(value))

    def item(self, value: AnyValue, index: int, count: int | None = None) -> AnyValue:
        """What one of `count` targets gets when `value` is unpacked, or what `value[index]` is."""
        if isinstance(value, Many):
            if -len(value.items) <= index < len(value.items):
                return value.items[index]
            return self.value(self.token("item", index, self.flat(value)))
        if isinstance(value, Sizes):
            return self.value(self.axis(value.of, index if count is None or index >= 0 else index + count), 0)
        if isinstance(value, Each):
            return value.like if value.even else self.like(value.like, "piece", index, rank=value.like.rank)
        return self.value(self.token("item", index, value.shape))

    def axis(self, value: Value, index: int) -> Token:
        """The length of an axis; a negative index needs the rank."""
        if index < 0 and value.rank is not None:
            index += value.rank
        return value.axes[index] if 0 <= index < AXES else self.token("axis", index, value.shape)

    def element(self, value: AnyValue, which: object) -> AnyValue:
        """What a loop over `value` gives. `which`: the loop, for two loops give two elements."""
        if isinstance(value, Many) and value.items and all(item == value.items[0] for item in value.items):
            return value.items[0]
        if isinstance(value, Each):
            return value.like if value.even else self.like(value.like, "some piece", which, rank=value.like.rank)
        token = self.flat(value)
        return self.value(
            self.token("element", token, which, roots=token.roots, path=f"{token.path}[]" if token.path else None)
        )

    def join(self, test: Token, a: AnyValue, b: AnyValue) -> AnyValue:
        """Either of two values, by the outcome of a test."""
        if a == b:
            return a
        if isinstance(a, Many) and isinstance(b, Many) and len(a.items) == len(b.items):
            return Many(tuple(self.join(test, x, y) for x, y in zip(a.items, b.items)))
        left, right = self.single(a), self.single(b)
        axes = tuple(
            x if x is y else self.token("either", test, x, y, roots=x.roots | y.roots)
            for x, y in zip(left.axes, right.axes)
        )
        shape = self.token("either", test, left.shape, right.shape, roots=left.shape.roots | right.shape.roots)
        return Value(shape, axes, left.rank if left.rank == right.rank else None)

    def broadcast(self, a: Value, b: Value, operator: str) -> Value:
        """`a <operator> b`. Numbers and weights are taken to fit the tensor on the other side."""
        token = self.token("op", operator, a.shape, b.shape)
        if operator == "MatMult":  # with a weight on the right only the last axis changes
            fits = b.shape.is_weight and not a.shape.is_weight
            return self.value(token, a.rank, a.lead) if fits else self.value(token)
        if a.rank == b.rank == 0:
            return self.value(token, 0)
        for side, other in ((a, b), (b, a)):
            if other.rank == 0 or (other.shape.is_weight and not side.shape.is_weight):
                return side
        return a if a.lead == b.lead else self.value(token)

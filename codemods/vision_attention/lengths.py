"""How max_seqlen is written: as a tensor, as a number taken out of one, or as a number of its own."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from enum import Enum


class Kind(Enum):
    TENSOR = "a tensor"
    ITEM = "a number taken out of a tensor"  # the tensor is `tensor_inside`
    NUMBER = "a number"
    ENTRY = "a number, kept in a dictionary"
    NOTHING = "None"
    UNKNOWN = "not known"


_NO_TENSOR_METHODS = ("item", "tolist", "numpy", "numel", "size", "dim", "stride", "get_device")
_TENSOR_METHODS = ("max", "amax", "to", "cpu", "cuda", "int", "long", "contiguous", "detach")
_NUMBER_FUNCTIONS = ("int", "max", "min", "len", "sum", "round")


def kind(node: ast.expr) -> Kind:
    """What an expression is by its own form; names, attributes and calls of other functions are UNKNOWN here."""
    if isinstance(node, ast.Constant):
        return Kind.NOTHING if node.value is None else Kind.NUMBER
    if not isinstance(node, ast.Call):
        return Kind.UNKNOWN
    if tensor_inside(node) is not None:
        return Kind.ITEM
    function = node.func
    if isinstance(function, ast.Name) and function.id in _NUMBER_FUNCTIONS:
        return Kind.NUMBER
    if isinstance(function, ast.Attribute):
        if isinstance(function.value, ast.Name) and function.value.id == "torch":
            return Kind.TENSOR
        if function.attr in _TENSOR_METHODS:
            return Kind.TENSOR
        if function.attr == "item":
            return Kind.NUMBER
        if function.attr not in _NO_TENSOR_METHODS and kind(function.value) is Kind.TENSOR:
            return Kind.TENSOR
    return Kind.UNKNOWN


def computes_longest(steps: Sequence[ast.stmt | ast.expr]) -> bool:
    """Whether statements or expressions set max_seqlen, or take the longest of some lengths."""
    return any(
        (isinstance(node, ast.Attribute) and node.attr == "max")
        or (isinstance(node, ast.Name) and node.id == "max_seqlen")
        for step in steps
        for node in ast.walk(step)
    )


def tensor_inside(node: ast.expr) -> ast.expr | None:
    """`x.max()` of `x.max().item()` and `int(x.max())`, also by `torch.max(x)`; None for anything else."""
    if not isinstance(node, ast.Call):
        return None
    function = node.func
    inner: ast.expr | None = None
    if isinstance(function, ast.Attribute) and function.attr == "item" and not node.args:
        inner = function.value
    elif isinstance(function, ast.Name) and function.id == "int" and len(node.args) == 1:
        inner = tensor_inside(node.args[0]) or node.args[0]
    while (
        isinstance(inner, ast.Call)
        and isinstance(inner.func, ast.Attribute)
        and inner.func.attr in ("cpu", "to", "int", "long")
    ):
        inner = inner.func.value  # the op's wrapper reads the number wherever the tensor is
    if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr in ("max", "amax"):
        return inner
    return None


def as_tensor(node: ast.expr) -> str:
    """Code that gives the length as a tensor, from one that is ITEM or NUMBER; others as they are."""
    inside = tensor_inside(node)
    if inside is not None:
        return ast.unparse(inside)
    return wrapped(node) if kind(node) is Kind.NUMBER else ast.unparse(node)


def wrapped(node: ast.expr) -> str:
    """Code that makes a tensor of a number."""
    return f"torch.tensor({ast.unparse(node)}, dtype=torch.int32)"

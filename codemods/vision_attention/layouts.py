"""Tensor layouts followed symbolically through the view operations around an attention kernel.

Letters: b batch, s sequence, h heads, d head_dim. A kernel for packed sequences takes and gives `(b s) h d`;
MMEncoderAttention takes and gives `b s h d`.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from codemods.parsed_file import spelled

KERNEL = "<kernel>"
_METHODS = ("contiguous", "reshape", "view", "permute", "transpose", "flatten", "squeeze", "unsqueeze")


@dataclass(frozen=True)
class Value:
    """A tensor: where it came from (a name at the start, or the kernel's result) and the operations since, as calls."""

    base: str
    operations: tuple[ast.Call, ...] = ()

    def then(self, operation: ast.Call) -> Value:
        return Value(self.base, (*self.operations, operation))


def operation(call: ast.Call) -> str | None:
    """The name of a view operation (`rearrange`, `reshape`, ...), or None."""
    if isinstance(call.func, ast.Attribute) and call.func.attr in _METHODS:
        return call.func.attr
    return "rearrange" if spelled(call.func) == "rearrange" and len(call.args) >= 2 else None


def evaluate(node: ast.expr, known: dict[str, Value | None], kernel: ast.Call | None = None) -> Value | None:
    """The symbolic value of an expression; None where it is not a chain of view operations."""
    if node is kernel:
        return Value(KERNEL)
    if isinstance(node, ast.Name):
        return known.get(node.id, Value(node.id))
    if not isinstance(node, ast.Call):
        return None
    name = operation(node)
    if name is None:
        return None
    inner = node.args[0] if name == "rearrange" else node.func.value  # type: ignore[attr-defined]
    value = evaluate(inner, known, kernel)
    return value.then(node) if value is not None else None


def pattern(call: ast.Call) -> tuple[list[str], list[str]] | None:
    """Both sides of an einops pattern as lists of axes; an axis group stays one item, `(b s)`."""
    node = call.args[1] if len(call.args) > 1 else None
    if not (isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.count("->") == 1):
        return None
    left, right = node.value.split("->")
    return _axes(left), _axes(right)


def _axes(side: str) -> list[str]:
    axes: list[str] = []
    depth = 0
    for token in side.replace("(", " ( ").replace(")", " ) ").split():
        if token == "(":
            depth += 1
            axes.append("(")
        elif token == ")":
            depth -= 1
            axes[-1] += ")"
        elif depth:
            axes[-1] += token if axes[-1] == "(" else f" {token}"
        else:
            axes.append(token)
    return axes


def _arguments(call: ast.Call, base: str) -> list[str]:
    """Arguments as text, the tensor's own name written as `_`, so that q, k and v compare equal."""
    arguments = call.args
    if len(arguments) == 1 and isinstance(arguments[0], (ast.Tuple, ast.List)):
        arguments = list(arguments[0].elts)
    return [_Renamed(base).text(a) for a in arguments]


class _Renamed(ast.NodeTransformer):
    def __init__(self, base: str) -> None:
        self.base = base

    def text(self, node: ast.expr) -> str:
        return ast.unparse(self.visit(ast.parse(ast.unparse(node), mode="eval").body))

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name("_", node.ctx) if node.id == self.base else node


def signature(value: Value) -> list[str]:
    """The operations as text that does not depend on the tensor's name."""
    result = []
    for call in value.operations:
        name = operation(call) or ""
        if name == "rearrange":
            sides = pattern(call)
            result.append(f"rearrange {sides}")
        else:
            result.append(f"{name} {_arguments(call, value.base)}")
    return result


@dataclass(frozen=True)
class Entry:
    """How q, k and v stand before the kernel's arm. `prologue`: einops pattern to reach `b s h d`, or None."""

    packed: bool
    prologue: str | None = None
    batch: str | None = None  # the size of the batch axis as the packing names it
    order_unknown: bool = False  # two axes are merged, and the packing does not say which of them is the sequence

    @property
    def axes(self) -> tuple[str, ...]:
        """The layout of q, k and v as they stand."""
        return ("s", "h", "d") if self.packed else ("s", "b", "h", "d") if self.prologue else ("b", "s", "h", "d")


def entry(value: Value) -> Entry | None:
    """The layout in which a tensor came to the flash arm, read from how the arm packs it. None: not provable."""
    operations = [call for call in value.operations if operation(call) != "contiguous"]
    if not operations:
        return Entry(packed=True)
    if len(operations) != 1:
        return None
    call = operations[0]
    name = operation(call)
    arguments = _arguments(call, value.base)
    if name == "rearrange":
        sides = pattern(call)
        if sides is None or call.keywords:
            return None
        left, right = sides
        if len(left) < 3 or right[0] != "(b s)" or right[1:] != left[2:]:
            return None
        if left[:2] == ["b", "s"]:
            return Entry(packed=False)
        if left[:2] == ["s", "b"]:
            rest = " ".join(left[2:])
            return Entry(packed=False, prologue=f"s b {rest} -> b s {rest}")
        return None
    if name == "flatten" and arguments == ["0", "1"]:
        return Entry(packed=False, order_unknown=True)
    if name == "squeeze" and arguments == ["0"]:
        return Entry(packed=False)
    if name in ("reshape", "view") and len(arguments) == 3:
        whole_heads = arguments[1:] in (
            ["_.shape[2]", "_.shape[3]"],
            ["_.shape[-2]", "_.shape[-1]"],
            ["_.size(2)", "_.size(3)"],
            ["_.size(-2)", "_.size(-1)"],
        )
        if whole_heads:  # naming axes 2 and 3 proves four axes, the first two of them merged
            factors = re.fullmatch(r"(\w+) \* _\.(?:shape\[1\]|size\(1\))", arguments[0])
            return Entry(packed=False, batch=factors.group(1) if factors else None, order_unknown=True)
    return None


@dataclass(frozen=True)
class Exit:
    """Code to put behind `self.attn(...)`: text with `{x}` for the tensor, or "" where nothing is needed."""

    code: str


def unpacks(call: ast.Call, entry: Entry) -> bool:
    """Whether `view(batch, -1, heads, head_dim)` undoes the packing: its first size is the one the packing merged
    first."""
    arguments = _arguments(call, KERNEL)
    return len(arguments) == 4 and arguments[1] == "-1" and entry.batch is not None and arguments[0] == entry.batch


def exit_layout(value: Value, entry: Entry, rearrange: str) -> Exit | None:
    """What the arm did to the kernel's result, restated for MMEncoderAttention's. None: not provable."""
    operations = list(value.operations)
    if entry.packed:
        if not operations:
            return Exit("{x}.squeeze(0)")
        first = operation(operations[0])
        # reshape to given sizes does not care for the leading axis of one
        start = "{x}" if first in ("reshape", "view") else "{x}.squeeze(0)"
        return Exit(_replay(start, operations))
    if not operations:
        return Exit("{x}.flatten(0, 1)")
    first_call, rest = operations[0], operations[1:]
    name = operation(first_call)
    if name == "rearrange":
        sides = pattern(first_call)
        if sides is None or sides[0][0] != "(b s)":
            return None
        left = ["b", "s", *sides[0][1:]]
        if left == sides[1]:
            return Exit(_replay("{x}", rest))
        kept = "".join(
            f", {k.arg}={ast.unparse(k.value)}" for k in first_call.keywords if k.arg not in ("b", "s", None)
        )
        start = f'{rearrange}({{x}}, "{" ".join(left)} -> {" ".join(sides[1])}"{kept})'
        return Exit(_replay(start, rest))
    arguments = _arguments(first_call, KERNEL)
    if name in ("view", "reshape") and unpacks(first_call, entry):
        return Exit(_replay("{x}", rest))
    if name == "unsqueeze" and arguments == ["0"]:
        return Exit(_replay("{x}", rest))
    return Exit(_replay("{x}.flatten(0, 1)", operations))


def _replay(start: str, operations: list[ast.Call]) -> str:
    code = start
    for call in operations:
        name = operation(call)
        if name == "rearrange":
            arguments = ", ".join(
                [ast.unparse(a).replace("'", '"') for a in call.args[1:]]
                + [f"{k.arg}={ast.unparse(k.value)}" for k in call.keywords]
            )
            code = f"{ast.unparse(call.func)}({code}, {arguments})"
        else:
            arguments = ", ".join(
                [ast.unparse(a) for a in call.args] + [f"{k.arg}={ast.unparse(k.value)}" for k in call.keywords]
            )
            code = f"{code}.{name}({arguments})"
    return "" if code == "{x}" else code

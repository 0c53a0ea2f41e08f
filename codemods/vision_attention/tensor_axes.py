"""How many axes a tensor has at a place in a method, and whether it holds q and k, as far as the method itself says."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from codemods.parsed_file import stores
from codemods.project import AnyFunction
from codemods.vision_attention import layouts
from codemods.vision_attention import vocabulary as V


def _values(method: AnyFunction, name: ast.Name) -> Iterator[ast.expr]:
    """The expressions assigned to a name ahead of where it is read, last first."""
    steps = [s for s in ast.walk(method) if isinstance(s, ast.Assign) and s.lineno < name.lineno]
    for step in sorted(steps, key=lambda s: -s.lineno):
        for target in step.targets:
            if isinstance(target, ast.Name) and target.id == name.id:
                yield step.value
            elif isinstance(target, ast.Tuple) and name.id in stores(target):
                if isinstance(step.value, (ast.GeneratorExp, ast.ListComp)):
                    yield step.value.elt
                elif isinstance(step.value, ast.Tuple) and len(step.value.elts) == len(target.elts):
                    yield step.value.elts[[ast.unparse(t) for t in target.elts].index(name.id)]
                else:
                    yield step.value


def axes_of(method: AnyFunction, node: ast.expr, depth: int = 0) -> int | None:
    """How many axes a tensor has at a place in a method, where an operation that says so gave it its shape."""
    if depth > 8:
        return None
    if isinstance(node, ast.Name):
        value = next(_values(method, node), None)
        return axes_of(method, value, depth + 1) if value is not None else None
    if not isinstance(node, ast.Call):
        return None
    name = V.called(node)
    if (
        name in ("cat", "concat")
        and node.args
        and isinstance(node.args[0], (ast.Tuple, ast.List))
        and node.args[0].elts
    ):
        return axes_of(method, node.args[0].elts[0], depth + 1)
    if name == "rearrange":
        sides = layouts.pattern(node)
        return len(sides[1]) if sides is not None and "..." not in sides[1] else None
    if not isinstance(node.func, ast.Attribute):
        return None
    arguments: Sequence[ast.expr] = (
        node.args[0].elts if len(node.args) == 1 and isinstance(node.args[0], (ast.Tuple, ast.List)) else node.args
    )
    if name in ("view", "reshape", "permute"):
        return None if any(isinstance(a, ast.Starred) for a in arguments) or len(arguments) < 2 else len(arguments)
    inner = axes_of(method, node.func.value, depth + 1)
    if name == "unsqueeze" and inner is not None:
        return inner + 1
    return inner if name in ("contiguous", "transpose", "float", "to", "type_as") else None


def is_stacked(method: AnyFunction, node: ast.expr) -> bool:
    """Whether a tensor is q and k joined along the first axis."""
    if isinstance(node, ast.Name):
        return any(is_stacked(method, value) for value in _values(method, node) if not isinstance(value, ast.Name))
    if not isinstance(node, ast.Call):
        return False
    if V.called(node) in ("cat", "concat"):
        return True
    sides = layouts.pattern(node) if V.called(node) == "rearrange" else None
    return sides is not None and sides[1][0].startswith("(")

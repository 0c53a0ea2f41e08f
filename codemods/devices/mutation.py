"""Which tensors of a scope are changed in place, so that a copy of them would no longer be the same."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cached_property

from codemods.devices.tensor_flow import Scope
from codemods.parsed_file import ParsedFile, dotted


class Mutations:
    """`filled` are expressions that a collective writes into."""

    def __init__(self, file: ParsedFile, scope: Scope, filled: Sequence[ast.expr]) -> None:
        self.file = file
        self.scope = scope
        self.filled = filled

    def of(self, name: str) -> bool:
        """Whether the tensor of that name, or a part of it, is written to anywhere in the scope."""
        return name in self._names

    @cached_property
    def _names(self) -> set[str]:
        found = {_root(node) for node in self.filled}
        for node in self.file.below(self.scope):
            if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
                found.add(_root(node))
            elif isinstance(node, ast.AugAssign):
                found.add(_root(node.target))
            elif isinstance(node, ast.Call):
                if isinstance(node.func, ast.Attribute) and _in_place(node.func.attr):
                    found.add(_root(node.func.value))
                found |= {_root(word.value) for word in node.keywords if word.arg == "out"}
        return {name for name in found if name is not None}


def _in_place(method: str) -> bool:
    return method.endswith("_") and not method.endswith("__") and not method.startswith("_")


def _root(node: ast.AST) -> str | None:
    """The name of the tensor that a view of it is taken from: `x` of `x[:, 1:].transpose(0, 1)`."""
    while isinstance(node, (ast.Subscript, ast.Call)):
        node = node.value if isinstance(node, ast.Subscript) else node.func
        if isinstance(node, ast.Attribute):
            node = node.value
    return dotted(node)

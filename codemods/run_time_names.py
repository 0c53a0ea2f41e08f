"""What vLLM names an expression gives at run time, as far as the text tells.

Beyond imports: `importlib.import_module("...")`, `sys.modules["..."]`, `getattr`, names set once from one of these,
loops over tables that are written out, and parameters of the plugin's own helpers, seen from the calls of these.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product

from codemods.parsed_file import FunctionNode, Import, ParsedFile
from codemods.project import Project

_DEPTH = 6  # a chain of names longer than this is not worth following
_ROWS = 64  # rows of a table, and combinations of loops


@dataclass(frozen=True)
class Value:
    """An expression (or a definition) where it stands, and what is known there of names that vary."""

    file: ParsedFile
    node: ast.AST
    known: Mapping[str, Value] = field(default_factory=dict)

    def at(self, node: ast.AST) -> Value:
        return Value(self.file, node, self.known)


class Names:
    """Follows expressions through the files of a project."""

    def __init__(self, project: Project) -> None:
        self._project = project

    def followed(self, value: Value, depth: int = 0) -> Value:
        """The value behind names that vary or are set once."""
        node = value.node
        if not isinstance(node, ast.Name) or depth > _DEPTH:
            return value
        if node.id in value.known:
            return self.followed(value.known[node.id], depth + 1)
        bound = value.file.bound(node.id, node)
        if len(bound) == 1 and isinstance(bound[0], ast.Name):
            above = value.file.parents[bound[0]]
            if isinstance(above, (ast.Assign, ast.AnnAssign)) and above.value is not None and bound[0] in _plain(above):
                return self.followed(value.at(above.value), depth + 1)
        if len(bound) == 1 and isinstance(bound[0], FunctionNode):
            return value.at(bound[0])
        return value

    def strings(self, value: Value) -> str | None:
        """The text an expression gives; None if it is not written out."""
        value = self.followed(value)
        node = value.node
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            parts = [self.strings(value.at(side)) for side in (node.left, node.right)]
            return None if None in parts else "".join(map(str, parts))
        if isinstance(node, ast.JoinedStr):
            pieces = [
                self.strings(value.at(part.value if isinstance(part, ast.FormattedValue) else part))
                for part in node.values
            ]
            return None if None in pieces else "".join(map(str, pieces))
        return None

    def vllm(self, value: Value, depth: int = 0) -> str | None:
        """The dotted vLLM name an expression stands for; None if it is not vLLM's, or not known."""
        node, file = value.node, value.file
        if depth > _DEPTH:
            return None
        if isinstance(node, ast.Name):
            behind = self.followed(value)
            if behind.node is not node:
                return self.vllm(behind, depth + 1)
            imports = [b for b in file.bound(node.id, node) if isinstance(b, Import)]
            if any(imported.qualified == "vllm" for imported in imports):
                return "vllm"
            return self._project.vllm(file, node, node) or _either(imports)
        if isinstance(node, ast.Attribute):
            owner = self.vllm(value.at(node.value), depth + 1)
            return f"{owner}.{node.attr}" if owner else None
        if isinstance(node, ast.Subscript) and self.meaning(value.at(node.value)) == "sys.modules":
            return _vllms(self.strings(value.at(node.slice)))
        if not isinstance(node, ast.Call):
            return None
        called = self.meaning(value.at(node.func))
        first = value.at(node.args[0]) if node.args else None
        if first is None:
            return None
        if called in ("importlib.import_module", "__import__", "sys.modules.get", "import_module"):
            return _vllms(self.strings(first))
        if called == "importlib.reload":
            return self.vllm(first, depth + 1)
        if called == "getattr" and len(node.args) > 1:
            owner, name = self.vllm(first, depth + 1), self.strings(value.at(node.args[1]))
            return f"{owner}.{name}" if owner and name else None
        return None

    def meaning(self, value: Value) -> str | None:
        """The dotted name of a function or attribute: what its import says, or a builtin's own name."""
        node = value.node
        if isinstance(node, ast.Name) and not value.file.bound(node.id, node):
            return node.id
        return value.file.resolve(node, node)

    def rows(self, file: ParsedFile, node: ast.AST) -> Iterator[dict[str, Value]]:
        """What the loops around a node give to their names, one combination after the other."""
        loops: list[list[dict[str, Value]]] = []
        for above in file.above(node):
            if isinstance(above, FunctionNode):
                break
            if isinstance(above, ast.For):
                loops.append(list(self._loop(file, above)))
        if all(loops):
            for index, chosen in enumerate(product(*loops)):
                if index < _ROWS:
                    yield {name: value for row in chosen for name, value in row.items()}

    def _loop(self, file: ParsedFile, loop: ast.For) -> Iterator[dict[str, Value]]:
        """One dictionary a turn; a single empty one where the loop runs over what is not written out."""
        over = self.followed(Value(file, loop.iter))
        node = over.node
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "items":
            table = self.followed(over.at(node.func.value))
            if isinstance(table.node, ast.Dict):
                for key, item in zip(table.node.keys, table.node.values):
                    if key is not None:
                        yield dict(_unpacked(loop.target, table.at(ast.Tuple([key, item], ast.Load()))))
                return
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)) and len(node.elts) <= _ROWS:
            for element in node.elts:
                yield dict(_unpacked(loop.target, over.at(element)))
            return
        yield {}

    def arguments(self, function: ast.FunctionDef | ast.AsyncFunctionDef, call: Value) -> dict[str, Value]:
        """What a call gives to a function's parameters."""
        assert isinstance(call.node, ast.Call)
        names = [a.arg for a in [*function.args.posonlyargs, *function.args.args]]
        given = {name: call.at(a) for name, a in zip(names, call.node.args) if not isinstance(a, ast.Starred)}
        given.update({k.arg: call.at(k.value) for k in call.node.keywords if k.arg is not None})
        return given


def _plain(statement: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return statement.targets if isinstance(statement, ast.Assign) else [statement.target]


def _vllms(name: str | None) -> str | None:
    return name if name is not None and (name == "vllm" or name.startswith("vllm.")) else None


def _either(imports: list[Import]) -> str | None:
    """The last of several imports of one name, all of them vLLM's, as `try` and `except ImportError` make them."""
    names = [_vllms(imported.qualified) for imported in imports]
    return names[-1] if names and None not in names else None


def _unpacked(target: ast.expr, value: Value) -> Iterator[tuple[str, Value]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, (ast.Tuple, ast.List)) and isinstance(value.node, (ast.Tuple, ast.List)):
        for part, item in zip(target.elts, value.node.elts):
            yield from _unpacked(part, value.at(item))

"""One file read with `ast`: parents, scopes, and what each name stands for. No imports are followed here."""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar, cast

from codemods.notebook import SUFFIX, cell_of, said_line

Kind = TypeVar("Kind", bound=ast.AST)

FunctionNode = (ast.FunctionDef, ast.AsyncFunctionDef)
ScopeNode = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.Lambda,
    ast.ClassDef,
    ast.Module,
    ast.GeneratorExp,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
)
_SCOPES = frozenset(ScopeNode)
_COMPREHENSIONS = frozenset({ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.DictComp})
_PLAIN = frozenset({"arg", "asname", "attr", "conversion", "ctx", "id", "kind", "level", "op", "ops", "type_comment"})
"""Fields that hold no node with a place: text, numbers, and nodes of which `ast` makes one for a whole tree."""


@dataclass(frozen=True)
class Import:
    """One imported name. `module` is absolute; `name` is None for `import module`."""

    statement: ast.Import | ast.ImportFrom
    module: str
    name: str | None
    alias: str
    scope: ast.AST

    @property
    def qualified(self) -> str:
        return self.module if self.name is None else f"{self.module}.{self.name}"


@dataclass(eq=False)
class ParsedFile:
    """A file's tree. `module` is its dotted name as far as the folders tell; relative imports resolve against it."""

    path: Path
    module: str
    text: str = field(repr=False)
    tree: ast.Module = field(repr=False)
    is_package: bool = False
    parents: dict[ast.AST, ast.AST] = field(default_factory=dict, repr=False)
    dropped: list[ast.AST] = field(default_factory=list, repr=False)  # arms of guards that go: not in `tree`
    hidden: list[ast.AST] = field(default_factory=list, repr=False)  # arms that stay and never run: not in `tree`

    def __post_init__(self) -> None:
        _ = self._order  # fills `parents`
        for imported in self.imports:
            if imported.name not in (None, imported.alias) and isinstance(imported.scope, ast.Module):
                for node in self.reads.get(imported.alias, ()):
                    node.stands_for = imported.name  # type: ignore[attr-defined]

    @classmethod
    def of(cls, text: str, like: ParsedFile) -> ParsedFile:
        """Another text of the same file. Raises SyntaxError."""
        return cls(like.path, like.module, text, ast.parse(text), like.is_package)

    # -- for people ---------------------------------------------------------------------------------------------------

    def line(self, number: int) -> str:
        """A line as findings count it: in a notebook, that of a cell."""
        return said_line(self.path, self.lines, number)

    def place(self, node: ast.AST) -> str:
        """A node's file and line, as findings begin."""
        number = getattr(node, "lineno", 1)
        if self.path.suffix != SUFFIX:
            return f"{self.path.name}:{number}"
        cell, line = cell_of(self.lines, number)
        return f"{self.path.name}:cell {cell}:{line}"

    # -- structure -----------------------------------------------------------------------------------------------------

    @cached_property
    def _order(self) -> tuple[list[ast.AST], dict[ast.AST, int], dict[ast.AST, int]]:
        """All nodes in source order, where each stands in that order, and where what is below it ends."""
        order: list[ast.AST] = []
        first: dict[ast.AST, int] = {}
        end: dict[ast.AST, int] = {}

        def visit(node: ast.AST) -> None:
            first[node] = len(order)
            order.append(node)
            for name in node._fields:
                if name in _PLAIN:
                    continue
                value = getattr(node, name, None)
                if type(value) is list:
                    for child in value:
                        if isinstance(child, ast.AST):
                            parents[child] = node
                            visit(child)
                elif isinstance(value, ast.AST):
                    parents[value] = node
                    visit(value)
            end[node] = len(order)

        parents = self.parents

        visit(self.tree)
        return order, first, end

    @cached_property
    def nodes(self) -> dict[type[ast.AST], list[ast.AST]]:
        """Every node by type, in source order."""
        table: dict[type[ast.AST], list[ast.AST]] = defaultdict(list)
        for node in self._order[0]:
            table[type(node)].append(node)
        return table

    def below(self, node: ast.AST) -> list[ast.AST]:
        """The node and everything below it, in source order: `ast.walk` without the walk."""
        order, first, end = self._order
        return order[first[node] : end[node]]

    @cached_property
    def _places(self) -> dict[type[ast.AST], list[int]]:
        """Where the nodes of a type stand in source order."""
        position = self._order[1]
        return {kind: [position[node] for node in nodes] for kind, nodes in self.nodes.items()}

    def inside(self, node: ast.AST, kind: type[Kind]) -> list[Kind]:
        """The nodes of one type among those below a node, in source order."""
        places = self._places.get(kind, [])
        start, end = self.extent(node)
        found = self.nodes[kind][bisect_left(places, start) : bisect_left(places, end)] if places else []
        return cast("list[Kind]", found)

    def position(self, node: ast.AST) -> int:
        """Where the node stands in source order."""
        return self._order[1][node]

    def extent(self, node: ast.AST) -> tuple[int, int]:
        """The positions of the node and of what is below it: first, and one behind the last."""
        return self._order[1][node], self._order[2][node]

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """The node's ancestors, nearest first."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def written(self, node: ast.expr) -> str:
        """An expression as it stands in the text if it stands on one line, else as `ast` writes it."""
        if node.lineno != node.end_lineno:
            return ast.unparse(node)
        return self.lines[node.lineno - 1].encode()[node.col_offset : node.end_col_offset].decode()

    def operand(self, node: ast.expr) -> str:
        """An expression as it is written, in parentheses where a method call behind it would bind to its end."""
        text = self.written(node)
        plain = isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
        return text if plain else f"({text})"

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that holds the node (or the node itself)."""
        while not isinstance(node, ast.stmt):
            node = self.parents[node]
        return node

    def in_annotation(self, node: ast.AST) -> bool:
        """Whether a node stands in the annotation of a parameter, a variable or a result."""
        below = node
        for above in self.above(node):
            if (
                isinstance(above, ast.arg)
                or getattr(above, "annotation", None) is below
                or getattr(above, "returns", None) is below
            ):
                return True
            if isinstance(above, ast.stmt):
                return False
            below = above
        return False

    def function(self, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        above = self.parents.get(node)
        while above is not None and not isinstance(above, FunctionNode):
            above = self.parents.get(above)
        return above

    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        above = self.parents.get(node)
        while above is not None and not isinstance(above, ast.ClassDef):
            above = self.parents.get(above)
        return above

    @cached_property
    def lines(self) -> list[str]:
        """The text's lines as `ast` counts them."""
        return re.split(r"\r\n|\r|\n", self.text)

    @cached_property
    def reads(self) -> dict[str, list[ast.Name]]:
        """Where each name is read, in source order."""
        table: dict[str, list[ast.Name]] = defaultdict(list)
        for node in self.nodes[ast.Name]:
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store):
                table[node.id].append(node)
        return table

    @cached_property
    def attributes(self) -> dict[str, list[ast.Attribute]]:
        """Where each attribute name stands (`x.name`, read or set), in source order."""
        table: dict[str, list[ast.Attribute]] = defaultdict(list)
        for node in self.nodes[ast.Attribute]:
            if isinstance(node, ast.Attribute):
                table[node.attr].append(node)
        return table

    @cached_property
    def calls(self) -> dict[str, list[ast.Call]]:
        """The calls of each name, as its import spells it (`spelled`), in source order."""
        table: dict[str, list[ast.Call]] = defaultdict(list)
        for node in self.nodes[ast.Call]:
            if isinstance(node, ast.Call):
                table[spelled(node.func)].append(node)
        return table

    @cached_property
    def writes(self) -> dict[str, list[ast.Name]]:
        """Where each name is bound by assignment, in source order."""
        table: dict[str, list[ast.Name]] = defaultdict(list)
        for node in self.nodes[ast.Name]:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                table[node.id].append(node)
        return table

    @cached_property
    def exported(self) -> set[str]:
        """Names in `__all__`, however it is written."""
        found = set()
        for statement in self.tree.body:
            if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and statement.value is not None:
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                if any(isinstance(t, ast.Name) and t.id == "__all__" for t in targets):
                    strings = (n.value for n in ast.walk(statement.value) if isinstance(n, ast.Constant))
                    found |= {text for text in strings if isinstance(text, str)}
        return found

    @cached_property
    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        """Those of the module, also in a branch of it, in source order."""
        found = [n for kind in FunctionNode for n in self.nodes[kind] if self.scope(n) is self.tree]
        return sorted((n for n in found if isinstance(n, FunctionNode)), key=lambda node: node.lineno)

    def defined(self, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """The module's function of this name; None where it depends on a branch what the name stands for."""
        found = [node for node in self.functions if node.name == name]
        if any(self.parents[node] is not self.tree for node in found) and len(self._scopes[self.tree][name]) > 1:
            return None
        return found[-1] if found else None

    @cached_property
    def top_names(self) -> frozenset[str]:
        """What the module itself binds; `*` stands for a star import."""
        return frozenset(self._scopes.get(self.tree, {}))

    @cached_property
    def class_nodes(self) -> list[ast.ClassDef]:
        """Every class statement, in source order."""
        return [n for n in self.nodes[ast.ClassDef] if isinstance(n, ast.ClassDef)]

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        """The last class of each name."""
        return {n.name: n for n in self.class_nodes}

    # -- names ---------------------------------------------------------------------------------------------------------

    @cached_property
    def imports(self) -> list[Import]:
        found = []
        for node in [*self.nodes[ast.Import], *self.nodes[ast.ImportFrom]]:
            scope = next(n for n in self.above(node) if isinstance(n, ScopeNode))
            if isinstance(node, ast.Import):
                for alias in node.names:
                    bound = alias.asname or alias.name.partition(".")[0]
                    module = alias.name if alias.asname else bound
                    found.append(Import(node, module, None, bound, scope))
            elif isinstance(node, ast.ImportFrom):
                module = self.absolute(node)
                found += [Import(node, module, alias.name, alias.asname or alias.name, scope) for alias in node.names]
        return found

    @cached_property
    def imported(self) -> frozenset[str]:
        """The names that imports bind, anywhere in the file."""
        return frozenset(imported.alias for imported in self.imports)

    def absolute(self, node: ast.ImportFrom) -> str:
        """The absolute dotted name of the module a `from ... import` names."""
        if not node.level:
            return node.module or ""
        parts = self.module.split(".")
        drop = node.level - (1 if self.is_package else 0)
        base = parts[: len(parts) - drop] if drop <= len(parts) else []
        return ".".join([*base, *([node.module] if node.module else [])])

    @cached_property
    def _scopes(self) -> dict[ast.AST, dict[str, list[ast.AST | Import]]]:
        """What each scope binds: name -> the nodes (definitions, targets, parameters, imports) that bind it."""
        table: dict[ast.AST, dict[str, list[ast.AST | Import]]] = defaultdict(lambda: defaultdict(list))
        for imported in self.imports:
            table[imported.scope][imported.alias].append(imported)
        for kind, nodes in self.nodes.items():
            if kind in (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef):
                for node in nodes:
                    table[self.scope(node)][node.name].append(node)  # type: ignore[attr-defined]
            elif kind is ast.arg:
                for node in nodes:
                    owner = self.parents[self.parents[node]]
                    table[owner][node.arg].append(node)  # type: ignore[attr-defined]
            elif kind is ast.Name:
                for node in nodes:
                    if not isinstance(node.ctx, ast.Load):  # type: ignore[attr-defined]
                        table[self.scope(node)][node.id].append(node)  # type: ignore[attr-defined]
            elif kind is ast.ExceptHandler:
                for node in nodes:
                    if node.name:  # type: ignore[attr-defined]
                        table[self.scope(node)][node.name].append(node)  # type: ignore[attr-defined]
        return table

    def scope(self, node: ast.AST) -> ast.AST:
        """The scope that a binding of this node belongs to."""
        return next(n for n in self.above(node) if isinstance(n, ScopeNode))

    def bound(self, name: str, at: ast.AST) -> list[ast.AST | Import]:
        """What binds `name` as seen from the node `at`: the innermost scope that binds it at all."""
        inner = True
        parents, scopes = self.parents, self._scopes
        while at in parents:
            at = parents[at]
            kind = type(at)
            if kind not in _SCOPES or (kind is ast.ClassDef and not inner):
                continue
            if kind not in _COMPREHENSIONS:
                inner = False
            found = scopes[at].get(name) if at in scopes else None
            if found:
                return found
        return []

    def resolve(self, node: ast.AST | None, at: ast.AST | None = None) -> str | None:
        """The dotted name an expression stands for, or None: `x.Y` imported from `vllm.z` gives `vllm.z.x.Y`.

        Names defined in this file resolve to `<module>.<name>`; a name bound to several different things resolves to
        None, for it cannot be known which one is meant. String annotations are looked into.
        """
        at = at or node
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                node = ast.parse(node.value.strip(), mode="eval").body
            except SyntaxError:
                return None
        attributes: list[str] = []
        while isinstance(node, ast.Attribute):
            attributes.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or at is None:
            return None
        found = {self._meaning(binding) for binding in self.bound(node.id, at)}
        if len(found) != 1 or None in found:
            return None
        return ".".join([str(found.pop()), *reversed(attributes)])

    def _meaning(self, binding: ast.AST | Import) -> str | None:
        if isinstance(binding, Import):
            return binding.qualified
        if isinstance(binding, (ast.ClassDef, *FunctionNode)) and isinstance(
            self.parents.get(binding), (ast.Module, ast.If, ast.Try)
        ):
            return f"{self.module}.{binding.name}"
        return None


def same(a: ast.AST | None, b: ast.AST | None) -> bool:
    """Whether two expressions read the same, whatever their layout."""
    if a is None or b is None:
        return a is b
    return ast.dump(a) == ast.dump(b)


def dotted(node: ast.AST | None) -> str | None:
    """`a.b.c` for a chain of attributes on a name, else None."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def spelled(node: ast.expr) -> str:
    """The last part of a name, as its import spells it: `f`, `x.f` and an `f as g` that is read as `g` all give `f`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return str(getattr(node, "stands_for", node.id)) if isinstance(node, ast.Name) else ""


def self_attribute(node: ast.AST | None) -> str | None:
    """`x` for `self.x`, else None."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return node.attr
    return None


def loads(node: ast.AST) -> set[str]:
    """Names that an expression or statement reads."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def stores(node: ast.AST) -> set[str]:
    """Names that a statement binds."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def attribute_loads(node: ast.AST) -> set[str]:
    """Attributes of self that an expression or statement reads."""
    return {
        name
        for n in ast.walk(node)
        if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load) and (name := self_attribute(n)) is not None
    }


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    """Positional and keyword-only parameters, in order, without `*args` and `**kwargs`."""
    arguments = function.args
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]


def default_of(node: ast.FunctionDef | ast.AsyncFunctionDef, parameter: ast.arg) -> ast.expr | None:
    """A parameter's default, or None if it has none."""
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    if parameter in positional:
        index = positional.index(parameter) - (len(positional) - len(arguments.defaults))
        return arguments.defaults[index] if index >= 0 else None
    return arguments.kw_defaults[arguments.kwonlyargs.index(parameter)]


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((k.value for k in call.keywords if k.arg == name), None)

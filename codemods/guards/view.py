"""A file as its target's release runs it: of each decided guard, one arm.

The arms that stay keep their places in the text, so what rules plan on this view is carried out on the file itself.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

from codemods import edits as E
from codemods.parsed_file import FunctionNode, ParsedFile

_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)


@dataclass(frozen=True)
class Decision:
    """What stays of a guard: "body", "orelse" or "handlers.0", and why, in words."""

    keep: str
    why: str


@dataclass
class View:
    """A file with its guards settled, and what it takes to bring the text there."""

    file: ParsedFile
    settled: list[tuple[ast.AST, Decision]] = field(default_factory=list)  # guards that go
    behind: list[ast.stmt] = field(default_factory=list)  # statements that a kept `return` cuts off
    kept: list[ast.AST] = field(default_factory=list)  # guards that stay in the text


def view(file: ParsedFile, decisions: Mapping[E.Ref, Decision], staying: frozenset[E.Ref]) -> View:
    """The file at its target. The guards in `staying` stay in the text; only their dead arms are out of sight."""
    tree = ast.parse(file.text)
    rebuild = _Rebuild(decisions, staying)
    tree.body = rebuild.block(tree.body)
    if any(place.kind == "IfExp" for place in decisions):
        tree = rebuild.visit(tree)
    seen = ParsedFile(file.path, file.module, file.text, tree, file.is_package)
    seen.dropped, seen.hidden = rebuild.dropped, rebuild.hidden
    return View(seen, rebuild.settled, rebuild.behind, rebuild.kept)


class _Rebuild(ast.NodeTransformer):
    def __init__(self, decisions: Mapping[E.Ref, Decision], staying: frozenset[E.Ref]) -> None:
        self.decisions = decisions
        self.staying = staying
        self.dropped: list[ast.AST] = []
        self.hidden: list[ast.AST] = []
        self.settled: list[tuple[ast.AST, Decision]] = []
        self.behind: list[ast.stmt] = []
        self.kept: list[ast.AST] = []

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for index, statement in enumerate(body):
            arm = self._statement(statement)
            found += arm
            rest = body[index + 1 :]
            if arm and arm[-1] is not statement and isinstance(arm[-1], _LEAVES) and rest and not _yields(rest):
                self.behind += rest
                self.dropped += rest
                break
        return found

    def _statement(self, statement: ast.stmt) -> list[ast.stmt]:
        place = E.Ref.of(statement)
        decision = self.decisions.get(place) if isinstance(statement, (ast.If, ast.Try)) else None
        if decision is None:
            self._below(statement)
            return [statement]
        kept, others = _parts(statement, decision.keep)
        for inner in kept:
            inner.told = True  # type: ignore[attr-defined]
        if place not in self.staying:
            self.settled.append((statement, decision))
            self.dropped += others
            return [s for s in self.block(kept) if not isinstance(s, ast.Pass)]
        self.kept.append(statement)
        self.hidden += [node for node in others if isinstance(node, (ast.stmt, ast.excepthandler))]
        _blank(statement, decision.keep)
        self._below(statement)
        return [statement]

    def _below(self, node: ast.AST) -> None:
        for name in ("body", "orelse", "finalbody"):
            inner = getattr(node, name, None)
            if isinstance(inner, list) and inner:
                found = self.block(inner)
                empty: list[ast.stmt] = [_nothing(inner[0])] if name != "orelse" else []
                setattr(node, name, found or empty)
        for handler in [*getattr(node, "handlers", ()), *getattr(node, "cases", ())]:
            self._below(handler)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        decision = self.decisions.get(E.Ref.of(node))
        if decision is None or E.Ref.of(node) in self.staying:
            return self.generic_visit(node)
        self.settled.append((node, decision))
        body = decision.keep == "body"
        self.dropped += [node.test, node.orelse if body else node.body]
        return self.visit(node.body if body else node.orelse)  # type: ignore[no-any-return]


def _parts(node: ast.stmt, keep: str) -> tuple[list[ast.stmt], list[ast.AST]]:
    """The statements of a guard that stay, and what goes."""
    if isinstance(node, ast.If):
        return (node.body, [node.test, *node.orelse]) if keep == "body" else (node.orelse, [node.test, *node.body])
    assert isinstance(node, ast.Try)
    if keep == "body":
        return [*node.body, *node.orelse], [*node.handlers]
    kept = node.handlers[int(keep.rpartition(".")[2])]
    types: list[ast.AST] = [kept.type] if kept.type is not None else []
    return kept.body, [*node.body, *node.orelse, *types, *(h for h in node.handlers if h is not kept)]


def _blank(node: ast.stmt, keep: str) -> None:
    """Take the arms that do not run out of sight."""
    if isinstance(node, ast.If):
        if keep == "body":
            node.orelse = []
        else:
            node.body = [_nothing(node.body[0])]
    elif isinstance(node, ast.Try):
        kept = None if keep == "body" else node.handlers[int(keep.rpartition(".")[2])]
        node.handlers = [kept] if kept is not None else []
        if kept is not None:
            node.body, node.orelse = [_nothing(node.body[0])], []


def _nothing(like: ast.stmt) -> ast.stmt:
    return ast.copy_location(ast.Pass(), like)


def _yields(statements: list[ast.stmt]) -> bool:
    """Whether taking the statements out could make something else of a function: a generator, other scopes."""
    kinds = (ast.Yield, ast.YieldFrom, ast.Global, ast.Nonlocal)
    return any(isinstance(node, kinds) for statement in statements for node in ast.walk(statement))


def may_go(file: ParsedFile, node: ast.AST, keep: str) -> bool:
    """Whether a guard's other arms can be taken out without changing what the function around is."""
    if isinstance(node, ast.IfExp):
        return True
    assert isinstance(node, (ast.If, ast.Try))
    others = [s for s in _parts(node, keep)[1] if isinstance(s, (ast.stmt, ast.excepthandler))]
    inside = any(isinstance(above, FunctionNode) for above in file.above(node))
    return not inside or not _yields(others)  # type: ignore[arg-type]

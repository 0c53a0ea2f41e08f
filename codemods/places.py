"""Finds the LibCST nodes that `ast` nodes stand for: statements by walking both trees in step, expressions by
position."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from codemods import edits as E


class PlaceError(Exception):
    """An edit's place was not found in the LibCST tree: nothing may be written."""


@dataclass
class Slot:
    """Where one `ast` statement lives in the LibCST tree."""

    node: cst.CSTNode  # a small statement, or a compound statement
    line: cst.CSTNode  # the SimpleStatementLine that holds a small statement; the node itself otherwise
    path: tuple[cst.CSTNode, ...]  # from the module down to `line`, exclusive
    indent: str
    is_elif: bool = False


class Places:
    """Both trees of one file. `dirty` collects the nodes that lead to what was found, for a walk that skips the
    rest."""

    def __init__(self, module: cst.Module, text: str, tree: ast.Module) -> None:
        self.module = module
        self.lines = re.split(r"\r\n|\r|\n", text)
        self.dirty: set[int] = {id(module)}
        self.slots: dict[tuple[tuple[int, int], tuple[int, int], str], Slot] = {}
        self.units: dict[int, dict[tuple[tuple[int, int], tuple[int, int]], list[cst.CSTNode]]] = {}
        self.parents: dict[int, cst.CSTNode] = {}
        self._pair(tree.body, module.body, (module,))
        self._statements = sorted(self.slots, key=lambda key: (key[0], [-x for x in key[1]]))

    # -- pairing ast statements with LibCST's ------------------------------------------------------------------------

    def _pair(self, statements: Sequence[ast.stmt], body: Sequence[cst.CSTNode], path: tuple[cst.CSTNode, ...]) -> None:
        flat = list(_flatten(body, path))
        if len(flat) != len(statements):
            raise PlaceError(f"line {path and statements and statements[0].lineno}: the two parsers disagree")
        for statement, (node, line) in zip(statements, flat):
            first = min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", []))])
            source = self.lines[first - 1] if first <= len(self.lines) else ""
            indent = source[: len(source) - len(source.lstrip(" \t"))]
            slot = Slot(node, line, path, indent, is_elif=bool(path) and isinstance(path[-1], _Elif))
            ref = E.Ref.of(statement)
            self.slots[(ref.start, ref.end, ref.kind)] = slot
            for statements_below, block, owners in _blocks(statement, node):
                self._pair(statements_below, _body(block), (*path, *owners, block))

    def slot(self, ref: E.Ref) -> Slot:
        try:
            return self.slots[(ref.start, ref.end, ref.kind)]
        except KeyError:
            raise PlaceError(f"line {ref.line}: no statement found for an edit") from None

    def touch(self, slot: Slot, *nodes: cst.CSTNode) -> None:
        self.dirty.update(id(node) for node in slot.path)
        self.dirty.add(id(slot.line))
        self.dirty.add(id(slot.node))
        self.dirty.update(id(node) for node in nodes)

    # -- finding expressions by position, one statement at a time ------------------------------------------------------

    def _enclosing(self, ref: E.Ref) -> Slot:
        found: Slot | None = None
        for start, end, kind in self._statements:
            if start > ref.start:
                # decorators stand ahead of the statement's own position
                if kind not in ("FunctionDef", "AsyncFunctionDef", "ClassDef"):
                    continue
                slot = self.slots[(start, end, kind)]
                if self._decorator_line(slot, start[0]) > ref.line:
                    continue
            if end >= ref.end:
                found = self.slots[(start, end, kind)]
                found_start = start
                if start > ref.start:
                    break
        if found is None:
            raise PlaceError(f"line {ref.line}: no statement found around an edit")
        del found_start
        return found

    @staticmethod
    def _decorator_line(slot: Slot, line: int) -> int:
        node = slot.node
        if not isinstance(node, (cst.FunctionDef, cst.ClassDef)) or not node.decorators:
            return line
        code = cst.Module(body=[]).code_for_node(node.with_changes(leading_lines=[], body=cst.SimpleStatementSuite([])))
        head = code.split("def " if isinstance(node, cst.FunctionDef) else "class ")[0]
        return line - head.count("\n")

    def _positions(self, ref: E.Ref, slot: Slot) -> dict[tuple[tuple[int, int], tuple[int, int]], list[cst.CSTNode]]:
        if id(slot.line) in self.units:
            return self.units[id(slot.line)]
        unit = slot.line
        if hasattr(unit, "leading_lines"):
            unit = unit.with_changes(leading_lines=[])
        body = getattr(unit, "body", None)
        if isinstance(body, cst.IndentedBlock):
            unit = unit.with_changes(body=cst.SimpleStatementSuite([cst.Pass()]))
            for tail in ("orelse", "finalbody"):
                if getattr(unit, tail, None) is not None:
                    unit = unit.with_changes(**{tail: None})
            if isinstance(unit, cst.Try):
                unit = unit.with_changes(finalbody=cst.Finally(cst.SimpleStatementSuite([cst.Pass()])), handlers=[])
        if slot.indent:
            block = cst.IndentedBlock([cast(cst.BaseStatement, unit)], indent=slot.indent)
            small = cst.Module([cst.If(cst.Name("_"), block)])
        else:
            small = cst.Module([cast(Any, unit)])
        wrapper = MetadataWrapper(small, unsafe_skip_copy=True)
        where = wrapper.resolve(PositionProvider)
        first = next(line for line, node in self._first_lines(slot))
        shift = first - (2 if slot.indent else 1)
        table: dict[tuple[tuple[int, int], tuple[int, int]], list[cst.CSTNode]] = defaultdict(list)
        longer = 2 if slot.is_elif else 0  # LibCST prints `elif` on its own as `if`
        for node, position in where.items():
            start, end = (
                (p.line + shift, p.column + (longer if p.line + shift == first else 0))
                for p in (position.start, position.end)
            )
            table[(start, end)].append(node)
        self._parents(unit)
        for child in unit.children:
            self.parents[id(child)] = slot.line
        self.units[id(slot.line)] = table
        return table

    def _first_lines(self, slot: Slot) -> Iterator[tuple[int, cst.CSTNode]]:
        for (start, _, _), other in self.slots.items():
            if other.line is slot.line:
                yield (self._decorator_line(slot, start[0]), other.node)
                return

    def _parents(self, node: cst.CSTNode) -> None:
        for child in node.children:
            self.parents[id(child)] = node
            self._parents(child)

    def find(self, ref: E.Ref) -> tuple[Slot, cst.CSTNode]:
        slot = self._enclosing(ref)
        table = self._positions(ref, slot)
        key = (self._characters(ref.start), self._characters(ref.end))
        wanted = getattr(cst, ref.kind, None)
        nodes = [node for node in table.get(key, ()) if isinstance(node, cst.BaseExpression)]
        exact = [node for node in nodes if wanted is not None and isinstance(node, wanted)]
        if ref.kind == "Tuple" and not exact:  # `ast` counts the parentheses of a tuple in, LibCST does not
            inside = [
                (end, node)
                for (start, end), found in table.items()
                for node in found
                if isinstance(node, cst.Tuple) and node.lpar and key[0] < start and end < key[1]
            ]
            exact = [max(inside, key=lambda item: item[0])[1]] if inside else []
        if not (exact or nodes):
            raise PlaceError(f"line {ref.line}: no {ref.kind} found for an edit")
        node = (exact or nodes)[0]
        chain: list[cst.CSTNode] = []
        above: cst.CSTNode | None = node
        while above is not None and above is not slot.line:
            chain.append(above)
            above = self.parents.get(id(above))
        self.touch(slot, *chain)
        return slot, node

    def _characters(self, place: tuple[int, int]) -> tuple[int, int]:
        line, column = place
        source = self.lines[line - 1]
        if source.isascii():
            return place
        return (line, len(source.encode("utf-8")[:column].decode("utf-8")))


def _flatten(body: Sequence[cst.CSTNode], path: tuple[cst.CSTNode, ...]) -> Iterator[tuple[cst.CSTNode, cst.CSTNode]]:
    """Statements with what they are printed in: their line, the compound statement itself, or `if x:` around `if
    x: y`."""
    for statement in body:
        if isinstance(statement, cst.SimpleStatementLine):
            for small in statement.body:
                yield small, statement
        elif isinstance(statement, cst.BaseSmallStatement):
            yield (
                statement,
                next(
                    n
                    for n in reversed(path)
                    if not isinstance(n, (cst.SimpleStatementSuite, cst.Else, cst.Finally, _Elif))
                ),
            )
        else:
            yield statement, statement


def _body(block: cst.CSTNode) -> Sequence[cst.CSTNode]:
    if isinstance(block, cst.SimpleStatementSuite):
        return list(block.body)
    return cast(Sequence[cst.CSTNode], block.body)  # type: ignore[attr-defined]


def _blocks(statement: ast.stmt, node: Any) -> Iterator[tuple[Sequence[ast.stmt], Any, tuple[cst.CSTNode, ...]]]:
    """The blocks below a compound statement, as (ast statements, LibCST block, LibCST owners between the two)."""
    if not hasattr(node, "body") or isinstance(node, (cst.SimpleStatementLine, cst.BaseSmallStatement)):
        return
    if isinstance(statement, ast.Match):
        for case, other in zip(statement.cases, node.cases):
            yield case.body, other.body, (node, other)
        return
    yield getattr(statement, "body", []), node.body, (node,)
    for handler, other in zip(getattr(statement, "handlers", []), getattr(node, "handlers", ())):
        yield handler.body, other.body, (node, other)
    orelse = getattr(node, "orelse", None)
    if isinstance(orelse, cst.If):  # `elif`: ast nests it as the only statement of orelse
        yield statement.orelse, _Elif(orelse), (node,)  # type: ignore[attr-defined]
    elif orelse is not None:
        yield statement.orelse, orelse.body, (node, orelse)  # type: ignore[attr-defined]
    final = getattr(node, "finalbody", None)
    if final is not None:
        yield statement.finalbody, final.body, (node, final)  # type: ignore[attr-defined]


class _Elif:
    """Stands in for the block that LibCST does not have around an `elif`."""

    def __init__(self, node: cst.If) -> None:
        self.body = [node]

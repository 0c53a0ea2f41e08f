"""Carries planned edits out on a LibCST tree, touching nothing else: untouched lines keep their bytes."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from codemods import edits as E
from codemods.imports_layout import place_imports

Change = Callable[[Any], Any]


class ApplyError(Exception):
    """An edit's place was not found in the LibCST tree: nothing may be written."""


@dataclass
class _Slot:
    """Where one `ast` statement lives in the LibCST tree."""

    node: cst.CSTNode  # a small statement, or a compound statement
    line: cst.CSTNode  # the SimpleStatementLine that holds a small statement; the node itself otherwise
    path: tuple[cst.CSTNode, ...]  # from the module down to `line`, exclusive
    indent: str
    is_elif: bool = False


def apply(text: str, tree: ast.Module, planned: Sequence[E.Edit]) -> str:
    """`text` with the edits carried out. `tree` is `ast.parse(text)`.

    Raises `ApplyError` if an edit cannot be placed, `libcst.ParserSyntaxError` if LibCST cannot read the text.
    """
    module = cst.parse_module(text)
    run = _Run(module, text, tree)
    imports = [edit for edit in planned if isinstance(edit, E.AddImport)]
    for edit in sorted(planned, key=_positional_last_first):
        run.plan(edit)
    changed = module.visit(_Transformer(run.changes, run.dirty))
    changed = place_imports(changed, imports) if imports else changed
    for edit in planned:
        if isinstance(edit, E.RenameInComments):
            changed = changed.visit(_CommentRenamer(edit.old, edit.new))
    return changed.code


class _Gone(cst.SimpleStatementLine):
    """Stands where a statement was taken out, until the lines around it are closed up."""


def _closed_up(block: Any) -> Any:
    """Take the places of removed statements out: no blank line at the start of a block, no paragraph break lost."""
    if not any(isinstance(line, _Gone) for line in block.body):
        return block
    body: list[Any] = []
    pending: list[cst.EmptyLine] = []
    for line in block.body:
        if isinstance(line, _Gone):
            if not any(not isinstance(kept, _Gone) for kept in body) and isinstance(block, cst.IndentedBlock):
                pending = []
            elif len(line.leading_lines) > len(pending):
                pending = list(line.leading_lines)
            body.append(line)
            continue
        if body and isinstance(body[-1], _Gone):
            line = line.with_changes(leading_lines=_joined(pending, line.leading_lines, first=all(isinstance(b, _Gone) for b in body) and isinstance(block, cst.IndentedBlock)))
        body.append(line)
        pending = []
    kept = [line for line in body if not isinstance(line, _Gone)]
    if not kept and isinstance(block, cst.IndentedBlock):
        kept = [cst.SimpleStatementLine([cst.Pass()])]
    return block.with_changes(body=kept)


def _joined(gone: list[cst.EmptyLine], own: Sequence[cst.EmptyLine], first: bool) -> list[cst.EmptyLine]:
    """Leading lines of the statement behind a removed one. Comments stay; blank lines are as many as either had."""
    blank = [line for line in own if line.comment is None]
    comments = [line for line in gone if line.comment is not None]
    if first:
        start = next((i for i, line in enumerate(own) if line.comment is not None), len(own))
        return [*comments, *own[start:]]
    if comments:
        return [*gone, *own]
    missing = len([line for line in gone if line.comment is None]) - len(blank)
    return [*gone[:missing], *own] if missing > 0 else list(own)


class _CommentRenamer(cst.CSTTransformer):
    def __init__(self, old: str, new: str) -> None:
        super().__init__()
        self.word = re.compile(rf"\b{re.escape(old)}\b")
        self.new = new

    def leave_Comment(self, original_node: cst.Comment, updated_node: cst.Comment) -> cst.Comment:
        return updated_node.with_changes(value=self.word.sub(self.new, updated_node.value))


def _positional_last_first(edit: E.Edit) -> int:
    """Arguments named by position are taken out from the last to the first, so that the positions stay true."""
    return -edit.argument if isinstance(edit, E.RemoveArgument) and isinstance(edit.argument, int) else 1


class _Transformer(cst.CSTTransformer):
    """Visits only the ancestors of changed nodes."""

    def __init__(self, changes: dict[int, list[Change]], dirty: set[int]) -> None:
        super().__init__()
        self.changes = changes
        self.dirty = dirty

    def on_visit(self, node: cst.CSTNode) -> bool:
        return id(node) in self.dirty

    def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> Any:
        result: Any = updated_node
        for change in self.changes.get(id(original_node), ()):
            result = change(result)
        if isinstance(result, (cst.Module, cst.IndentedBlock)):
            return _closed_up(result)
        return result


class _Run:
    def __init__(self, module: cst.Module, text: str, tree: ast.Module) -> None:
        self.module = module
        self.lines = re.split(r"\r\n|\r|\n", text)
        self.changes: dict[int, list[Change]] = defaultdict(list)
        self.dirty: set[int] = {id(module)}
        self.slots: dict[tuple[tuple[int, int], tuple[int, int], str], _Slot] = {}
        self.units: dict[int, dict[tuple[tuple[int, int], tuple[int, int]], list[cst.CSTNode]]] = {}
        self.parents: dict[int, cst.CSTNode] = {}
        self._pair(tree.body, module.body, (module,))
        self._statements = sorted(self.slots, key=lambda key: (key[0], [-x for x in key[1]]))

    # -- pairing ast statements with LibCST's ------------------------------------------------------------------------

    def _pair(self, statements: Sequence[ast.stmt], body: Sequence[cst.CSTNode], path: tuple[cst.CSTNode, ...]) -> None:
        flat = list(_flatten(body, path))
        if len(flat) != len(statements):
            raise ApplyError(f"line {path and statements and statements[0].lineno}: the two parsers disagree")
        for statement, (node, line) in zip(statements, flat):
            first = min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", []))])
            source = self.lines[first - 1] if first <= len(self.lines) else ""
            indent = source[: len(source) - len(source.lstrip(" \t"))]
            slot = _Slot(node, line, path, indent, is_elif=bool(path) and isinstance(path[-1], _Elif))
            ref = E.Ref.of(statement)
            self.slots[(ref.start, ref.end, ref.kind)] = slot
            for statements_below, block, owners in _blocks(statement, node):
                self._pair(statements_below, _body(block), (*path, *owners, block))

    def slot(self, ref: E.Ref) -> _Slot:
        try:
            return self.slots[(ref.start, ref.end, ref.kind)]
        except KeyError:
            raise ApplyError(f"line {ref.line}: no statement found for an edit") from None

    def _touch(self, slot: _Slot, *nodes: cst.CSTNode) -> None:
        self.dirty.update(id(node) for node in slot.path)
        self.dirty.add(id(slot.line))
        self.dirty.add(id(slot.node))
        self.dirty.update(id(node) for node in nodes)

    # -- finding expressions by position, one statement at a time ------------------------------------------------------

    def _enclosing(self, ref: E.Ref) -> _Slot:
        found: _Slot | None = None
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
            raise ApplyError(f"line {ref.line}: no statement found around an edit")
        del found_start
        return found

    @staticmethod
    def _decorator_line(slot: _Slot, line: int) -> int:
        node = slot.node
        if not isinstance(node, (cst.FunctionDef, cst.ClassDef)) or not node.decorators:
            return line
        code = cst.Module(body=[]).code_for_node(node.with_changes(leading_lines=[], body=cst.SimpleStatementSuite([])))
        head = code.split("def " if isinstance(node, cst.FunctionDef) else "class ")[0]
        return line - head.count("\n")

    def _positions(self, ref: E.Ref, slot: _Slot) -> dict[tuple[tuple[int, int], tuple[int, int]], list[cst.CSTNode]]:
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
                (p.line + shift, p.column + (longer if p.line + shift == first else 0)) for p in (position.start, position.end)
            )
            table[(start, end)].append(node)
        self._parents(unit)
        for child in unit.children:
            self.parents[id(child)] = slot.line
        self.units[id(slot.line)] = table
        return table

    def _first_lines(self, slot: _Slot) -> Iterator[tuple[int, cst.CSTNode]]:
        for (start, _, _), other in self.slots.items():
            if other.line is slot.line:
                yield (self._decorator_line(slot, start[0]), other.node)
                return

    def _parents(self, node: cst.CSTNode) -> None:
        for child in node.children:
            self.parents[id(child)] = node
            self._parents(child)

    def find(self, ref: E.Ref) -> tuple[_Slot, cst.CSTNode]:
        slot = self._enclosing(ref)
        table = self._positions(ref, slot)
        key = (self._characters(ref.start), self._characters(ref.end))
        wanted = getattr(cst, ref.kind, None)
        nodes = [node for node in table.get(key, ()) if isinstance(node, cst.BaseExpression)]
        exact = [node for node in nodes if wanted is not None and isinstance(node, wanted)]
        if not (exact or nodes):
            raise ApplyError(f"line {ref.line}: no {ref.kind} found for an edit")
        node = (exact or nodes)[0]
        chain: list[cst.CSTNode] = []
        above: cst.CSTNode | None = node
        while above is not None and above is not slot.line:
            chain.append(above)
            above = self.parents.get(id(above))
        self._touch(slot, *chain)
        return slot, node

    def _characters(self, place: tuple[int, int]) -> tuple[int, int]:
        line, column = place
        source = self.lines[line - 1]
        if source.isascii():
            return place
        return (line, len(source.encode("utf-8")[:column].decode("utf-8")))

    # -- one edit --------------------------------------------------------------------------------------------------------

    def change(self, node: cst.CSTNode, change: Change) -> None:
        self.changes[id(node)].append(change)

    def plan(self, edit: E.Edit) -> None:
        if isinstance(edit, (E.ReplaceStatement, E.InsertAfter, E.InsertBefore)):
            self._statement(edit)
        elif isinstance(edit, E.UnwrapIf):
            slot = self.slot(edit.statement)
            self._touch(slot)
            self.change(slot.node, lambda node: _unwrapped(node, edit.keep))
        elif isinstance(edit, E.ReplaceExpression):
            _, node = self.find(edit.expression)
            code = _with_indent(edit.code, self.module.default_indent)
            self.change(node, lambda old: _expression(code, old))
        elif isinstance(edit, E.RemoveArgument):
            self._call(edit.call, lambda arguments: _without_argument(arguments, edit.argument))
        elif isinstance(edit, E.SetArgument):
            self._call(edit.call, lambda arguments: _with_argument(arguments, edit))
        elif isinstance(edit, E.RemoveElement):
            _, node = self.find(edit.container)
            kept = cast(Any, node).elements[edit.index]
            self.change(node, lambda old: old.with_changes(elements=_without_original(old.elements, cast(Any, node).elements, kept)))
        elif isinstance(edit, E.RemoveImport):
            slot = self.slot(edit.statement)
            self._touch(slot)
            self.change(slot.node, lambda node: _without_import(node, edit.name))
            self.change(slot.line, _drop_if_empty)
        elif isinstance(edit, (E.RemoveParameter, E.SetParameter, E.SetReturns)):
            slot = self.slot(edit.function)
            self._touch(slot)
            self.change(slot.node, lambda node: _signature(node, edit))

    def _call(self, ref: E.Ref, change: Callable[[Sequence[cst.Arg]], Sequence[cst.Arg]]) -> None:
        if ref.kind == "ClassDef":
            slot = self.slot(ref)
            self._touch(slot)
            self.change(slot.node, lambda old: _with_bases(old, change(old.bases)))
            return
        _, node = self.find(ref)
        self.change(node, lambda old: old.with_changes(args=change(old.args)))

    def _statement(self, edit: E.ReplaceStatement | E.InsertAfter | E.InsertBefore) -> None:
        slot = self.slot(edit.statement)
        self._touch(slot)
        code = _with_indent(edit.code, self.module.default_indent)
        new = list(cst.parse_module(code, self.module.config_for_parsing).body) if code.strip() else []
        if slot.is_elif and not new:
            self.change(slot.node, lambda node: cst.RemoveFromParent())
        elif slot.line is slot.node:
            self.change(slot.node, lambda node: _statements(edit, node, new))
        elif not isinstance(slot.line, cst.SimpleStatementLine):
            if not isinstance(edit, E.ReplaceStatement) or len(new) > 1 or not all(isinstance(line, cst.SimpleStatementLine) for line in new):
                raise ApplyError(f"line {edit.statement.line}: a statement on the line of its block")
            small = new[0].body[0] if new else cst.Pass()  # type: ignore[union-attr]
            self.change(slot.node, lambda node: small.with_changes(semicolon=node.semicolon))
        elif len(slot.line.body) == 1:
            self.change(slot.line, lambda node: _statements(edit, node, new))
        elif isinstance(edit, E.ReplaceStatement) and not new:
            self.change(slot.node, lambda node: cst.RemoveFromParent())
            self.change(slot.line, _tidied)
        elif isinstance(edit, E.ReplaceStatement) and len(new) == 1 and isinstance(new[0], cst.SimpleStatementLine):
            small = new[0].body[0]
            self.change(slot.node, lambda node: small.with_changes(semicolon=node.semicolon))
        else:
            raise ApplyError(f"line {edit.statement.line}: several statements on one line")


def _flatten(body: Sequence[cst.CSTNode], path: tuple[cst.CSTNode, ...]) -> Iterator[tuple[cst.CSTNode, cst.CSTNode]]:
    """Statements with what they are printed in: their line, the compound statement itself, or `if x:` around `if x: y`."""
    for statement in body:
        if isinstance(statement, cst.SimpleStatementLine):
            for small in statement.body:
                yield small, statement
        elif isinstance(statement, cst.BaseSmallStatement):
            yield statement, next(n for n in reversed(path) if not isinstance(n, (cst.SimpleStatementSuite, cst.Else, cst.Finally, _Elif)))
        else:
            yield statement, statement


def _body(block: cst.CSTNode) -> Sequence[cst.CSTNode]:
    if isinstance(block, cst.SimpleStatementSuite):
        return [cst.ensure_type(small, cst.BaseSmallStatement) for small in block.body]
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


def _statements(edit: Any, node: Any, new: list[Any]) -> Any:
    if isinstance(edit, E.ReplaceStatement):
        if not new:
            return _gone(node, keep_comments=False)
        first = new[0].with_changes(leading_lines=[*node.leading_lines, *new[0].leading_lines])
        if isinstance(node, cst.SimpleStatementLine) and isinstance(new[-1], cst.SimpleStatementLine):
            last = first if len(new) == 1 else new[-1]
            last = last.with_changes(trailing_whitespace=node.trailing_whitespace)
            return cst.FlattenSentinel([last] if len(new) == 1 else [first, *new[1:-1], last])
        return cst.FlattenSentinel([first, *new[1:]])
    old = list(node) if isinstance(node, cst.FlattenSentinel) else [node]
    return cst.FlattenSentinel([*new, *old] if isinstance(edit, E.InsertBefore) else [*old, *new])


def _unwrapped(node: cst.If, keep: str) -> Any:
    block = node.body if keep == "body" else cst.ensure_type(node.orelse, cst.Else).body
    if isinstance(block, cst.SimpleStatementSuite):
        return cst.FlattenSentinel([cst.SimpleStatementLine(block.body, leading_lines=node.leading_lines)])
    body = list(block.body)
    body[0] = body[0].with_changes(leading_lines=[*node.leading_lines, *body[0].leading_lines])  # type: ignore[attr-defined]
    return cst.FlattenSentinel(body)


def _with_indent(code: str, indent: str) -> str:
    """Planned code, which is indented by four spaces, in the file's own indentation."""
    lines = code.split("\n")
    depths = [(len(line) - len(line.lstrip(" "))) // 4 for line in lines]
    return "\n".join(indent * depth + line[4 * depth :] for line, depth in zip(lines, depths))


def _expression(code: str, old: Any) -> cst.BaseExpression:
    new = cst.parse_expression(code)
    if getattr(old, "lpar", ()) and not new.lpar:
        return new.with_changes(lpar=old.lpar, rpar=old.rpar)
    if _looseness(new) > _looseness(old) and not new.lpar:
        return new.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return new


def _looseness(node: cst.BaseExpression) -> int:
    """How loosely an expression binds; a tighter one may be put in its place without parentheses."""
    order = (cst.BinaryOperation, cst.Comparison, cst.UnaryOperation, cst.BooleanOperation, cst.IfExp, cst.Lambda)
    return next((level for level, kind in enumerate(order, 1) if isinstance(node, kind)), 0)


def _gone(node: Any, keep_comments: bool) -> Any:
    """What stands for a removed statement. A comment right above goes with it unless it may speak of more than it."""
    if not hasattr(node, "leading_lines"):
        return cst.RemoveFromParent()
    lines = [line for line in node.leading_lines if keep_comments or line.comment is None]
    return _Gone(body=[cst.Pass()], leading_lines=lines)


def _drop_if_empty(node: Any) -> Any:
    return node if isinstance(node, _Gone) or node.body else _gone(node, keep_comments=True)


def _tidied(node: Any) -> Any:
    """A line with several statements, one of which was taken out."""
    if isinstance(node, _Gone):
        return node
    if not node.body:
        return _gone(node, keep_comments=True) if isinstance(node, cst.SimpleStatementLine) else node.with_changes(body=[cst.Pass()])
    last = node.body[-1].with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
    return node.with_changes(body=[*node.body[:-1], last])


# -- comma separated lists -------------------------------------------------------------------------------------------------


def _without(items: Sequence[Any], index: int) -> list[Any]:
    """The items less one; the new last item takes over the end of the list, but keeps its own comment."""
    kept = [item for position, item in enumerate(items) if position != index]
    if kept and index == len(items) - 1:
        kept[-1] = _close_like(kept[-1], items[-1])
    return kept


def _close_like(item: Any, last: Any) -> Any:
    if not isinstance(item.comma, cst.Comma):
        return item
    if isinstance(last.comma, cst.Comma):
        return item.with_changes(comma=item.comma.with_changes(whitespace_after=_merged(item.comma.whitespace_after, last.comma.whitespace_after)))
    if isinstance(item, cst.ParamStar) or _comment(item.comma.whitespace_after) is not None:
        return item  # a lone star goes with the last parameter behind it; a comment needs the comma ahead of it
    after = next((name for name in ("whitespace_after_arg", "whitespace_after_param") if hasattr(item, name)), None)
    changes: dict[str, Any] = {"comma": cst.MaybeSentinel.DEFAULT}
    if after is not None:
        changes[after] = _merged(item.comma.whitespace_after, getattr(last, after, cst.SimpleWhitespace("")))
    return item.with_changes(**changes)


def _comment(space: Any) -> Any:
    return space.first_line.comment if isinstance(space, cst.ParenthesizedWhitespace) else None


def _merged(own: Any, end: Any) -> Any:
    """The closing white space of the removed last item, without its comment and with the comment of the item before."""
    if isinstance(end, cst.ParenthesizedWhitespace):
        first = own.first_line if isinstance(own, cst.ParenthesizedWhitespace) else end.first_line.with_changes(comment=None, whitespace=cst.SimpleWhitespace(""))
        return end.with_changes(first_line=first)
    if _comment(own) is not None:
        return own
    return end


def _without_original(items: Sequence[Any], originals: Sequence[Any], gone: Any) -> list[Any]:
    index = [id(item) for item in originals].index(id(gone))
    if len(items) != len(originals):  # another element went before: find it again by its code
        module = cst.Module([])
        code = module.code_for_node(gone.with_changes(comma=cst.MaybeSentinel.DEFAULT))
        index = [module.code_for_node(item.with_changes(comma=cst.MaybeSentinel.DEFAULT)) for item in items].index(code)
    return _without(items, index)


def _without_argument(arguments: Sequence[cst.Arg], which: str | int) -> Sequence[cst.Arg]:
    for index, argument in enumerate(arguments):
        if index == which or (argument.keyword is not None and argument.keyword.value == which):
            return _without(arguments, index)
    return arguments


def _with_argument(arguments: Sequence[cst.Arg], edit: E.SetArgument) -> Sequence[cst.Arg]:
    result = list(arguments)
    for index, argument in enumerate(result):
        if argument.keyword is not None and argument.keyword.value == edit.keyword:
            value = argument.value if edit.value is None else cst.parse_expression(edit.value)
            result[index] = argument.with_changes(keyword=cst.Name(edit.new_keyword), value=value)
            return result
    new = cst.Arg(
        keyword=cst.Name(edit.new_keyword),
        value=cst.parse_expression(edit.value or "None"),
        equal=cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace("")),
    )
    place = next((i for i, a in enumerate(result) if a.star == "**"), len(result))
    if not result:
        return [new]
    if place < len(result):
        between = result[place - 1].comma if place and isinstance(result[place - 1].comma, cst.Comma) else cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
        return [*result[:place], new.with_changes(comma=between), *result[place:]]
    last = result[-1]
    between = next((a.comma for a in reversed(result[:-1]) if isinstance(a.comma, cst.Comma)), None)
    if between is None or _comment(between.whitespace_after) is not None:
        between = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    if isinstance(last.comma, cst.Comma):
        if _comment(last.comma.whitespace_after) is None:
            return [*result[:-1], last.with_changes(comma=between), new.with_changes(comma=last.comma)]
        return [*result, new]
    new = new.with_changes(whitespace_after_arg=last.whitespace_after_arg)
    return [*result[:-1], last.with_changes(comma=between, whitespace_after_arg=cst.SimpleWhitespace("")), new]


def _with_bases(node: cst.ClassDef, bases: Sequence[cst.Arg]) -> cst.ClassDef:
    if bases:
        return node.with_changes(bases=bases)
    return node.with_changes(bases=[], lpar=cst.MaybeSentinel.DEFAULT, rpar=cst.MaybeSentinel.DEFAULT)


def _without_import(node: Any, name: str) -> Any:
    if isinstance(node, cst.RemovalSentinel):
        return node
    for index, alias in enumerate(node.names):
        if cst.Module([]).code_for_node(alias.name) == name:
            kept = _without(node.names, index)
            if not kept:
                return cst.RemoveFromParent()
            return node.with_changes(names=kept)
    return node


def _signature(node: cst.FunctionDef, edit: Any) -> cst.FunctionDef:
    if isinstance(edit, E.SetReturns):
        annotation = cst.parse_expression(edit.annotation)
        returns = node.returns.with_changes(annotation=annotation) if node.returns else None
        return node.with_changes(returns=returns)
    groups = ("posonly_params", "params", "star_arg", "kwonly_params", "star_kwarg")
    parameters = node.params
    flat: list[tuple[str, Any]] = []
    for group in groups:
        value = getattr(parameters, group)
        flat += [(group, item) for item in (value if isinstance(value, (tuple, list)) else [value]) if isinstance(item, (cst.Param, cst.ParamStar))]
    index = next((i for i, (_, item) in enumerate(flat) if isinstance(item, cst.Param) and item.name.value == edit.name), None)
    if index is None:
        raise ApplyError(f"no parameter {edit.name}")
    if isinstance(edit, E.RemoveParameter):
        kept = _without([item for _, item in flat], index)
        names = [group for i, (group, _) in enumerate(flat) if i != index]
        flat = list(zip(names, kept))
        if not any(group == "kwonly_params" for group, _ in flat):
            star = next((i for i, (_, item) in enumerate(flat) if isinstance(item, cst.ParamStar)), None)
            if star is not None:
                rest = _without([item for _, item in flat], star)
                flat = list(zip([group for i, (group, _) in enumerate(flat) if i != star], rest))
    else:
        group, item = flat[index]
        flat[index] = (group, _parameter(item, edit))
    changes: dict[str, Any] = {}
    for group in groups:
        items = [item for name, item in flat if name == group]
        if group in ("star_arg", "star_kwarg"):
            changes[group] = items[0] if items else (cst.MaybeSentinel.DEFAULT if group == "star_arg" else None)
        else:
            changes[group] = items
    return node.with_changes(params=parameters.with_changes(**changes))


def _parameter(item: cst.Param, edit: E.SetParameter) -> cst.Param:
    changes: dict[str, Any] = {}
    if edit.new_name is not None:
        changes["name"] = item.name.with_changes(value=edit.new_name)
    if edit.annotation is not None:
        new = cst.parse_expression(edit.annotation) if edit.annotation else None
        if new is None:
            changes["annotation"] = None
        elif item.annotation is not None:
            changes["annotation"] = item.annotation.with_changes(annotation=new)
        else:
            changes["annotation"] = cst.Annotation(new)
            if item.default is not None:
                changes["equal"] = cst.AssignEqual()  # spaces around it, as an annotated parameter has them
    if edit.default is not None:
        changes["default"] = cst.parse_expression(edit.default) if edit.default else None
        if not edit.default:
            changes["equal"] = cst.MaybeSentinel.DEFAULT
    return item.with_changes(**changes)


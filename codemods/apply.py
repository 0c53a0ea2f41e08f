"""Carries planned edits out on a LibCST tree, touching nothing else: untouched lines keep their bytes."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, cast

import libcst as cst

from codemods import blocks
from codemods import comma_lists as lists
from codemods import edits as E
from codemods.folding import FoldError, first_indent, fold
from codemods.imports_layout import place_imports
from codemods.places import Places

Change = Callable[[Any], Any]


class ApplyError(Exception):
    """An edit does not fit its place: nothing may be written."""


def apply(text: str, tree: ast.Module, planned: Sequence[E.Edit]) -> str:
    """`text` with the edits carried out. `tree` is `ast.parse(text)`.

    Raises `PlaceError` or `ApplyError` if an edit cannot be placed, `libcst.ParserSyntaxError` if LibCST cannot read
    the text.
    """
    folded = fold(text, tree, planned)
    if folded is not None:
        try:
            module = cst.parse_module(folded.text)
            if module.default_indent == first_indent(text, tree):
                return folded.unfold(_applied(module, folded.text, ast.parse(folded.text), folded.edits))
        except FoldError:
            pass
    return _applied(cst.parse_module(text), text, tree, planned)


def _applied(module: cst.Module, text: str, tree: ast.Module, planned: Sequence[E.Edit]) -> str:
    run = _Run(module, text, tree)
    imports = [edit for edit in planned if isinstance(edit, E.AddImport)]
    for edit in sorted(planned, key=_positional_last_first):
        run.plan(edit)
    changed = module.visit(_Transformer(run.changes, run.places.dirty))
    changed = place_imports(changed, imports) if imports else changed
    for edit in planned:
        if isinstance(edit, E.RenameInComments):
            changed = changed.visit(_CommentRenamer(edit.old, edit.new))
    return changed.code


class _CommentRenamer(cst.CSTTransformer):
    def __init__(self, old: str, new: str) -> None:
        super().__init__()
        self.word = re.compile(rf"\b{re.escape(old)}\b")
        self.new = new

    def leave_Comment(self, original_node: cst.Comment, updated_node: cst.Comment) -> cst.Comment:
        return updated_node.with_changes(value=self.word.sub(self.new, updated_node.value))


def _positional_last_first(edit: E.Edit) -> int:
    """Arguments named by position are changed from the last to the first, so that the positions stay true."""
    positional = isinstance(edit, (E.RemoveArgument, E.SetArgument)) and isinstance(edit.argument, int)
    return -edit.argument if positional else 1  # type: ignore[union-attr, operator]


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
            return blocks.closed_up(result)
        return result


class _Run:
    """The edits of one file, turned into changes of LibCST nodes."""

    def __init__(self, module: cst.Module, text: str, tree: ast.Module) -> None:
        self.module = module
        self.places = Places(module, text, tree)
        self.changes: dict[int, list[Change]] = defaultdict(list)

    def change(self, node: cst.CSTNode, change: Change) -> None:
        self.changes[id(node)].append(change)

    def plan(self, edit: E.Edit) -> None:
        if isinstance(edit, (E.ReplaceStatement, E.InsertAfter, E.InsertBefore)):
            self._statement(edit)
        elif isinstance(edit, E.Unwrap) and edit.place.kind == "IfExp":
            _, node = self.places.find(edit.place)
            self.change(node, lambda old: _fitting(getattr(old, edit.keep), old))
        elif isinstance(edit, E.Unwrap):
            slot = self.places.slot(edit.place)
            self.places.touch(slot)
            if slot.is_elif:
                self.change(slot.node, lambda node: blocks.elif_arm(node, edit.keep))
            else:
                self.change(slot.node, lambda node: blocks.unwrapped(node, edit.keep))
        elif isinstance(edit, E.ReplaceExpression):
            _, node = self.places.find(edit.expression)
            code = _with_indent(edit.code, self.module.default_indent)
            self.change(node, lambda old: _expression(code, old))
        elif isinstance(edit, E.RemoveArgument):
            self._call(edit.call, lambda arguments: lists.without_argument(arguments, edit.argument))
        elif isinstance(edit, E.SetArgument):
            self._call(edit.call, lambda arguments: lists.with_argument(arguments, edit))
        elif isinstance(edit, E.Rename):
            self._rename(edit)
        elif isinstance(edit, E.RemoveElement):
            _, node = self.places.find(edit.container)
            kept = cast(Any, node).elements[edit.index]
            self.change(
                node,
                lambda old: old.with_changes(
                    elements=lists.without_element(old.elements, cast(Any, node).elements, kept)
                ),
            )
        elif isinstance(edit, E.RemoveImport):
            slot = self.places.slot(edit.statement)
            self.places.touch(slot)
            self.change(slot.node, lambda node: lists.without_import(node, edit.name))
            self.change(slot.line, blocks.drop_if_empty)
        elif isinstance(edit, (E.RemoveParameter, E.SetParameter, E.AddParameter, E.SetReturns)):
            slot = self.places.slot(edit.function)
            self.places.touch(slot)
            self.change(slot.node, lambda node: lists.with_signature(node, edit))

    def _rename(self, edit: E.Rename) -> None:
        if edit.place.kind == "Attribute":
            _, node = self.places.find(edit.place)
            self.change(node, lambda old: old.with_changes(attr=old.attr.with_changes(value=edit.name)))
            return
        slot = self.places.slot(edit.place)
        self.places.touch(slot)
        self.change(slot.node, lambda old: old.with_changes(name=old.name.with_changes(value=edit.name)))

    def _call(self, ref: E.Ref, change: Callable[[Sequence[cst.Arg]], Sequence[cst.Arg]]) -> None:
        if ref.kind == "ClassDef":
            slot = self.places.slot(ref)
            self.places.touch(slot)
            self.change(slot.node, lambda old: lists.with_bases(old, change(old.bases)))
            return
        _, node = self.places.find(ref)
        self.change(node, lambda old: old.with_changes(args=change(old.args)))

    def _parsed(self, code: str) -> list[Any]:
        """Statements of new code; LibCST gives comments ahead of the first one to the module."""
        module = cst.parse_module(code, self.module.config_for_parsing)
        if not module.body:
            return []
        first, *rest = module.body
        header = [line if line.comment else line.with_changes(indent=False) for line in module.header]
        return [first.with_changes(leading_lines=[*header, *first.leading_lines]), *rest]

    def _statement(self, edit: E.ReplaceStatement | E.InsertAfter | E.InsertBefore) -> None:
        slot = self.places.slot(edit.statement)
        self.places.touch(slot)
        code = _with_indent(edit.code, self.module.default_indent)
        new = self._parsed(code) if code.strip() else []
        if slot.is_elif and not new:
            self.change(slot.node, lambda node: cst.RemoveFromParent())
        elif slot.line is slot.node:
            self.change(slot.node, lambda node: _statements(edit, node, new))
        elif not isinstance(slot.line, cst.SimpleStatementLine):
            if (
                not isinstance(edit, E.ReplaceStatement)
                or len(new) > 1
                or not all(isinstance(line, cst.SimpleStatementLine) for line in new)
            ):
                raise ApplyError(f"line {edit.statement.line}: a statement on the line of its block")
            small = cst.ensure_type(new[0], cst.SimpleStatementLine).body[0] if new else cst.Pass()
            self.change(slot.node, lambda node: small.with_changes(semicolon=node.semicolon))
        elif len(slot.line.body) == 1:
            self.change(slot.line, lambda node: _statements(edit, node, new))
        elif isinstance(edit, E.ReplaceStatement) and not new:
            self.change(slot.node, lambda node: cst.RemoveFromParent())
            self.change(slot.line, blocks.tidied)
        elif isinstance(edit, E.ReplaceStatement) and len(new) == 1 and isinstance(new[0], cst.SimpleStatementLine):
            small = new[0].body[0]
            self.change(slot.node, lambda node: small.with_changes(semicolon=node.semicolon))
        else:
            raise ApplyError(f"line {edit.statement.line}: several statements on one line")


def _statements(edit: Any, node: Any, new: list[Any]) -> Any:
    if isinstance(edit, E.ReplaceStatement):
        if not new:
            return blocks.gone_line(node, keep_comments=False)
        first = new[0].with_changes(leading_lines=[*node.leading_lines, *new[0].leading_lines])
        if isinstance(node, cst.SimpleStatementLine) and isinstance(new[-1], cst.SimpleStatementLine):
            last = first if len(new) == 1 else new[-1]
            last = last.with_changes(trailing_whitespace=node.trailing_whitespace)
            return cst.FlattenSentinel([last] if len(new) == 1 else [first, *new[1:-1], last])
        return cst.FlattenSentinel([first, *new[1:]])
    old = list(node) if isinstance(node, cst.FlattenSentinel) else [node]
    if isinstance(edit, E.InsertBefore) and isinstance(old[0], (cst.FunctionDef, cst.ClassDef)):
        old[0] = _set_apart(old[0])
    return cst.FlattenSentinel([*new, *old] if isinstance(edit, E.InsertBefore) else [*old, *new])


def _set_apart(node: cst.FunctionDef | cst.ClassDef) -> cst.FunctionDef | cst.ClassDef:
    """A definition with a blank line ahead of it."""
    if node.leading_lines and node.leading_lines[0].comment is None:
        return node
    return node.with_changes(leading_lines=[cst.EmptyLine(indent=False), *node.leading_lines])


def _with_indent(code: str, indent: str) -> str:
    """Planned code, which is indented by four spaces, in the file's own indentation."""
    lines = code.split("\n")
    depths = [(len(line) - len(line.lstrip(" "))) // 4 for line in lines]
    return "\n".join(indent * depth + line[4 * depth :] for line, depth in zip(lines, depths))


def _expression(code: str, old: Any) -> cst.BaseExpression:
    return _fitting(cst.parse_expression(code), old)


def _fitting(new: cst.BaseExpression, old: Any) -> cst.BaseExpression:
    """An expression with the parentheses that it needs in place of another."""
    if isinstance(old, cst.Tuple) and not isinstance(new, cst.Tuple):
        return new  # the parentheses were the tuple's
    if getattr(old, "lpar", ()) and not new.lpar:
        return new.with_changes(lpar=old.lpar, rpar=old.rpar)
    if _looseness(new) > _looseness(old) and not new.lpar:
        return new.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return new


def _looseness(node: cst.BaseExpression) -> int:
    """How loosely an expression binds; a tighter one may be put in its place without parentheses."""
    order = (cst.BinaryOperation, cst.Comparison, cst.UnaryOperation, cst.BooleanOperation, cst.IfExp, cst.Lambda)
    return next((level for level, kind in enumerate(order, 1) if isinstance(node, kind)), 0)

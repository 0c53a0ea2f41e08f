"""Leaves out of a text what no edit concerns, so that LibCST parses little: a function or class becomes one line, and
so do statements of a function in a row.

LibCST takes most of a run's time, and takes it by the line, while edits concern a few statements of a file. What is
left out is put back as it was, byte for byte.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate
from typing import Any

from codemods import edits as E

_SHORTEST = 4  # lines; to leave out less gains nothing
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")
_MARK = re.compile(r"(?<![^\r\n])([ \t]*)(?:class|def) __folded_(\d+)__(?:\(\))?: pass(?![^\r\n])")
_DEFINITION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class FoldError(Exception):
    """What was left out does not fit where it now stands: the text has to be edited as a whole."""


@dataclass(frozen=True)
class Folded:
    """A text with parts left out, the same edits placed in it, and what to put back."""

    text: str
    edits: tuple[E.Edit, ...]
    taken: tuple[str, ...]  # each without its last newline

    def unfold(self, text: str) -> str:
        """The edited text with everything put back. Raises FoldError where a block was indented otherwise."""

        def original(mark: re.Match[str]) -> str:
            taken = self.taken[int(mark[2])]
            if _indent(taken) != mark[1]:
                raise FoldError(mark[0].strip())
            return taken

        return _MARK.sub(original, text)


@dataclass(frozen=True)
class _Span:
    """The lines of a definition, or of statements in a row, 1-based, both ends included."""

    first: int
    last: int
    is_class: bool


def fold(text: str, tree: ast.Module, planned: Sequence[E.Edit]) -> Folded | None:
    """`text` without what no edit touches; None where that would leave out nothing."""
    lines = _LINE.findall(text)
    places = [place for edit in planned for place in E.places(edit)]
    words = [re.compile(rf"\b{re.escape(e.old)}\b") for e in planned if isinstance(e, E.RenameInComments)]
    spans = [
        span
        for span in _untouched(tree.body, lines, places)
        if not any(word.search(line) for word in words for line in lines[span.first - 1 : span.last])
    ]
    if not spans or "__folded_" in text:
        return None
    new: list[str] = []
    marks: list[str] = []
    taken: list[str] = []
    behind = 0
    for span in spans:
        whole = "".join(lines[span.first - 1 : span.last])
        bare = whole.rstrip("\r\n")
        name = f"__folded_{len(marks)}__"
        marks.append(f"{_indent(whole)}{f'class {name}' if span.is_class else f'def {name}()'}: pass")
        taken.append(bare)
        new += [*lines[behind : span.first - 1], marks[-1] + whole[len(bare) :]]
        behind = span.last
    shift = _Shift(spans, [len(mark) for mark in marks])
    return Folded("".join([*new, *lines[behind:]]), tuple(shift.moved(edit) for edit in planned), tuple(taken))


def first_indent(text: str, tree: ast.Module) -> str:
    """The white space by which the first indented block of a text is indented; four spaces where there is none."""
    for statement in tree.body:
        block = getattr(statement, "body", None)
        if block and block[0].lineno > statement.lineno:
            line = min([block[0].lineno, *(d.lineno for d in getattr(block[0], "decorator_list", ()))])
            return _indent(_LINE.findall(text)[line - 1])
    return "    "


def _untouched(
    body: Sequence[ast.stmt], lines: Sequence[str], places: Sequence[E.Ref], around: type[ast.AST] = ast.Module
) -> Iterator[_Span]:
    """Every definition that no edit lies in; of a class or branch that one lies in, those inside; of a function, what
    stands ahead of the place, behind it and around it.

    `around`: a module, a class, a function, or `ast.If` for any branch outside of a function.
    """
    row: list[ast.stmt] = []
    for statement in body:
        first = min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", ()))])
        last = statement.end_lineno or first
        touched = any(p.line <= last and first <= p.end_line for p in places)
        kind = type(statement)
        if around is ast.FunctionDef and not touched and kind not in _DEFINITION:
            row.append(statement)
            continue
        yield from _row(row, lines)
        row = []
        if kind in _DEFINITION and not touched:
            last = _with_comments(lines, last, _indent(lines[first - 1]))
            if last - first >= _SHORTEST and first > 1:  # LibCST takes a file's newline from its first line
                yield _Span(first, last, kind is ast.ClassDef)
            continue
        if kind in (ast.FunctionDef, ast.AsyncFunctionDef):
            if around is ast.If:  # new imports have to stand ahead of a branch that reads them, wherever in it
                continue
            below: type[ast.AST] = ast.FunctionDef
        else:
            below = around if around is ast.FunctionDef or kind is ast.ClassDef else ast.If
        inside = [p for p in places if not (p.line <= statement.lineno and last <= p.end_line)]
        for block in ("body", "orelse", "finalbody"):
            yield from _untouched(getattr(statement, block, ()), lines, inside, below)
    yield from _row(row, lines)


def _row(row: Sequence[ast.stmt], lines: Sequence[str]) -> Iterator[_Span]:
    """Statements in a row that no edit lies in, where they have their lines for themselves."""
    if not row:
        return
    first, last = row[0].lineno, row[-1].end_lineno or 0
    ahead = lines[first - 1].encode()[: row[0].col_offset].decode()
    behind = lines[last - 1].encode()[row[-1].end_col_offset :].decode().strip()
    is_elif = lines[first - 1].startswith("elif", len(ahead))
    if ahead.strip() or is_elif or (behind and not behind.startswith("#")):
        return
    if hasattr(row[-1], "body"):
        last = _with_comments(lines, last, ahead)
    if last - first >= _SHORTEST:
        yield _Span(first, last, is_class=False)


def _with_comments(lines: Sequence[str], last: int, indent: str) -> int:
    """The last line, or that of comments behind it that are indented like its block."""
    for number in range(last, len(lines)):
        line = lines[number].strip()
        if line and not (line.startswith("#") and len(_indent(lines[number])) > len(indent)):
            break
        if line:
            last = number + 1
    return last


def _indent(text: str) -> str:
    return text[: len(text) - len(text.lstrip(" \t"))]


class _Shift:
    """Where places of a text are in its folded form."""

    def __init__(self, spans: Sequence[_Span], widths: Sequence[int]) -> None:
        self.spans = spans
        self.widths = widths  # of the lines that stand for the spans
        self.starts = [span.first for span in spans]
        self.shorter = [0, *accumulate(span.last - span.first for span in spans)]

    def moved(self, edit: E.Edit) -> E.Edit:
        changed: dict[str, Any] = {}
        for field in fields(edit):
            value = getattr(edit, field.name)
            if isinstance(value, E.Ref):
                changed[field.name] = self._moved(value)
        return replace(edit, **changed) if changed else edit

    def _moved(self, ref: E.Ref) -> E.Ref:
        return E.Ref(*self._place(*ref.start), *self._place(*ref.end), ref.kind)

    def _place(self, line: int, column: int) -> tuple[int, int]:
        """A class whose last method is left out ends where the line for it ends; no other place lies in a span."""
        index = bisect_right(self.starts, line) - 1
        if index < 0:
            return line, column
        span = self.spans[index]
        if line <= span.last:
            return span.first - self.shorter[index], self.widths[index]
        return line - self.shorter[index + 1], column

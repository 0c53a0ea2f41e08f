"""What changed in a file, hunk by hunk, and which rules changed it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from codemods import edits as E
from codemods.findings import FileReport, Rewrite
from codemods.notebook import SUFFIX, Notebook
from codemods.plan import FilePlan

CONTEXT = 3  # lines above and below a change, as in a patch


@dataclass(frozen=True)
class Row:
    """A line before and after, each with its number from 1; None where there is none at that side."""

    before: tuple[int, str] | None
    after: tuple[int, str] | None

    @property
    def same(self) -> bool:
        return self.before is not None and self.after is not None and self.before[1] == self.after[1]


@dataclass(frozen=True)
class Hunk:
    """Neighbouring changes with the lines around them. `codes` are the rules that asked for edits in it, sorted;
    `rewrites` the lines of the report that speak of it, which for an edit further down may be none."""

    rows: tuple[Row, ...]
    codes: tuple[str, ...]
    rewrites: tuple[Rewrite, ...]


def hunks(report: FileReport, plan: FilePlan, context: int = CONTEXT) -> list[Hunk]:
    """The hunks of a changed file, from the top; none where it does not change. `plan` is that of the file.

    A notebook is shown as the text that its code cells make together.
    """
    if not report.changed or report.before is None or report.after is None:
        return []
    before, after = (_text(report.path, text).splitlines() for text in (report.before, report.after))
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    return [_hunk(group, before, after, plan) for group in matcher.get_grouped_opcodes(context)]


def _text(path: str, text: str) -> str:
    return Notebook(text).code if Path(path).suffix == SUFFIX else text


_Opcodes = Sequence[tuple[str, int, int, int, int]]


def _hunk(group: _Opcodes, before: list[str], after: list[str], plan: FilePlan) -> Hunk:
    rows: list[Row] = []
    old: set[int] = set()  # lines that change, or that something new stands at
    new: list[str] = []
    for kind, start, end, new_start, new_end in group:
        left = [(number + 1, before[number]) for number in range(start, end)]
        right = [(number + 1, after[number]) for number in range(new_start, new_end)]
        if kind != "equal":
            old.update(number for number, _ in left)
            old.update({start, start + 1} if not left else ())
            new += [line for _, line in right]
        for index in range(max(len(left), len(right))):
            rows.append(Row(_at(left, index), _at(right, index)))
    told = tuple(r for r in sorted(set(plan.rewrites)) if r.line in old)
    codes = {code for code, edit in plan.by_rule if _touches(edit, old, new)} | {r.code for r in told}
    return Hunk(tuple(rows), tuple(sorted(codes)), told)


def _at(lines: list[tuple[int, str]], index: int) -> tuple[int, str] | None:
    return lines[index] if index < len(lines) else None


def _touches(edit: E.Edit, old: set[int], new: list[str]) -> bool:
    if isinstance(edit, E.AddImport):
        return _imported(edit, new)
    if isinstance(edit, E.RenameInComments):
        return any("#" in line and edit.new in line for line in new)
    return any(line in old for place in E.places(edit) for line in _lines(edit, place))


def _lines(edit: E.Edit, place: E.Ref) -> Iterator[int]:
    if isinstance(edit, E.InsertAfter):
        return iter((place.end_line, place.end_line + 1))
    if isinstance(edit, E.InsertBefore):
        return iter((place.line - 1, place.line))
    return iter(range(place.line, place.end_line + 1))


def _imported(edit: E.AddImport, new: list[str]) -> bool:
    """A line of a long import holds a name alone, and may be the only one of it that is new."""
    name = re.compile(rf"(?:^\s*|\bimport\s.*\b){re.escape(edit.name)}\b(?:\s*,|\s*$|\s+as\s|\s*\))")
    return any(name.search(line) for line in new)

"""Jupyter notebooks: the code cells as one Python text, and changes of it back into the cells' own sources.

Only the sources of changed cells are written anew; every other byte of the file stays. What is not Python, magics and
shell lines, stands in the text as a statement that reads the names it mentions, and comes back as it was.
"""

from __future__ import annotations

import ast
import json
import keyword
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from json.decoder import JSONDecoder
from pathlib import Path
from typing import Any

SUFFIX = ".ipynb"

_SPACE = re.compile(r"[ \t\r\n]*")
_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_NOT_PYTHON = re.compile(r"\s*[%!?]|\s*[\w.%]+\?{1,2}\s*$|\s*[\w,. ]+=\s*[%!]")
_PYTHON_CELL = re.compile(r"%%(?:time|timeit|capture|prun)\b")  # what stands below these is Python
_HEAD = re.compile(r'"(vitport_*) cell (\d+)"')  # what each cell begins with in the text
_DECODER = JSONDecoder()


class NotebookError(Exception):
    """A notebook that cannot be read, or a change that cannot be brought back into its cells."""


@dataclass(frozen=True)
class _Cell:
    """A code cell: which of all cells it is, from 1; its source, and where the source stands in the file."""

    number: int
    source: str
    start: int
    end: int


@dataclass(frozen=True)
class _Line:
    """Lines of a cell that are not Python, and the statement that stands for them."""

    statement: str
    original: str


class Notebook:
    """A notebook file. `code` is its Python text; `skipped` are cells that are not Python, by number."""

    def __init__(self, text: str) -> None:
        """Raises NotebookError where the text is no notebook of format 4."""
        self.text = text
        self.cells = list(_cells(text))
        self.mark = "vitport"
        while self.mark in text:
            self.mark += "_"
        self.lines: list[_Line] = []
        self.skipped: list[_Cell] = []
        parts: list[str] = []
        self.starts: list[tuple[int, _Cell]] = []  # the first line of each cell in `code`
        line = 1
        for cell in self.cells:
            part = f"{self._head(cell)}\n{self._python(cell)}\n"
            self.starts.append((line + 1, cell))
            parts.append(part)
            line += part.count("\n")
        self.code = "".join(parts)

    def place(self, line: int) -> tuple[int, int]:
        """The cell's number and the line in it for a line of `code`."""
        start, cell = max((s for s in self.starts if s[0] <= line), key=lambda s: s[0], default=self.starts[0])
        return cell.number, max(line - start + 1, 1)

    def line(self, cell: int, line: int) -> int:
        """The line of `code` for a line of a cell."""
        start = next(start for start, of in self.starts if of.number == cell)
        return start + line - 1

    def with_code(self, code: str) -> str:
        """The file's text with the cells as in `code`. Raises NotebookError where a cell or a magic got lost."""
        new = self._split(code)
        text = self.text
        for cell in reversed(self.cells):
            source = self._restored(new[cell.number])
            before = self._restored(self._python(cell))
            if source != before:
                source = _ends_like(cell.source, source)
                text = text[: cell.start] + _written(text[cell.start : cell.end], source) + text[cell.end :]
        return text

    # -- cells as text -------------------------------------------------------------------------------------------------

    def _head(self, cell: _Cell) -> str:
        return f'"{self.mark} cell {cell.number}"'

    def _python(self, cell: _Cell) -> str:
        if _parses(cell.source):
            return cell.source
        found: list[str] = []
        pending: list[str] = []
        for number, line in enumerate(cell.source.split("\n")):
            opens = number == 0 and _PYTHON_CELL.match(line)
            if pending or opens or (_NOT_PYTHON.match(line) and not line.startswith("%%")):
                pending.append(line)
                if not line.endswith("\\"):
                    found.append(self._standing_for("\n".join(pending)))
                    pending = []
            else:
                found.append(line)
        text = "\n".join(found)
        if not pending and _parses(text):
            return text
        if all(cell is not other for other in self.skipped):
            self.skipped.append(cell)
        return self._standing_for(cell.source)

    def _standing_for(self, original: str) -> str:
        known = next((line for line in self.lines if line.original == original), None)
        if known is None:
            indent = original[: len(original) - len(original.lstrip(" \t"))].rpartition("\n")[2]
            words = set(_NAME.findall(original))
            names = sorted(word for word in words if not any(map(keyword.iskeyword, word.split("."))))
            read = "".join(f", {name}" for name in names)
            known = _Line(f'{indent}("{self.mark} line {len(self.lines)}"{read},)', original)
            self.lines.append(known)
        return known.statement

    def _restored(self, part: str) -> str:
        originals = {line.statement: line.original for line in self.lines}
        lines = [originals.get(line, line) for line in part.split("\n")]
        if any(f"{self.mark} line" in line for line in lines):
            raise NotebookError("a line that is no Python, such as a magic, uses what has to change")
        return "\n".join(lines)

    def _split(self, code: str) -> dict[int, str]:
        found: dict[int, list[str]] = {}
        heads = {self._head(cell): cell.number for cell in self.cells}
        here: list[str] = []
        above = here
        for line in code.removesuffix("\n").split("\n"):
            if line in heads:
                here = found.setdefault(heads[line], [])
            else:
                here.append(line)
        if len(found) != len(heads) or any(line.strip() for line in above):
            raise NotebookError("a cell got lost")
        before, after = (re.findall(rf"{self.mark} line \d+", text) for text in (self.code, code))
        if sorted(before) != sorted(after):
            raise NotebookError("a line that is no Python, such as a magic, stands in code that goes")
        return {number: "\n".join(lines) for number, lines in found.items()}


def cell_of(code: Sequence[str], line: int) -> tuple[int, int]:
    """The number of the cell and the line in it for a line of a notebook's code, also of one that was rewritten."""
    mark = next((match[1] for text in code if (match := _HEAD.fullmatch(text))), None)
    for index in range(min(line, len(code)) - 1, -1, -1):
        match = _HEAD.fullmatch(code[index])
        if match and match[1] == mark:
            return int(match[2]), max(line - index - 1, 1)
    return 1, line


def said_line(path: Path, lines: Sequence[str], number: int) -> str:
    """A line of a file as findings count it: in a notebook, that of a cell."""
    if path.suffix != SUFFIX:
        return f"line {number}"
    cell, line = cell_of(lines, number)
    return f"cell {cell}, line {line}"


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _ends_like(before: str, after: str) -> str:
    """Blank lines at both ends as they were: those are where cells meet in the text."""
    inner = after.strip("\n")
    if not inner:
        return ""
    head = before[: len(before) - len(before.lstrip("\n"))]
    tail = before[len(before.rstrip("\n")) :]
    return f"{head}{inner}{tail}"


# -- the file's own form -----------------------------------------------------------------------------------------------


def _cells(text: str) -> Iterator[_Cell]:
    """The code cells of a Python notebook, with the places of their sources."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotebookError(f"is not JSON: {error}") from error
    if not isinstance(whole, dict) or not isinstance(whole.get("cells"), list):
        raise NotebookError("is not a notebook of format 4")
    if _language(whole.get("metadata")) not in ("python", "ipython", ""):
        return
    start = next(at for key, at, _ in _members(text, _skip(text, 0)) if key == "cells")
    for number, (at, _) in enumerate(_items(text, start), 1):
        cell, _ = _DECODER.raw_decode(text, at)
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        for key, begin, end in _members(text, at):
            if key == "source":
                source = cell["source"]
                lines = [source] if isinstance(source, str) else source
                if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
                    raise NotebookError(f"the source of cell {number} is no text")
                yield _Cell(number, "".join(lines), begin, end)


def _language(metadata: Any) -> str:
    parts = metadata if isinstance(metadata, dict) else {}
    named = ((parts.get("language_info"), "name"), (parts.get("kernelspec"), "language"))
    return next((str(of[key]).lower() for of, key in named if isinstance(of, dict) and of.get(key)), "")


def _members(text: str, at: int) -> Iterator[tuple[str, int, int]]:
    """Key, and begin and end of the value, of each member of the object that begins at a place. Of two with one key
    the later counts, as for `json`."""
    found: dict[str, tuple[int, int]] = {}
    at = _skip(text, at + 1)
    while text[at] != "}":
        key, at = _DECODER.raw_decode(text, at)
        at = _skip(text, _skip(text, at) + 1)
        _, end = _DECODER.raw_decode(text, at)
        found[key] = at, end
        at = _skip(text, end)
        at = _skip(text, at + 1) if text[at] == "," else at
    yield from ((key, begin, end) for key, (begin, end) in found.items())


def _items(text: str, at: int) -> Iterator[tuple[int, int]]:
    at = _skip(text, at + 1)
    while text[at] != "]":
        _, end = _DECODER.raw_decode(text, at)
        yield at, end
        at = _skip(text, end)
        at = _skip(text, at + 1) if text[at] == "," else at


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def _written(raw: str, source: str) -> str:
    """A source in the form of the one it replaces; lines that were there before keep their spelling."""
    plain = raw.isascii() and "\\u" in raw
    if raw.startswith('"'):
        return json.dumps(source, ensure_ascii=plain)
    spans = list(_items(raw, 0))
    spelled = {json.loads(raw[start:end]): raw[start:end] for start, end in spans}
    lines = [spelled.get(line) or json.dumps(line, ensure_ascii=plain) for line in source.splitlines(keepends=True)]
    if not lines or not spans:
        return f"[{', '.join(lines)}]"
    between = raw[spans[0][1] : spans[1][0]] if len(spans) > 1 else f",{raw[1 : spans[0][0]]}"
    return raw[: spans[0][0]] + between.join(lines) + raw[spans[-1][1] :]

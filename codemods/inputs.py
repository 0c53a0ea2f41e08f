"""What a run reads: the files it was given, parsed where a rule may apply, and what lies beside them."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from codemods.devices.collectives import senders
from codemods.devices.device_tests import imported_classes
from codemods.notebook import SUFFIX, Notebook, NotebookError
from codemods.parsed_file import ParsedFile
from codemods.project import module_name
from codemods.source_file import SourceError, SourceFile
from codemods.vision_attention import vocabulary as V

Elsewhere = Callable[[str, ParsedFile], bool]

_RELATIVE = re.compile(r"^\s*from\s+\.", re.M)  # a copy out of vLLM's models folder may mean vLLM's own neighbours


@dataclass
class Input:
    """One file of the run while it goes through: read, parsed if a rule may apply, planned, changed."""

    path: Path
    source: SourceFile | None = None
    notebook: Notebook | None = None
    parsed: ParsedFile | None = None
    error: str | None = None
    after: ParsedFile | None = None

    @property
    def text_after(self) -> str | None:
        """The file's whole text as it is to be written. Raises NotebookError where a change has no place in a cell."""
        if self.after is None:
            return None
        return self.after.text if self.notebook is None else self.notebook.with_code(self.after.text)


def read_all(files: Iterable[Path], given: Sequence[Path], names: Iterable[str]) -> list[Input]:
    """The files of a run. Parsed are those in which one of the names stands, and those given one by one."""
    inputs = [Input(path) for path in files]
    for entry in inputs:
        _read(entry)
    _parse(inputs, _word_search(names), {Path(os.path.abspath(path)) for path in given})
    return inputs


def _read(entry: Input) -> None:
    try:
        entry.source = SourceFile.read(entry.path)
    except SourceError as error:
        entry.error = str(error)


def _word_search(names: Iterable[str]) -> re.Pattern[str]:
    return re.compile(r"\b(?:" + "|".join(sorted(map(re.escape, names))) + r")\b")


def _parse(inputs: list[Input], words: re.Pattern[str], given: set[Path]) -> None:
    """Parse the files in which a rule's name or a relative import stands, those given one by one, and those that pass
    such a name on."""
    while True:
        for entry in inputs:
            if entry.source is None or entry.parsed is not None or entry.error is not None:
                continue
            named = Path(os.path.abspath(entry.path)) in given
            if named or words.search(entry.source.text) or _RELATIVE.search(entry.source.text):
                _parse_one(entry)
        more = _passed_on([e.parsed for e in inputs if e.parsed is not None]) - set(_words(words))
        if not more:
            return
        words = _word_search({*_words(words), *more})


def _words(pattern: re.Pattern[str]) -> list[str]:
    return pattern.pattern[len(r"\b(?:") : -len(r")\b")].replace("\\", "").split("|")


def _parse_one(entry: Input) -> None:
    assert entry.source is not None
    text = entry.source.text
    if entry.path.suffix == SUFFIX:
        try:
            entry.notebook = Notebook(text)
        except NotebookError as error:
            entry.error = f"{entry.path}: cannot be read: {error}; save it anew with Jupyter"
            return
        text = entry.notebook.code
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        hint = (
            "this looks like Python 2"
            if re.search(r"^\s*(print\s+[\"'\w]|except\s+\w+\s*,|exec\s+[\"'])", text, re.M)
            else _mend()
        )
        where = str(error.lineno or 1)
        if entry.notebook is not None:
            where = "cell {}:{}".format(*entry.notebook.place(error.lineno or 1))
        entry.error = f"{entry.path}:{where}: cannot be parsed: {error.msg}; {hint}"
        return
    except (RecursionError, MemoryError, ValueError) as error:
        entry.error = f"{entry.path}:1: cannot be parsed: {type(error).__name__}; split the file"
        return
    module, is_package = module_name(entry.path)
    entry.parsed = ParsedFile(entry.path, module, text, tree, is_package)


def _mend() -> str:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return f"mend it first, or run this with a newer Python than {version} if the file is written for one"


def _passed_on(files: Sequence[ParsedFile]) -> set[str]:
    """Names under which other files may reach what the rules change: aliases of vLLM's names, classes with a
    choice of backend, what sends tensors to other ranks."""
    found = senders(files)
    for file in files:
        for imported in file.imports:
            if (
                imported.name in (V.MULTI_HEAD_ATTENTION, V.GET_BACKEND, V.GET_FLASH, *V.ENUMS)
                and imported.alias != imported.name
            ):
                found.add(imported.alias)
        for node in file.classes.values():
            for function in node.body:
                if isinstance(function, ast.FunctionDef) and function.name == "__init__":
                    names = {a.arg for a in [*function.args.args, *function.args.kwonlyargs]}
                    if names & set(V.BACKEND_PARAMETERS):
                        found.add(node.name)
        found |= _made_from_multi_head(file) | imported_classes(file)
    return found


def _made_from_multi_head(file: ParsedFile) -> set[str]:
    """Classes that hold or extend MultiHeadAttention, and other names for it: how they are called decides whether
    it can move."""
    local = {i.alias for i in file.imports if i.name == V.MULTI_HEAD_ATTENTION}
    uses: list[ast.AST] = [node for name in local for node in file.reads.get(name, ())]
    uses += [n for n in file.nodes[ast.Attribute] if isinstance(n, ast.Attribute) and n.attr == V.MULTI_HEAD_ATTENTION]
    found: set[str] = set()
    for use in uses:
        cls, above = file.class_of(use), file.parents[use]
        if cls is not None:
            found.add(cls.name)
        elif isinstance(above, ast.Assign):
            found |= {t.id for t in above.targets if isinstance(t, ast.Name)}
    return found


def neighbours_of(inputs: list[Input]) -> list[ParsedFile]:
    """Files beside the given ones that are not given: read for callers of what changes, and for what the given ones
    import from them; never written."""
    known = {os.path.realpath(e.path) for e in inputs}
    parsed = [e.parsed for e in inputs if e.parsed is not None]
    classes = {name for file in parsed for name in _passed_on([file])}
    words = _word_search(classes) if classes else None
    imported = {
        file.path.parent / f"{i.statement.module.split('.')[0]}.py"
        for file in parsed
        if V.VISION.search(file.text)
        for i in file.imports
        if isinstance(i.statement, ast.ImportFrom) and i.statement.level == 1 and i.statement.module
    }
    found: list[ParsedFile] = []
    for folder in sorted({file.path.parent for file in parsed}):
        for path in sorted(folder.glob("*.py")):
            if os.path.realpath(path) in known or not path.is_file():
                continue
            entry = Input(path)
            _read(entry)
            if entry.source is not None:
                text = entry.source.text
                if (words is not None and words.search(text)) or (path in imported and V.VISION.search(text)):
                    _parse_one(entry)
            if entry.parsed is not None:
                found.append(entry.parsed)
    return found


def elsewhere_of(inputs: list[Input]) -> Elsewhere:
    """Whether a file that no rule looked into, of the run or beside the given ones, takes a name from another file."""

    @cache
    def beside(folder: Path) -> list[tuple[Path, bytes]]:
        known = {os.path.realpath(e.path) for e in inputs}
        return [
            (p, p.read_bytes()) for p in sorted(folder.glob("*.py")) if p.is_file() and os.path.realpath(p) not in known
        ]

    def search(name: str, file: ParsedFile) -> bool:
        stem = re.escape(file.path.parent.name if file.is_package else file.path.stem)
        word = re.escape(name)
        taken = re.compile(rf"\b{stem}\s+import\s+(?:\([^)]*|[^\n(]*)\b{word}\b|\b{stem}\.{word}\b")
        texts = [e.source.text for e in inputs if e.source is not None and e.parsed is None]
        texts += [data.decode("utf-8", "replace") for _, data in beside(file.path.parent)]
        return any(name in text and taken.search(text) is not None for text in texts)

    return search

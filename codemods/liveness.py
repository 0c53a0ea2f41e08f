"""Which files of a plugin anything reaches: from its entry points and registries, through imports and names in texts.

A file counts as reached on the least sign of it. Only where a plugin registers something at all, and nothing leads from
there to a file, the file is said to be unreached.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from codemods.discover import ENVIRONMENT_MARKS, SKIPPED_FOLDERS
from codemods.parsed_file import ParsedFile, dotted
from codemods.rule import Rule

RULE = Rule(
    code="VA662",
    name="unreached-file",
    summary="A file that no registry or entry point of its plugin reaches is noted.",
    why=(
        "A model whose registration was commented out still looks like one that runs. Where a plugin has an entry "
        "point for vLLM, or registers a model or an out-of-tree op, all its files are searched from there: imports, "
        "texts such as module:Class, scripts. A file with a class and with imports of vLLM's that is not found so is "
        "ported like the others; whoever reads the report may decide not to care."
    ),
    follows="nothing upstream: it says what a finding is worth",
    names=frozenset(),
    plan=lambda run: None,  # the search needs the files of the whole plugin, given or not, and is made once a run
    examples=(),
    report_only=True,
)

_PROJECT_FILES = ("pyproject.toml", "setup.cfg", "setup.py")
_MOST_FILES = 3000
_LARGEST = 1_000_000  # bytes
_PLUGIN_GROUP = re.compile(r"vllm\.\w+_plugins")
_ENTRY = re.compile(r"=\s*[\"']?([A-Za-z_][\w.]*)\s*:\s*[A-Za-z_]")
_REFERENCE = re.compile(r"\.?([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?::[\w.]*|(\.))?")  # may be the start of an f-string
_TEST = re.compile(r"test_.*|.*_test|conftest|setup")
_REGISTER = ("register_model", "register_oot")
_WALKS = ("iter_modules", "walk_packages")

Parts = tuple[str, ...]


def reached(files: Iterable[ParsedFile]) -> dict[Path, bool]:
    """For each file whether something reaches it; files of which that cannot be said are left out."""
    found: dict[Path, bool] = {}
    plugins: dict[Path, _Plugin | None] = {}
    for file in files:
        root = _root(file)
        if root is None or file.path.suffix != ".py":
            continue
        if root not in plugins:
            plugin = _Plugin(root)
            plugins[root] = plugin if plugin.registers else None
        known = plugins[root]
        if known is not None:
            live = Path(os.path.realpath(file.path)) in known.live
            if live or _matters(file):
                found[file.path] = live
    return found


def _root(file: ParsedFile) -> Path | None:
    """The folder of the project a file belongs to, or of its topmost package; None for vLLM's own and loose files."""
    path = Path(os.path.realpath(file.path))
    if file.module.partition(".")[0] == "vllm":
        return None
    for folder in path.parents:
        if any((folder / name).is_file() for name in _PROJECT_FILES):
            return folder
    top = None
    for folder in path.parents:
        if not (folder / "__init__.py").is_file():
            break
        top = folder
    return top


def _matters(file: ParsedFile) -> bool:
    """Whether a file is one of those that vLLM would have to be told of: it has a class, and imports of vLLM's."""
    return (
        not _TEST.fullmatch(file.path.stem)
        and any(cls.bases for cls in file.class_nodes)
        and any(imported.module.partition(".")[0] == "vllm" for imported in file.imports)
    )


@dataclass
class _Plugin:
    """All Python files below a folder, and which of them are reached."""

    root: Path
    _trees: dict[Path, ast.Module | None] = field(default_factory=dict)

    @cached_property
    def files(self) -> dict[Path, Parts]:
        """Real path of each file -> the parts of the name it is imported by, from the root. Empty if too many."""
        found: dict[Path, Parts] = {}
        for folder, folders, names in os.walk(os.path.realpath(self.root)):
            folders[:] = sorted(
                name
                for name in folders
                if not name.startswith(".")
                and name not in SKIPPED_FOLDERS
                and not any((Path(folder, name) / mark).exists() for mark in ENVIRONMENT_MARKS)
            )
            for name in sorted(names):
                path = Path(folder, name)
                if name.endswith(".py") and not path.is_symlink():
                    parts = path.relative_to(os.path.realpath(self.root)).with_suffix("").parts
                    found[path] = parts[:-1] if parts[-1] == "__init__" else parts
                    if len(found) > _MOST_FILES:
                        return {}
        return found

    @cached_property
    def _by_last(self) -> dict[str, list[Path]]:
        table: dict[str, list[Path]] = {}
        for path, parts in self.files.items():
            if parts:
                table.setdefault(parts[-1], []).append(path)
        return table

    @cached_property
    def _entry_points(self) -> tuple[bool, list[str]]:
        """Whether vLLM finds an entry point here, and the modules that any entry point names."""
        texts = [_text(self.root / name) for name in _PROJECT_FILES]
        modules = [module for text in texts for module in _ENTRY.findall(text)]
        return any(_PLUGIN_GROUP.search(text) for text in texts), modules

    @cached_property
    def _registering(self) -> list[Path]:
        """Files that register a model or an op themselves."""
        return [path for path in self.files if any(_registers(node) for node in self._walk(path, *_REGISTER))]

    @property
    def registers(self) -> bool:
        return self._entry_points[0] or bool(self._registering)

    @cached_property
    def live(self) -> set[Path]:
        found: set[Path] = set()
        queue = [path for module in self._entry_points[1] for path in self._named(tuple(module.split(".")))]
        queue += self._registering
        queue += [path for path in self.files if any(_is_script(node) for node in self._walk(path, "__main__"))]
        while queue:
            path = queue.pop()
            if path not in found:
                found.add(path)
                queue += self._from(path)
        return found

    def _walk(self, path: Path, *words: str) -> Iterator[ast.AST]:
        """The nodes of a file, where its text has one of the words at all."""
        text = _text(path)
        if any(word in text for word in words):
            yield from ast.walk(self._tree(path) or ast.Module([], []))

    def _tree(self, path: Path) -> ast.Module | None:
        if path not in self._trees:
            try:
                self._trees[path] = ast.parse(_text(path))
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                self._trees[path] = None
        return self._trees[path]

    def _named(self, parts: Parts, near: Path | None = None) -> Iterator[Path]:
        """The files that importing a dotted name runs: the module, or the one it is a name of, and their packages.

        Also those that it means beside the file it stands in, as in a copy of a package under another name.
        """
        if near is not None:
            spans = ((start, end) for start in range(1, len(parts)) for end in range(start + 1, len(parts) + 1))
            for start, end in spans:
                path = near.parent.joinpath(*parts[start:end]).with_suffix(".py")
                if path in self.files:
                    yield path
        for size in range(len(parts), 0, -1):
            for path in self._by_last.get(parts[size - 1], ()):
                if self.files[path][-size:] == parts[:size]:
                    yield path
                    yield from self._packages(path)

    def _packages(self, path: Path) -> Iterator[Path]:
        for folder in path.parents:
            if folder / "__init__.py" in self.files:
                yield folder / "__init__.py"

    def _from(self, path: Path) -> Iterator[Path]:
        """What a file that is reached reaches in turn."""
        yield from self._packages(path)
        tree = self._tree(path)
        named: list[Path] = []
        opaque = False
        for node in ast.walk(tree) if tree is not None else ():
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield from self._named(tuple(alias.name.split(".")), path)
            elif isinstance(node, ast.ImportFrom):
                yield from self._imported(path, node)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                named += self._in_text(node.value, path)
            elif isinstance(node, (ast.Tuple, ast.List)):
                named += self._in_row(node)
            elif isinstance(node, ast.Call):
                name = (dotted(node.func) or "").rpartition(".")[2]
                text = node.args[0] if node.args else None
                written = isinstance(text, ast.Constant)
                if name == "import_module" and isinstance(text, ast.Constant):
                    named += self._named(tuple(str(text.value).strip(".").split(".")))
                opaque |= name in _WALKS or (name == "import_module" and isinstance(text, ast.JoinedStr))
                opaque |= name in ("import_module", "__import__") and not written and not named
        yield from named
        if opaque:  # it may import whatever lies beside or below it
            yield from (other for other in self.files if path.parent in other.parents)

    def _imported(self, path: Path, node: ast.ImportFrom) -> Iterator[Path]:
        module = tuple(node.module.split(".")) if node.module else ()
        for alias in node.names:
            if not node.level:
                yield from self._named((*module, alias.name), path)
                continue
            folder = path.parents[node.level - 1] if node.level <= len(path.parents) else path.parent
            for parts in ((*module, alias.name), module):
                base = folder.joinpath(*parts)
                for target in (base.with_name(f"{base.name}.py"), base / "__init__.py"):
                    if target in self.files:
                        yield target
                        yield from self._packages(target)

    def _in_text(self, text: str, near: Path) -> list[Path]:
        """`pkg.module:Class` and `pkg.module`, or all of `pkg.`; a single word is no sign of a module."""
        match = _REFERENCE.fullmatch(text)
        if match is None or ("." not in text and ":" not in text):
            return []
        parts = tuple(match[1].split("."))
        if not match[2]:
            return list(self._named(parts, near))
        size = len(parts)
        return [path for path, own in self.files.items() if any(own[i : i + size] == parts for i in range(len(own)))]

    def _in_row(self, row: ast.Tuple | ast.List) -> Iterator[Path]:
        """`("module", "Class")`, as vLLM's own registry has it: the module must have that class."""
        words = [e.value for e in row.elts if isinstance(e, ast.Constant) and isinstance(e.value, str)]
        for word in words if len(words) > 1 else ():
            for path in self._by_last.get(word, ()):
                if any(re.search(rf"\bclass {re.escape(other)}\b", _text(path)) for other in words if other != word):
                    yield path


def _registers(node: ast.AST) -> bool:
    """`ModelRegistry.register_model(...)`, `@CustomOp.register_oot(...)` and `@CustomOp.register_oot`."""
    return isinstance(node, ast.Attribute) and node.attr in _REGISTER


def _is_script(node: ast.AST) -> bool:
    return isinstance(node, ast.Compare) and dotted(node.left) == "__name__"


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace") if path.stat().st_size <= _LARGEST else ""
    except OSError:
        return ""

"""Where a plugin steps in before vLLM's code is even imported: import hooks, and changes to vLLM's installed files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from codemods.parsed_file import FunctionNode, ParsedFile, dotted
from codemods.project import Project
from codemods.run_time_names import Names, Value

MODULE = re.compile(r"vllm(?:\.[A-Za-z_]\w*)+")

# What Python's import system asks of a finder or loader.
_PROTOCOL = frozenset({"find_spec", "find_module", "find_loader", "exec_module", "load_module", "create_module"})
_POST_IMPORT = ("register_post_import_hook", "when_imported")  # of wrapt and its like

_HOOKING = re.compile("|".join([*_PROTOCOL, *_POST_IMPORT, "__import__"]))

_LOCATORS = ("importlib.util.find_spec", "importlib.resources.files", "inspect.getfile", "inspect.getsourcefile")
_SITE = ("site.getsitepackages", "site.getusersitepackages", "sysconfig.get_path", "sysconfig.get_paths")
_WRITES = frozenset({"write_text", "write_bytes", "symlink_to", "unlink"})  # methods of a path
_SECOND = ("shutil.copy", "shutil.copy2", "shutil.copyfile", "shutil.move", "os.replace", "os.rename", "os.symlink")
_SHELLS = ("subprocess.run", "subprocess.call", "subprocess.check_call", "subprocess.check_output", "os.system")
_LOCATING = re.compile("__file__|__path__|" + "|".join(name.rpartition(".")[2] for name in (*_LOCATORS, *_SITE)))
_TOOLS = re.compile(r"\b(?:sed|patch|cp|mv|ln|git apply)\b")


@dataclass(frozen=True)
class Hook:
    """A module of vLLM's whose import is intercepted; `node` is the text that names it."""

    node: ast.AST
    module: str


@dataclass(frozen=True)
class FileChange:
    """A statement that changes an installed file of vLLM's; `module` is None where it is not said which."""

    node: ast.AST
    module: str | None
    words: frozenset[str]  # names in the texts around it


def hooks(project: Project, file: ParsedFile) -> list[Hook]:
    """The modules that a file's import hooks look for."""
    names = Names(project)
    found: dict[tuple[int, int], Hook] = {}
    if not _HOOKING.search(file.text):
        return []
    for node in _hooking(file, names):
        for text in _texts(file, node):
            if MODULE.fullmatch(str(text.value)):
                found[text.lineno, text.col_offset] = Hook(text, str(text.value))
    return [found[place] for place in sorted(found)]


def _hooking(file: ParsedFile, names: Names) -> Iterator[ast.AST]:
    """Code that decides what an import gives: finders, loaders, what they are built with, hooks of other libraries."""
    finders = {
        cls.name: cls
        for cls in file.class_nodes
        if _PROTOCOL & {n.name for n in cls.body if isinstance(n, FunctionNode)}
    }
    yield from finders.values()
    for node in file.nodes[ast.Call]:
        assert isinstance(node, ast.Call)
        called = dotted(node.func) or ""
        if called in finders or called.rpartition(".")[2] in _POST_IMPORT:
            yield node
    for node in file.nodes[ast.Attribute]:
        above = file.parents[node]
        if isinstance(above, ast.Assign) and node in above.targets:
            if names.meaning(Value(file, node)) in ("builtins.__import__", "__builtins__.__import__"):
                yield names.followed(Value(file, above.value)).node


def _texts(file: ParsedFile, node: ast.AST, depth: int = 0) -> Iterator[ast.Constant]:
    """Texts in code, and in the tables of the module that it reads."""
    for below in file.below(node):
        if isinstance(below, ast.Constant) and isinstance(below.value, str):
            yield below
        elif isinstance(below, ast.Name) and isinstance(below.ctx, ast.Load) and depth < 2:
            for binding in file.bound(below.id, below):
                above = file.parents.get(binding) if isinstance(binding, ast.Name) else None
                if isinstance(above, (ast.Assign, ast.AnnAssign)) and isinstance(file.parents[above], ast.Module):
                    if above.value is not None:
                        yield from _texts(file, above.value, depth + 1)


def file_changes(project: Project, file: ParsedFile) -> list[FileChange]:
    """The places where a file changes the text of installed modules of vLLM's."""
    return _Paths(project, file).changes


class _Paths:
    """Follows paths that start at vLLM's folder through the names of a file, to where something is written there."""

    def __init__(self, project: Project, file: ParsedFile) -> None:
        self._file = file
        self._names = Names(project)
        self._project = project

    @cached_property
    def changes(self) -> list[FileChange]:
        if not _LOCATING.search(self._file.text):
            return []
        if all(self._starts(node) is None for kind in (ast.Attribute, ast.Call) for node in self._file.nodes[kind]):
            return []
        found = []
        for node in self._file.nodes[ast.Call]:
            assert isinstance(node, ast.Call)
            parts = next((parts for where in self._written(node) if (parts := self._parts(where)) is not None), None)
            if parts is not None:
                words = {word for text in self._reached(node) for word in re.findall(r"[^\W\d]\w*", text)}
                found.append(FileChange(node, _module(parts), frozenset(words)))
        return found

    def _starts(self, node: ast.AST) -> str | None:
        """The module of vLLM's whose place on disk an expression gives; "" for the folder that packages are in."""
        if isinstance(node, ast.Attribute) and node.attr in ("__file__", "__path__"):
            name = self._names.vllm(Value(self._file, node.value))
            return name
        if isinstance(node, ast.Call):
            called = self._names.meaning(Value(self._file, node.func))
            first = Value(self._file, node.args[0]) if node.args else None
            if called in _LOCATORS and first is not None:
                name = self._names.strings(first) or self._names.vllm(first)
                return name if name is not None and re.match(r"vllm(\.|$)", name) else None
            return "" if called in _SITE else None
        return None

    def _parts(self, node: ast.AST, depth: int = 0) -> list[str] | None:
        """The parts of a path below an expression, the module it starts at first; None if it is not one of vLLM's."""
        parts: list[str] = []
        begun = False
        looked = 0  # what lies in the place of a module on disk is no part of the path
        for below in self._file.below(node):
            if self._file.position(below) < looked:
                continue
            start = self._starts(below)
            if start is not None:
                begun, looked = True, self._file.extent(below)[1]
                parts = [*start.split("."), *parts] if start else parts
            elif isinstance(below, ast.Constant) and isinstance(below.value, str) and " " not in below.value:
                parts += [part for part in re.split(r"[/\\]", below.value) if part]
            elif isinstance(below, ast.Name) and isinstance(below.ctx, ast.Load) and depth < 6:
                for value in self._values(below):
                    more = self._parts(value, depth + 1)
                    if more is not None:
                        begun, parts = True, [*more, *parts]
                        break
        return parts if begun and "vllm" in parts else None

    def _reached(self, node: ast.AST, depth: int = 0) -> Iterator[str]:
        """Texts in code, and in what the names it reads were set to."""
        for below in self._file.below(node):
            if isinstance(below, ast.Constant) and isinstance(below.value, str):
                yield below.value
            elif isinstance(below, ast.Name) and isinstance(below.ctx, ast.Load) and depth < 3:
                for value in self._values(below):
                    yield from self._reached(value, depth + 1)

    def _values(self, name: ast.Name) -> Iterator[ast.AST]:
        for binding in self._file.bound(name.id, name):
            if not isinstance(binding, ast.AST):
                continue
            above = self._file.parents.get(binding)
            if isinstance(above, (ast.Assign, ast.AnnAssign)) and above.value is not None:
                yield above.value
            elif isinstance(above, (ast.For, ast.comprehension)):
                yield above.iter
            elif isinstance(above, ast.withitem):
                yield above.context_expr
            elif isinstance(binding, ast.arg):
                yield from self._passed(binding)

    def _passed(self, parameter: ast.arg) -> Iterator[ast.AST]:
        """What calls in this file give to a parameter."""
        function = self._file.parents[self._file.parents[parameter]]
        if not isinstance(function, FunctionNode):
            return
        for call in self._file.nodes[ast.Call]:
            if isinstance(call, ast.Call) and dotted(call.func) == function.name:
                given = self._names.arguments(function, Value(self._file, call)).get(parameter.arg)
                if given is not None:
                    yield given.node

    def _written(self, call: ast.Call) -> list[ast.AST]:
        """Expressions of which one is the file that a call changes."""
        called = self._names.meaning(Value(self._file, call.func)) or ""
        if called == "open" and call.args and self._writes(call, 1):
            return [call.args[0]]
        if called in _SECOND and len(call.args) > 1:
            return [call.args[1]]
        if called in _SHELLS and any(_TOOLS.search(str(text.value)) for text in _texts(self._file, call)):
            return [e for a in call.args for e in (a.elts if isinstance(a, (ast.List, ast.Tuple)) else [a])]
        if called == "fileinput.input" and any(k.arg == "inplace" for k in call.keywords) and call.args:
            return [call.args[0]]
        if isinstance(call.func, ast.Attribute):
            if call.func.attr in _WRITES or (call.func.attr == "open" and self._writes(call, 0)):
                return [call.func.value]
        return []

    def _writes(self, call: ast.Call, place: int) -> bool:
        mode = next((k.value for k in call.keywords if k.arg == "mode"), None)
        mode = mode if mode is not None else (call.args[place] if len(call.args) > place else None)
        text = None if mode is None else self._names.strings(Value(self._file, mode))
        return text is not None and bool(set(text) & set("wax+"))


def _module(parts: list[str]) -> str | None:
    """The module that a path leads to, where it ends in a Python file."""
    start = parts.index("vllm")
    names: list[str] = []
    for part in parts[start:]:
        if part.endswith(".py"):
            return ".".join([*names, *([] if part == "__init__.py" else [part.removesuffix(".py")])])
        if part.isidentifier():
            names.append(part)
    return None if names == ["vllm"] else ".".join(names)

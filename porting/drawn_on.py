"""Which files draw on which, as far as import statements tell."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from codemods.discover import discover
from codemods.project import module_name


def drawn_on(path: Path) -> list[Path]:
    """Files beside and around it that an import of it would run, itself left out.

    In a tree of vLLM's own there are none: what a file takes from the rest of vLLM is held against the index.
    """
    found: list[Path] = []
    if module_name(path)[0].startswith("vllm."):
        return found
    waiting = [path.resolve()]
    while waiting:
        here = waiting.pop()
        more = [other for other in _imported(here) if other != path.resolve() and other not in found]
        found += dict.fromkeys(more)
        waiting += dict.fromkeys(more)
    return found


def drawing_on(files: Sequence[Path], given: Sequence[Path]) -> list[Path]:
    """The Python files among given ones and below given folders that import one of `files`, directly or not."""
    known = {path.resolve() for path in files}
    imports = {
        path: {*_imported(path), *_beside(path)}
        for path in (found.resolve() for found in discover(given).files if found.suffix == ".py")
        if path not in known
    }
    drawing: dict[Path, None] = {}
    while more := [path for path in imports if path not in drawing and not imports[path].isdisjoint(known)]:
        drawing.update(dict.fromkeys(more))
        known.update(more)
    return list(drawing)


def takes_from(package: str, files: Sequence[Path]) -> bool:
    """Whether one of the files imports a package, lies in it, or was copied out of it as its relative imports show."""
    for path in files:
        names = [name for node in _statements(path) for name in _modules(node)]
        copied = "" in names and not (path.parent / "__init__.py").is_file()
        if copied or any(name.partition(".")[0] == package for name in (module_name(path)[0], *names)):
            return True
    return False


def _modules(node: ast.AST) -> Iterator[str]:
    """What an import statement names in full; nothing in words where it is relative."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield "" if node.level else node.module or ""


def _beside(path: Path) -> Iterator[Path]:
    """Files of the same folder that a script imports by their bare names."""
    for node in _statements(path):
        yield from (path.with_name(f"{name.partition('.')[0]}.py") for name in _modules(node) if name)


def _statements(path: Path) -> Iterator[ast.AST]:
    """Everything in a file; nothing in one that cannot be parsed."""
    try:
        yield from ast.walk(ast.parse(path.read_bytes()))
    except (SyntaxError, ValueError, OSError):
        return


def _imported(path: Path) -> Iterator[Path]:
    module, is_package = module_name(path)
    top = path.parents[module.count(".")] if not is_package else path.parents[module.count(".") + 1]
    loose = not (path.parent / "__init__.py").is_file()
    for folder in path.parents if not loose else ():
        if not (folder / "__init__.py").is_file():
            break
        yield folder / "__init__.py"
    for node in _statements(path):
        if isinstance(node, ast.ImportFrom):
            base = path.parents[node.level - 1] if 0 < node.level <= len(path.parents) else top
            if node.level or (not loose and (node.module or "").split(".")[0] == module.split(".")[0]):
                names = (node.module or "").split(".") if node.module else []
                yield from _files(base, names)
                for alias in node.names:
                    yield from _files(base, [*names, alias.name])
        elif isinstance(node, ast.Import) and not loose:
            for alias in node.names:
                if alias.name.split(".")[0] == module.split(".")[0]:
                    yield from _files(top, alias.name.split("."))


def _files(base: Path, names: list[str]) -> Iterator[Path]:
    """The file of a module below a folder, if it is there."""
    place = base.joinpath(*names)
    for candidate in (place.with_name(f"{place.name}.py"), place / "__init__.py"):
        if names and candidate.is_file():
            yield candidate

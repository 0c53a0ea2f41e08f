"""The files of its own package that a file draws on, as far as import statements tell."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

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


def _imported(path: Path) -> Iterator[Path]:
    module, is_package = module_name(path)
    top = path.parents[module.count(".")] if not is_package else path.parents[module.count(".") + 1]
    loose = not (path.parent / "__init__.py").is_file()
    for folder in path.parents if not loose else ():
        if not (folder / "__init__.py").is_file():
            break
        yield folder / "__init__.py"
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return
    for node in ast.walk(tree):
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

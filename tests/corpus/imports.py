"""What a file imports from vLLM, and whether a release has it: read from the release itself, not from the index."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

BUILT = ("vllm._C", "vllm._moe_C", "vllm._rocm_C", "vllm.vllm_flash_attn", "vllm.third_party")  # depend on the device


def imported(text: str, package: str) -> Iterator[tuple[int, str, str]]:
    """Line, module and name of each `from vllm... import name`; relative imports resolve inside `package`. What only
    type checkers read is left out."""
    tree = ast.parse(text)
    unseen = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node not in unseen:
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            if module.partition(".")[0] == "vllm" and not module.startswith(BUILT):
                yield from ((node.lineno, module, alias.name) for alias in node.names if alias.name != "*")


def has(release: Path, module: str, name: str) -> bool:
    """Whether `from module import name` works; `release` is the release's `vllm/` folder."""
    if place(release, f"{module}.{name}") is not None or f"{module}.{name}".startswith(BUILT):
        return True
    bound = names(release, module)
    return bound is not None and (name in bound or "__getattr__" in bound)


def place(release: Path, module: str) -> Path | None:
    path = release.joinpath(*module.split(".")[1:])
    found = [p for p in (path / "__init__.py", path.with_name(f"{path.name}.py")) if p.is_file()]
    return found[0] if found else (path if path.is_dir() else None)


@cache
def names(release: Path, module: str) -> frozenset[str] | None:
    """Every name that a module binds, in whatever branch; None without such a module."""
    path = place(release, module)
    if path is None or path.is_dir():
        return None if path is None else frozenset()
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: set[str] = set()
    for node in _outside_functions(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {a.asname or a.name.partition(".")[0] for a in node.names}
            if isinstance(node, ast.ImportFrom) and any(a.name == "*" for a in node.names):
                above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
                found |= names(release, ".".join([*above, *([node.module] if node.module else [])])) or set()
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return frozenset(found)


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            yield from _outside_functions(child)

"""One text for several vLLM releases, made of the texts that a port to each of them gives.

What differs between them may be where names are imported from: then a place that all releases have is taken, or the
import is guarded. Whether the rest serves all of them is for the caller to check, by porting the result to each.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass

from codemods import edits as E
from codemods.emit import LINE
from codemods.parsed_file import FunctionNode, ParsedFile
from codemods.rules.renamed_types import earlier, later
from codemods.vllm_api import Api

_HELPER = "vllm_version_is"  # what plugins call their own question

Chain = tuple[str, ...]
"""Modules that have a name, one for each release or one for several; the newest release's first."""

Texts = Mapping[str, ParsedFile]
"""The text for each release, the oldest first."""


class JoinError(Exception):
    """The texts cannot be one; the message says why."""


@dataclass(frozen=True)
class _Place:
    module: str
    name: str


def edits(texts: Texts) -> list[E.Edit]:
    """Edits of the newest release's text after which it imports what each release has. Raises JoinError."""
    file = list(texts.values())[-1]
    places = [_imported(text) for text in texts.values()]
    found: list[E.Edit] = []
    guarded: dict[Chain, list[tuple[str, ...]]] = {}
    for statement in _vllm_imports(file):
        chains: dict[Chain, list[tuple[str, ...]]] = {}
        for alias in statement.names:
            local = alias.asname or alias.name
            here = _Place(file.absolute(statement), alias.name)
            found_at = [at.get((_scope(file, statement), local)) for at in places]
            # what no port changes is told of for the release that lacks it
            same = all(place == here for place in found_at)
            chain = [here] if same else _chain(here, {r: place or here for r, place in zip(texts, found_at)})
            chains.setdefault(tuple(place.module for place in chain), []).append((local, *(p.name for p in chain)))
        here_alone = (file.absolute(statement),)
        if list(chains) == [here_alone]:
            continue
        if not isinstance(file.parents[statement], ast.Module):  # stays where it is
            code = "".join(_guard(file, list(texts), chain, names) for chain, names in chains.items())
            found.append(E.ReplaceStatement(E.Ref.of(statement), code))
            continue
        for chain_, names in chains.items():
            if chain_ == here_alone:
                continue
            for local, *spelled in names:
                found.append(E.RemoveImport(E.Ref.of(statement), spelled[0]))
                if len(chain_) == 1:
                    found.append(E.AddImport(chain_[0], spelled[0], local if local != spelled[0] else None))
            if len(chain_) > 1:
                guarded.setdefault(chain_, []).extend(names)
    if guarded:
        code = "\n" + "".join(_guard(file, list(texts), chain, names) for chain, names in sorted(guarded.items()))
        found.append(E.InsertAfter(E.Ref.of(_last_import(file)), code))
    return found


def _chain(here: _Place, wanted: Mapping[str, _Place]) -> list[_Place]:
    """Where to import a name from: one place that serves all releases, or one after the other, the newest first."""
    if all(Api.of(release).has(here.module, here.name) for release in wanted):
        return [here]
    known: dict[str, _Place] = {}
    for release, place in wanted.items():
        there = _there(place, release)
        if there is None:
            raise JoinError(f"vLLM {release} has no {here.module}.{here.name}, nor is it known what serves there")
        known[release] = there
    one = _common(known)
    return [one] if one is not None else list(dict.fromkeys(reversed(list(known.values()))))


def _vllm_imports(file: ParsedFile) -> list[ast.ImportFrom]:
    """Imports from vLLM, at module level and in functions; not those in guards."""
    return [
        s
        for s in file.nodes[ast.ImportFrom]
        if isinstance(s, ast.ImportFrom)
        and isinstance(file.parents[s], (ast.Module, *FunctionNode))
        and file.absolute(s).partition(".")[0] == "vllm"
        and all(alias.name != "*" for alias in s.names)
    ]


def _imported(file: ParsedFile) -> dict[tuple[str, str], _Place]:
    """(function around, local name) -> what it is imported from."""
    return {
        (_scope(file, s), alias.asname or alias.name): _Place(file.absolute(s), alias.name)
        for s in _vllm_imports(file)
        for alias in s.names
    }


def _scope(file: ParsedFile, node: ast.AST) -> str:
    return ".".join(getattr(above, "name", "") for above in file.above(node))


def _there(place: _Place, release: str) -> _Place | None:
    """The place, or what it was called in a release that does not have it yet."""
    names = [(place.module, place.name), *earlier(place.module, place.name)]
    return next((_Place(*pair) for pair in names if Api.of(release).has(*pair) is not False), None)


def _common(wanted: Mapping[str, _Place]) -> _Place | None:
    """A place where every release has what it has at its own; those that the texts name come first."""
    names = {place.name for place in wanted.values()}
    if len(names) != 1:
        return None
    name = names.pop()
    homes = {release: Api.of(release).origin(place.module, name) for release, place in wanted.items()}
    newest = Api.of(list(wanted)[-1])
    named = [place.module for place in reversed(list(wanted.values()))]
    for module in dict.fromkeys([*named, *newest.exported_from(name)]):
        if all(_is_home(Api.of(release), module, name, home) for release, home in homes.items()):
            return _Place(module, name)
    return None


def _is_home(api: Api, module: str, name: str, home: str) -> bool:
    """Whether a module has a name because it, or something inside it, defines it: not where it happens to be used."""
    return bool(api.has(module, name)) and api.origin(module, name) == home and home.startswith(f"{module}.")


def _guard(file: ParsedFile, releases: Sequence[str], modules: Chain, names: Sequence[tuple[str, ...]]) -> str:
    """Imports of names from the first of several modules that has them, the newest first. In a file that asks
    `vllm_version_is`, that is asked."""
    imports = []
    for index, module in enumerate(modules, 1):
        bound = sorted((spelled[index], spelled[0]) for spelled in names)
        imports.append(_import(module, [n if n == local else f"{n} as {local}" for n, local in bound]))
    if len(imports) == 2 == len(releases) and any(i.alias == _HELPER for i in file.imports):
        return f'if {_HELPER}("{releases[0]}"):\n{_indented(imports[1])}else:\n{_indented(imports[0])}'
    code = imports[-1]
    for statement in reversed(imports[:-1]):
        code = f"try:\n{_indented(statement)}except ImportError:\n{_indented(code)}"
    return code


def _import(module: str, names: Sequence[str]) -> str:
    line = f"from {module} import {', '.join(names)}\n"
    if len(line) + 4 <= LINE:
        return line
    return f"from {module} import (\n{''.join(f'    {name},' + chr(10) for name in names)})\n"


def _indented(code: str) -> str:
    return "".join(f"    {line}" for line in code.splitlines(keepends=True))


def _last_import(file: ParsedFile) -> ast.stmt:
    """The last import of the file's head."""
    last: ast.stmt | None = None
    for statement in file.tree.body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            last = statement
        elif last is not None and not isinstance(statement, ast.Expr):
            break
    assert last is not None
    return last


def body(file: ParsedFile) -> list[str]:
    """The file's statements without what they import from vLLM, to tell whether two texts differ in more."""
    return [ast.dump(s) for s in _WithoutImports(file).visit(deepcopy(file.tree)).body]


class _WithoutImports(ast.NodeTransformer):
    """Takes imports from vLLM out, and calls renamed types by their later names."""

    def __init__(self, file: ParsedFile) -> None:
        self.file = file
        self.later = {i.alias: later(i.module, i.name) for i in file.imports if i.name == i.alias}

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.later.get(node.id, node.id), node.ctx)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt:
        return ast.Pass() if self.file.absolute(node).partition(".")[0] == "vllm" else node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for name in ("body", "orelse"):
            inner = getattr(node, name, None)
            if isinstance(inner, list):
                setattr(node, name, [s for s in inner if not _is_empty(s)])
        return node


def _is_empty(node: ast.AST) -> bool:
    """A statement that does nothing, such as a guard whose arms only imported."""
    if isinstance(node, ast.Try):
        return not node.body and not node.orelse and all(not h.body for h in node.handlers)
    return isinstance(node, ast.Pass) or (isinstance(node, ast.If) and not node.body and not node.orelse)

"""Puts new `from module import name` lines where a person would: into an existing import, or in sorted place."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import libcst as cst
from libcst.helpers import get_full_name_for_node

from codemods.edits import AddImport
from codemods.emit import LINE

Body = list[Any]  # statements of a block: LibCST has no common type for them that can be written to


def place_imports(module: cst.Module, imports: Sequence[AddImport]) -> cst.Module:
    """The module with every import of `imports` available at module level, each exactly once."""
    body: Body = list(module.body)
    for new in sorted(set(imports), key=lambda item: (item.module, item.name, item.asname or "")):
        body = _placed(body, new)
    return module.with_changes(body=body)


def _placed(body: Body, new: AddImport) -> Body:
    block = _only_block(body)
    if block is not None:
        inner = cst.ensure_type(body[block].body, cst.IndentedBlock)
        inside = inner.with_changes(body=_placed(list(inner.body), new))
        return [*body[:block], body[block].with_changes(body=inside), *body[block + 1 :]]
    head = _head(body, new.asname or new.name)
    here = [(index, node) for index, line in enumerate(body[:head]) if (node := _import_from(line)) is not None]
    for index, node in here:
        if _dotted(node) == new.module and not isinstance(node.names, cst.ImportStar):
            if _has(node, new):
                return body
            line = cst.ensure_type(body[index], cst.SimpleStatementLine)
            return [*body[:index], line.with_changes(body=[_with_name(node, new)]), *body[index + 1 :]]
    names = [(index, _dotted(node)) for index, node in here]
    line = _new_line(new)
    for near in ([n for n in names if _root(n[1]) == _root(new.module)], [n for n in names if _is_third_party(n[1])]):
        before = [index for index, name in near if name < new.module]
        if before:
            return _behind(body, max(before), line)
        if near:
            return _ahead_of(body, near[0][0], line)
    return _without_family(body, head, line)


def _without_family(body: Body, head: int, line: cst.SimpleStatementLine) -> Body:
    """Place an import that has no like: behind `import x` of other packages, or as a section of its own."""
    plain = [(index, name) for index, statement in enumerate(body[:head]) for name in _plain_imports(statement)]
    others = [index for index, name in plain if _is_third_party(name)]
    if others:
        return _behind(body, max(others), line)
    earlier = [index for index, _ in plain]
    earlier += [index for index, s in enumerate(body[:head]) if (n := _import_from(s)) is not None and not n.relative]
    docstring = [0] if body and isinstance(body[0], cst.SimpleStatementLine) and _is_text(body[0]) else []
    place = max([*earlier, *docstring], default=-1) + 1
    if place:
        line = line.with_changes(leading_lines=[cst.EmptyLine(indent=False)])
    rest = list(body[place:])
    if rest and not any(space.comment is None for space in rest[0].leading_lines):
        blank = [cst.EmptyLine(indent=False)] * (2 if isinstance(rest[0], (cst.ClassDef, cst.FunctionDef)) else 1)
        rest[0] = rest[0].with_changes(leading_lines=[*blank, *rest[0].leading_lines])
    return [*body[:place], line, *rest]


_EARLIER = {*sys.stdlib_module_names, "__future__"}  # import sections that stand above the third-party one


def _root(module: str) -> str:
    return module.partition(".")[0]


def _is_third_party(module: str) -> bool:
    return bool(_root(module)) and _root(module) not in _EARLIER


def _behind(body: Body, index: int, line: cst.SimpleStatementLine) -> Body:
    return [*body[: index + 1], line, *body[index + 1 :]]


def _ahead_of(body: Body, index: int, line: cst.SimpleStatementLine) -> Body:
    """Put a line ahead of another; blank lines above go to the new line, comments stay with the old one."""
    first = cst.ensure_type(body[index], cst.SimpleStatementLine)
    comments = any(space.comment is not None for space in first.leading_lines)
    blank, rest = ([], list(first.leading_lines)) if comments else (list(first.leading_lines), [])
    new = [line.with_changes(leading_lines=blank), first.with_changes(leading_lines=rest)]
    return [*body[:index], *new, *body[index + 1 :]]


def _head(body: Body, name: str) -> int:
    """Where new imports must stand ahead of: a definition, a reader of the name, relative imports behind others."""
    word = re.compile(rf"\b{re.escape(name)}\b")
    absolute = False
    for index, statement in enumerate(body):
        if isinstance(statement, (cst.ClassDef, cst.FunctionDef)):
            return index
        node = _import_from(statement)
        if node is not None and node.relative and absolute:
            return index
        absolute = absolute or (_is_import(statement) and not _is_future(statement))
        if node is None and word.search(_code(statement)):
            return index
    return len(body)


@lru_cache(maxsize=512)  # more than stand ahead of a file's first definition; asked for again for each new import
def _code(statement: cst.CSTNode) -> str:
    return cst.Module([]).code_for_node(statement)


def _only_block(body: Body) -> int | None:
    """The `if` that a whole file stands in: it has the file's imports and classes, and nothing is imported above it."""
    for index, statement in enumerate(body):
        if isinstance(statement, cst.If) and isinstance(statement.body, cst.IndentedBlock):
            inner = statement.body.body
            holds_classes = any(isinstance(line, cst.ClassDef) for line in inner)
            return index if holds_classes and any(_is_import(line) for line in inner) else None
        if isinstance(statement, (cst.ClassDef, cst.FunctionDef)) or (
            _is_import(statement) and not _is_future(statement)
        ):
            return None
    return None


def _is_import(line: cst.CSTNode) -> bool:
    return _import_from(line) is not None or bool(_plain_imports(line))


def _is_future(line: cst.CSTNode) -> bool:
    node = _import_from(line)
    return node is not None and _dotted(node) == "__future__"


def _plain_imports(line: cst.CSTNode) -> list[str]:
    """The modules of `import a, b`."""
    small = line.body if isinstance(line, cst.SimpleStatementLine) else ()
    return [alias.evaluated_name for node in small if isinstance(node, cst.Import) for alias in node.names]


def _is_text(line: cst.SimpleStatementLine) -> bool:
    return isinstance(line.body[0], cst.Expr) and isinstance(
        line.body[0].value, (cst.SimpleString, cst.ConcatenatedString)
    )


def _import_from(line: cst.CSTNode) -> cst.ImportFrom | None:
    if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 and isinstance(line.body[0], cst.ImportFrom):
        return line.body[0]
    return None


def _dotted(node: cst.ImportFrom) -> str:
    name = get_full_name_for_node(node.module) if node.module is not None else ""
    return "." * len(node.relative) + (name or "")


def _has(node: cst.ImportFrom, new: AddImport) -> bool:
    aliases = [] if isinstance(node.names, cst.ImportStar) else node.names
    return any(
        alias.evaluated_name == new.name and (alias.evaluated_alias or alias.evaluated_name) == (new.asname or new.name)
        for alias in aliases
    )


def _with_name(node: cst.ImportFrom, new: AddImport) -> cst.ImportFrom:
    assert not isinstance(node.names, cst.ImportStar)
    names = list(node.names)
    alias = _alias(new)
    place = next((i for i, other in enumerate(names) if _order(other.evaluated_name) > _order(new.name)), len(names))
    names = _appended(node, names, alias) if place == len(names) else _inserted(node, names, place, alias)
    result = node.with_changes(names=names)
    if not node.lpar and len(cst.Module([]).code_for_node(result)) > LINE:
        result = _wrapped(result)
    return result


def _inserted(
    node: cst.ImportFrom, names: list[cst.ImportAlias], place: int, alias: cst.ImportAlias
) -> list[cst.ImportAlias]:
    space = _between(node, names)
    return [*names[:place], alias.with_changes(comma=cst.Comma(whitespace_after=space)), *names[place:]]


def _appended(node: cst.ImportFrom, names: list[cst.ImportAlias], alias: cst.ImportAlias) -> list[cst.ImportAlias]:
    last, space = names[-1], _between(node, names)
    closing = last.comma.whitespace_after if isinstance(last.comma, cst.Comma) else None
    if isinstance(closing, cst.ParenthesizedWhitespace) and isinstance(space, cst.ParenthesizedWhitespace):
        space = space.with_changes(first_line=closing.first_line)  # each name keeps its own comment
        closing = closing.with_changes(first_line=cst.TrailingWhitespace())
    if closing is not None:
        alias = alias.with_changes(comma=cst.Comma(whitespace_after=closing))
    return [*names[:-1], last.with_changes(comma=cst.Comma(whitespace_after=space)), alias]


def _between(node: cst.ImportFrom, names: list[cst.ImportAlias]) -> cst.BaseParenthesizableWhitespace:
    """The white space between two names, as the import has it, without a comment."""
    first = names[0].comma if len(names) > 1 else None
    space = (
        first.whitespace_after if isinstance(first, cst.Comma) else node.lpar.whitespace_after if node.lpar else None
    )
    if isinstance(space, cst.ParenthesizedWhitespace):
        return space.with_changes(first_line=cst.TrailingWhitespace(), empty_lines=[])
    return cst.SimpleWhitespace(" ")


def _order(name: str) -> tuple[int, str]:
    """isort's case-sensitive order: CONSTANTS, then Classes, then functions."""
    return (0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2, name)


def _alias(new: AddImport) -> cst.ImportAlias:
    asname = cst.AsName(cst.Name(new.asname)) if new.asname and new.asname != new.name else None
    return cst.ImportAlias(name=cst.Name(new.name), asname=asname)


def _new_line(new: AddImport) -> cst.SimpleStatementLine:
    module = cst.parse_expression(new.module)
    assert isinstance(module, (cst.Name, cst.Attribute))
    node = cst.ImportFrom(module=module, names=[_alias(new)])
    if len(cst.Module([]).code_for_node(node)) > LINE:
        node = _wrapped(node)
    return cst.SimpleStatementLine([node])


def _wrapped(node: cst.ImportFrom) -> cst.ImportFrom:
    """One name a line, in parentheses."""
    assert not isinstance(node.names, cst.ImportStar)
    inner = cst.ParenthesizedWhitespace(cst.TrailingWhitespace(), [], True, cst.SimpleWhitespace("    "))
    outer = cst.ParenthesizedWhitespace(cst.TrailingWhitespace(), [], True)
    names = [alias.with_changes(comma=cst.Comma(whitespace_after=inner)) for alias in node.names]
    names[-1] = names[-1].with_changes(comma=cst.Comma(whitespace_after=outer))
    return node.with_changes(names=names, lpar=cst.LeftParen(whitespace_after=inner), rpar=cst.RightParen())

"""Puts new `from module import name` lines where a person would: into an existing import, or in sorted place."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import libcst as cst

from codemods.edits import AddImport

_LINE = 88  # the formatter default of vLLM and of most plugins


def place_imports(module: cst.Module, imports: Sequence[AddImport]) -> cst.Module:
    """The module with every import of `imports` available at module level, each exactly once."""
    body = list(module.body)
    for new in sorted(set(imports), key=lambda item: (item.module, item.name)):
        body = _placed(body, new)
    return module.with_changes(body=body)


def _placed(body: list[cst.BaseStatement | cst.SimpleStatementLine], new: AddImport) -> list:  # type: ignore[type-arg]
    here = [(index, node) for index, line in enumerate(body) if (node := _import_from(line)) is not None]
    for index, node in here:
        if _dotted(node) == new.module and not isinstance(node.names, cst.ImportStar):
            if _has(node, new):
                return body
            line = cst.ensure_type(body[index], cst.SimpleStatementLine)
            return [*body[:index], line.with_changes(body=[_with_name(node, new)]), *body[index + 1 :]]
    line = _new_line(new)
    root = new.module.partition(".")[0]
    family = [(index, name) for index, node in here if (name := _dotted(node)).partition(".")[0] == root]
    others = [
        (index, name)
        for index, node in here
        if not node.relative and (name := _dotted(node)).partition(".")[0] not in _EARLIER
    ]
    for near in (family, others):
        before = [index for index, name in near if name < new.module]
        if before:
            return [*body[: max(before) + 1], line, *body[max(before) + 1 :]]
        if near:
            return _ahead_of(body, near[0][0], line)
    place = max((index for index, node in here if not node.relative), default=-1) + 1 or _after_header(body)
    return [*body[:place], line, *body[place:]]


_EARLIER = {*sys.stdlib_module_names, "__future__"}  # import sections that stand above the third-party one


def _ahead_of(body: list, index: int, line: cst.SimpleStatementLine) -> list:  # type: ignore[type-arg]
    """Put a line ahead of another; blank lines above go to the new line, comments stay with the old one."""
    first = cst.ensure_type(body[index], cst.SimpleStatementLine)
    comments = any(space.comment is not None for space in first.leading_lines)
    blank, rest = ([], list(first.leading_lines)) if comments else (list(first.leading_lines), [])
    return [
        *body[:index],
        line.with_changes(leading_lines=blank),
        first.with_changes(leading_lines=rest),
        *body[index + 1 :],
    ]


def _import_from(line: cst.CSTNode) -> cst.ImportFrom | None:
    if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 and isinstance(line.body[0], cst.ImportFrom):
        return line.body[0]
    return None


def _dotted(node: cst.ImportFrom) -> str:
    name = cst.Module([]).code_for_node(node.module) if node.module is not None else ""
    return "." * len(node.relative) + name


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
    one_per_line = bool(node.lpar) and isinstance(
        getattr(names[0].comma, "whitespace_after", None), cst.ParenthesizedWhitespace
    )
    if place < len(names):
        pattern = names[place].comma if isinstance(names[place].comma, cst.Comma) and place < len(names) - 1 else None
        space = pattern.whitespace_after if pattern is not None else None
        if space is None and one_per_line:
            space = cst.ensure_type(names[0].comma, cst.Comma).whitespace_after
        if isinstance(space, cst.ParenthesizedWhitespace):
            space = space.with_changes(first_line=cst.TrailingWhitespace(), empty_lines=[])
        alias = alias.with_changes(comma=cst.Comma(whitespace_after=space or cst.SimpleWhitespace(" ")))
        names.insert(place, alias)
    else:
        last = names[-1]
        previous = names[-2].comma if len(names) > 1 else None
        if one_per_line and isinstance(previous, cst.Comma) and isinstance(last.comma, cst.Comma):
            names[-1] = last.with_changes(comma=previous)
            names.append(alias.with_changes(comma=last.comma))
        elif isinstance(last.comma, cst.Comma):
            names.append(alias)
            names[-2] = last.with_changes(comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" ")))
        else:
            names[-1] = last.with_changes(comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" ")))
            names.append(alias)
    result = node.with_changes(names=names)
    if not node.lpar and len(cst.Module([]).code_for_node(result)) > _LINE:
        result = _wrapped(result)
    return result


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
    if len(cst.Module([]).code_for_node(node)) > _LINE:
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


def _after_header(body: Sequence[cst.CSTNode]) -> int:
    """Behind the docstring and `from __future__` imports."""
    place = 0
    for index, line in enumerate(body):
        node = _import_from(line)
        docstring = index == 0 and isinstance(line, cst.SimpleStatementLine) and isinstance(line.body[0], cst.Expr)
        if docstring or (node is not None and _dotted(node) == "__future__"):
            place = index + 1
    return place

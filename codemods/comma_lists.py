"""Takes items out of comma separated lists, and puts items in: arguments, parameters, elements, imported names.

The white space of a list is its owner's: a new last item takes over how the list ends, and every comment that does not
belong to a removed item stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import libcst as cst

from codemods import edits as E


class ListError(Exception):
    """The item is not in the list."""


def _without(items: Sequence[Any], index: int) -> list[Any]:
    """The items less one; the new last item takes over the end of the list, but keeps its own comment."""
    kept = [item for position, item in enumerate(items) if position != index]
    if kept and index == len(items) - 1:
        kept[-1] = _close_like(kept[-1], items[-1])
    elif index > 0:
        kept[index - 1] = _with_lines_of(kept[index - 1], items[index])
    return kept


def _with_lines_of(item: Any, gone: Any) -> Any:
    """The item before a removed one, with the comment lines that stand behind the removed one: they are the next's."""
    after = getattr(gone.comma, "whitespace_after", None)
    own = getattr(item.comma, "whitespace_after", None)
    if not isinstance(after, cst.ParenthesizedWhitespace) or not isinstance(own, cst.ParenthesizedWhitespace):
        return item
    if not any(line.comment is not None for line in after.empty_lines):
        return item
    lines = [*own.empty_lines, *after.empty_lines]
    return item.with_changes(comma=item.comma.with_changes(whitespace_after=own.with_changes(empty_lines=lines)))


def _close_like(item: Any, last: Any) -> Any:
    if not isinstance(item.comma, cst.Comma):
        return item
    if isinstance(last.comma, cst.Comma) and isinstance(last.comma.whitespace_after, cst.ParenthesizedWhitespace):
        return item.with_changes(
            comma=item.comma.with_changes(
                whitespace_after=_merged(item.comma.whitespace_after, last.comma.whitespace_after)
            )
        )
    if isinstance(item, cst.ParamStar) or _comment(item.comma.whitespace_after) is not None:
        return item  # a lone star goes with the last parameter behind it; a comment needs the comma ahead of it
    after = next((name for name in ("whitespace_after_arg", "whitespace_after_param") if hasattr(item, name)), None)
    changes: dict[str, Any] = {"comma": cst.MaybeSentinel.DEFAULT}
    if after is not None:
        changes[after] = _merged(item.comma.whitespace_after, getattr(last, after, cst.SimpleWhitespace("")))
    return item.with_changes(**changes)


def _comment(space: Any) -> Any:
    return space.first_line.comment if isinstance(space, cst.ParenthesizedWhitespace) else None


def _merged(own: Any, end: Any) -> Any:
    """The closing white space of the removed last item, without its comment and with the comment of the item before."""
    if isinstance(end, cst.ParenthesizedWhitespace):
        first = (
            own.first_line
            if isinstance(own, cst.ParenthesizedWhitespace)
            else end.first_line.with_changes(comment=None, whitespace=cst.SimpleWhitespace(""))
        )
        return end.with_changes(first_line=first)
    if _comment(own) is not None:
        return own
    return end


def without_element(items: Sequence[Any], originals: Sequence[Any], gone: Any) -> list[Any]:
    index = [id(item) for item in originals].index(id(gone))
    if len(items) != len(originals):  # another element went before: find it again by its code
        module = cst.Module([])
        code = module.code_for_node(gone.with_changes(comma=cst.MaybeSentinel.DEFAULT))
        index = [module.code_for_node(item.with_changes(comma=cst.MaybeSentinel.DEFAULT)) for item in items].index(code)
    return _without(items, index)


def without_argument(arguments: Sequence[cst.Arg], which: str | int) -> Sequence[cst.Arg]:
    for index, argument in enumerate(arguments):
        if index == which or (argument.keyword is not None and argument.keyword.value == which):
            return _without(arguments, index)
    return arguments


def with_argument(arguments: Sequence[cst.Arg], edit: E.SetArgument) -> Sequence[cst.Arg]:
    result = list(arguments)
    equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    for index, argument in enumerate(result):
        if index == edit.argument or (argument.keyword is not None and argument.keyword.value == edit.argument):
            value = argument.value if edit.value is None else cst.parse_expression(edit.value)
            spaced = equal if argument.keyword is None else argument.equal
            result[index] = argument.with_changes(keyword=cst.Name(edit.new_keyword), value=value, equal=spaced)
            return result
    new = cst.Arg(keyword=cst.Name(edit.new_keyword), value=cst.parse_expression(edit.value or "None"), equal=equal)
    place = next((i for i, a in enumerate(result) if a.star == "**"), len(result))
    if not result:
        return [new]
    if place < len(result):
        before = result[place - 1].comma if place else None
        space = before if isinstance(before, cst.Comma) else cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
        return [*result[:place], new.with_changes(comma=space), *result[place:]]
    last = result[-1]
    closing = last.comma.whitespace_after if isinstance(last.comma, cst.Comma) else last.whitespace_after_arg
    between = _between(result, closing)
    if isinstance(between, cst.ParenthesizedWhitespace) and isinstance(closing, cst.ParenthesizedWhitespace):
        between = between.with_changes(first_line=closing.first_line)  # a comment stays with the argument it follows
        closing = closing.with_changes(first_line=cst.TrailingWhitespace())
    if isinstance(last.comma, cst.Comma):
        new = new.with_changes(comma=cst.Comma(whitespace_after=closing))
    else:
        new = new.with_changes(whitespace_after_arg=closing)
    last = last.with_changes(comma=cst.Comma(whitespace_after=between), whitespace_after_arg=cst.SimpleWhitespace(""))
    return [*result[:-1], last, new]


def _between(arguments: Sequence[cst.Arg], closing: cst.BaseParenthesizableWhitespace) -> Any:
    """The white space to put behind what was the last argument: as between those before, without a comment."""
    usual = next((a.comma.whitespace_after for a in reversed(arguments[:-1]) if isinstance(a.comma, cst.Comma)), None)
    if isinstance(usual, cst.ParenthesizedWhitespace):
        return usual.with_changes(first_line=cst.TrailingWhitespace(), empty_lines=[])
    if isinstance(closing, cst.ParenthesizedWhitespace) and (usual is None or _comment(closing) is not None):
        deeper = cst.SimpleWhitespace(closing.last_line.value + "    ")
        return closing.with_changes(first_line=cst.TrailingWhitespace(), empty_lines=[], last_line=deeper)
    return usual if usual is not None else cst.SimpleWhitespace(" ")


def with_bases(node: cst.ClassDef, bases: Sequence[cst.Arg]) -> cst.ClassDef:
    if bases:
        return node.with_changes(bases=bases)
    return node.with_changes(bases=[], lpar=cst.MaybeSentinel.DEFAULT, rpar=cst.MaybeSentinel.DEFAULT)


def without_import(node: Any, name: str) -> Any:
    """An import less a name of it, however often it stands there."""
    if isinstance(node, cst.RemovalSentinel):
        return node
    kept = list(node.names)
    while (index := next((i for i, a in enumerate(kept) if _imported(a) == name), None)) is not None:
        kept = list(_without(kept, index))
    if len(kept) == len(node.names):
        return node
    return node.with_changes(names=kept) if kept else cst.RemoveFromParent()


def _imported(alias: cst.ImportAlias) -> str:
    return cst.Module([]).code_for_node(alias.name)


def with_signature(node: cst.FunctionDef, edit: Any) -> cst.FunctionDef:
    if isinstance(edit, E.SetReturns):
        annotation = cst.parse_expression(edit.annotation)
        returns = node.returns.with_changes(annotation=annotation) if node.returns else None
        return node.with_changes(returns=returns)
    groups = ("posonly_params", "params", "star_arg", "kwonly_params", "star_kwarg")
    parameters = node.params
    flat: list[tuple[str, Any]] = []
    for group in groups:
        value = getattr(parameters, group)
        flat += [
            (group, item)
            for item in (value if isinstance(value, (tuple, list)) else [value])
            if isinstance(item, (cst.Param, cst.ParamStar))
        ]
    if isinstance(edit, E.AddParameter):
        return node.with_changes(params=_with_parameter(parameters, edit))
    index = next(
        (i for i, (_, item) in enumerate(flat) if isinstance(item, cst.Param) and item.name.value == edit.name), None
    )
    if index is None:
        raise ListError(f"no parameter {edit.name}")
    if isinstance(edit, E.RemoveParameter):
        kept = _without([item for _, item in flat], index)
        names = [group for i, (group, _) in enumerate(flat) if i != index]
        flat = list(zip(names, kept))
        if not any(group == "kwonly_params" for group, _ in flat):
            star = next((i for i, (_, item) in enumerate(flat) if isinstance(item, cst.ParamStar)), None)
            if star is not None:
                rest = _without([item for _, item in flat], star)
                flat = list(zip([group for i, (group, _) in enumerate(flat) if i != star], rest))
    else:
        group, item = flat[index]
        flat[index] = (group, _parameter(item, edit))
    changes: dict[str, Any] = {}
    for group in groups:
        items = [item for name, item in flat if name == group]
        if group in ("star_arg", "star_kwarg"):
            changes[group] = items[0] if items else (cst.MaybeSentinel.DEFAULT if group == "star_arg" else None)
        else:
            changes[group] = items
    return node.with_changes(params=parameters.with_changes(**changes))


def _with_parameter(parameters: cst.Parameters, edit: E.AddParameter) -> cst.Parameters:
    new = cst.Param(
        name=cst.Name(edit.name),
        annotation=cst.Annotation(cst.parse_expression(edit.annotation)) if edit.annotation else None,
        default=cst.parse_expression(edit.default),
        equal=cst.AssignEqual()
        if edit.annotation
        else cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace("")),
    )
    group = "kwonly_params" if parameters.kwonly_params or isinstance(parameters.star_arg, cst.ParamStar) else "params"
    items = list(getattr(parameters, group))
    last_of_all = (
        group == "kwonly_params" or not parameters.star_arg or isinstance(parameters.star_arg, cst.MaybeSentinel)
    )
    ahead = [*parameters.params, parameters.star_arg] if group == "kwonly_params" else []
    others = [i for i in [*ahead, *items[:-1]] if isinstance(i, (cst.Param, cst.ParamStar))]
    usual = next((i.comma for i in reversed(others) if isinstance(i.comma, cst.Comma)), None)
    between = usual if usual is not None and _comment(usual.whitespace_after) is None else None
    if between is None:
        between = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    if items and last_of_all and parameters.star_kwarg is None:
        end = items[-1]
        new = new.with_changes(comma=end.comma, whitespace_after_param=end.whitespace_after_param)
        items[-1] = end.with_changes(comma=between, whitespace_after_param=cst.SimpleWhitespace(""))
    else:
        new = new.with_changes(comma=between)
    return parameters.with_changes(**{group: [*items, new]})


def _parameter(item: cst.Param, edit: E.SetParameter) -> cst.Param:
    changes: dict[str, Any] = {}
    if edit.new_name is not None:
        changes["name"] = item.name.with_changes(value=edit.new_name)
    if edit.annotation is not None:
        new = cst.parse_expression(edit.annotation) if edit.annotation else None
        if new is None:
            changes["annotation"] = None
        elif item.annotation is not None:
            changes["annotation"] = item.annotation.with_changes(annotation=new)
        else:
            changes["annotation"] = cst.Annotation(new)
            if item.default is not None:
                changes["equal"] = cst.AssignEqual()  # spaces around it, as an annotated parameter has them
    if edit.default is not None:
        changes["default"] = cst.parse_expression(edit.default) if edit.default else None
        if not edit.default:
            changes["equal"] = cst.MaybeSentinel.DEFAULT
    return item.with_changes(**changes)

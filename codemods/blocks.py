"""Blocks with statements taken out: no blank line at their start, no paragraph break lost, no comment of others
lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import libcst as cst

_FOR_TOOLS = (
    "noqa",
    "type:",
    "isort:",
    "pylint:",
    "pyright:",
    "fmt:",
    "ruff:",
)  # comments that only concern their line


class Gone(cst.SimpleStatementLine):
    """Stands where a statement was taken out, until the lines around it are closed up."""


class Comments(Gone):
    """Comments that outlive the statements they stood behind."""


def closed_up(block: Any) -> Any:
    """Take the places of removed statements out: no blank line at the start of a block, no paragraph break lost."""
    if not any(isinstance(line, Gone) for line in block.body):
        return block
    body: list[Any] = []
    pending: list[cst.EmptyLine] = []
    opens = isinstance(block, cst.IndentedBlock) or not block.header  # nothing stands above the first statement
    for line in block.body:
        if isinstance(line, Comments):
            pending = [*pending, *line.leading_lines]
            body.append(line)
            continue
        if isinstance(line, Gone):
            if opens and all(isinstance(above, Gone) for above in body):
                pending = []
            elif len(line.leading_lines) > len(pending):
                pending = list(line.leading_lines)
            body.append(line)
            continue
        if body and isinstance(body[-1], Gone):
            line = line.with_changes(
                leading_lines=_joined(
                    pending,
                    line.leading_lines,
                    first=opens and all(isinstance(b, Gone) for b in body),
                )
            )
        body.append(line)
        pending = []
    kept = [line for line in body if not isinstance(line, Gone)]
    if isinstance(block.body[-1], Comments):
        block = block.with_changes(footer=[*pending, *block.footer])
    if not kept and isinstance(block, cst.IndentedBlock):
        kept = [cst.SimpleStatementLine([cst.Pass()])]
    return block.with_changes(body=kept)


def _joined(gone: list[cst.EmptyLine], own: Sequence[cst.EmptyLine], first: bool) -> list[cst.EmptyLine]:
    """Leading lines of the statement behind a removed one. Comments stay; blank lines are as many as either had."""
    blank = [line for line in own if line.comment is None]
    comments = [line for line in gone if line.comment is not None]
    if first:
        start = next((i for i, line in enumerate(own) if line.comment is not None), len(own))
        return [*comments, *own[start:]]
    if comments:
        return [*gone, *own]
    missing = len([line for line in gone if line.comment is None]) - len(blank)
    return [*gone[:missing], *own] if missing > 0 else list(own)


def gone_line(node: Any, keep_comments: bool) -> Any:
    """What stands for a removed statement. A comment right above goes with it unless it may speak of more than it."""
    if not hasattr(node, "leading_lines"):
        return cst.RemoveFromParent()
    lines = [line for line in node.leading_lines if keep_comments or line.comment is None]
    return Gone(body=[cst.Pass()], leading_lines=lines)


def drop_if_empty(node: Any) -> Any:
    if isinstance(node, (Gone, cst.FlattenSentinel)):  # in a sentinel something was put beside the line
        return node
    if not node.body:
        gone = gone_line(node, keep_comments=True)
        comment = node.trailing_whitespace.comment
        if comment is not None and not comment.value.lstrip("# ").startswith(_FOR_TOOLS):
            gone = gone.with_changes(leading_lines=[*gone.leading_lines, cst.EmptyLine(comment=comment)])
        return gone
    return node.with_changes(body=[*node.body[:-1], node.body[-1].with_changes(semicolon=cst.MaybeSentinel.DEFAULT)])


def tidied(node: Any) -> Any:
    """A line with several statements, one of which was taken out."""
    if isinstance(node, Gone):
        return node
    if not node.body:
        return (
            gone_line(node, keep_comments=True)
            if isinstance(node, cst.SimpleStatementLine)
            else node.with_changes(body=[cst.Pass()])
        )
    last = node.body[-1].with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
    return node.with_changes(body=[*node.body[:-1], last])


def unwrapped(node: cst.If | cst.Try, keep: str) -> Any:
    """What stands in place of an `if` or `try` of which one part stays; comments above it stay with that part."""
    arms = _arms(node, keep)
    if isinstance(arms, cst.If):
        return arms.with_changes(leading_lines=[*node.leading_lines, *arms.leading_lines])
    body: list[Any] = []
    for owner in arms:
        body += _lines_of(owner)
    if not body:
        return gone_line(node, keep_comments=False)
    body[0] = body[0].with_changes(leading_lines=[*node.leading_lines, *body[0].leading_lines])
    return cst.FlattenSentinel(body)


def elif_arm(node: cst.If, keep: str) -> Any:
    """What stands in place of an `elif` of which one part stays: an `else`, the next `elif`, or nothing."""
    if keep == "orelse":
        return node.orelse if node.orelse is not None else cst.RemoveFromParent()
    return cst.Else(body=node.body, leading_lines=node.leading_lines)


def _arms(node: cst.If | cst.Try, keep: str) -> cst.If | list[Any]:
    if isinstance(node, cst.Try):
        if keep != "body":
            return [node.handlers[int(keep.rpartition(".")[2])]]
        return [node] if node.orelse is None else [node, node.orelse]
    if keep == "body":
        return [node]
    if isinstance(node.orelse, cst.If):
        return node.orelse
    return [node.orelse] if node.orelse is not None else []


def _lines_of(owner: Any) -> list[Any]:
    """The statements of a block, without a lone `pass`. Comments above its `else:` and at its end stay."""
    above = list(owner.leading_lines) if isinstance(owner, (cst.Else, cst.ExceptHandler)) else []
    above = [line for line in above if line.comment is not None]
    if isinstance(owner.body, cst.SimpleStatementSuite):
        lines: list[Any] = [cst.SimpleStatementLine(owner.body.body)]
        footer: list[cst.EmptyLine] = []
    else:
        lines = list(owner.body.body)
        footer = [line for line in owner.body.footer if line.comment is not None]
    if len(lines) == 1 and isinstance(lines[0], cst.SimpleStatementLine) and isinstance(lines[0].body[0], cst.Pass):
        footer = [line for line in lines[0].leading_lines if line.comment is not None] + footer
        lines = []
    if lines and above:
        lines[0] = lines[0].with_changes(leading_lines=[*above, *lines[0].leading_lines])
    if footer:
        lines.append(Comments(body=[cst.Pass()], leading_lines=footer))
    return lines

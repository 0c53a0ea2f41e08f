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


def closed_up(block: Any) -> Any:
    """Take the places of removed statements out: no blank line at the start of a block, no paragraph break lost."""
    if not any(isinstance(line, Gone) for line in block.body):
        return block
    body: list[Any] = []
    pending: list[cst.EmptyLine] = []
    for line in block.body:
        if isinstance(line, Gone):
            if not any(not isinstance(kept, Gone) for kept in body) and isinstance(block, cst.IndentedBlock):
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
                    first=all(isinstance(b, Gone) for b in body) and isinstance(block, cst.IndentedBlock),
                )
            )
        body.append(line)
        pending = []
    kept = [line for line in body if not isinstance(line, Gone)]
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

"""Which comments a rewrite lost although the statement they belong to is still there."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from dataclasses import dataclass

from tests.corpus.old_api import source

RENAMED = ("MultiHeadAttention", "MMEncoderAttention")  # a comment may follow the class it names

Job = tuple[str, ...]


@dataclass(frozen=True)
class Comment:
    line: int
    text: str


def comments(text: str) -> list[Comment]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [Comment(t.start[0], t.string.replace(*RENAMED)) for t in tokens if t.type == tokenize.COMMENT]


def lost_comments(before: str, after: str) -> list[Comment]:
    """Comments of `before` that `after` lacks while their statement goes on to exist, changed or not.

    A comment belongs to the statement that it stands in or behind, or else to the next one. A statement goes on to
    exist when its function still has one of the same kind that does the same job: sets the same target, calls the same
    name, tests the same condition.
    """
    missing = Counter(c.text for c in comments(before)) - Counter(c.text for c in comments(after))
    if not missing:
        return []
    old = statements(before)
    removed = Counter(job for _, job in old) - Counter(job for _, job in statements(after))
    return [c for c in comments(before) if missing[c.text] and owner(c, old) not in removed]


def statements(text: str) -> list[tuple[ast.stmt, Job]]:
    return [(node, (scope, *job(node))) for node, _, scope in source(text).nodes if isinstance(node, ast.stmt)]


def job(node: ast.stmt) -> Job:
    """What a statement is for, in a form that survives a change of its value or its arguments."""
    kind = type(node).__name__
    if isinstance(node, ast.Assign):
        return kind, " = ".join(map(ast.unparse, node.targets))
    if isinstance(node, (ast.AnnAssign, ast.AugAssign)):
        return "Assign", ast.unparse(node.target)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return kind, ast.unparse(node.value.func)
    if isinstance(node, (ast.If, ast.While)):
        return kind, ast.unparse(node.test)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return kind, node.name
    if isinstance(node, ast.ImportFrom):
        return kind, f"{node.level} {node.module}"
    return (kind,)


def owner(comment: Comment, old: list[tuple[ast.stmt, Job]]) -> Job | None:
    """The job of the statement a comment belongs to; None for one at the end of the file."""
    inside = [
        (statement.lineno, job)
        for statement, job in old
        if statement.lineno <= comment.line <= (statement.end_lineno or 0) and not hasattr(statement, "body")
    ]
    behind = [(statement.lineno, job) for statement, job in old if statement.lineno >= comment.line]
    return max(inside)[1] if inside else min(behind)[1] if behind else None

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
    name, tests the same condition, imports one of the same names from the same place.
    """
    missing = Counter(c.text for c in comments(before)) - Counter(c.text for c in comments(after))
    if not missing:
        return []
    old, new = statements(before), statements(after)
    removed = Counter(job for _, jobs in old for job in jobs) - Counter(job for _, jobs in new for job in jobs)
    return [c for c in comments(before) if missing[c.text] and not removed.keys() >= set(owner(c, old))]


def statements(text: str) -> list[tuple[ast.stmt, list[Job]]]:
    found = [(node, scope) for node, _, scope in source(text).nodes if isinstance(node, ast.stmt)]
    return [(node, [(scope, *job) for job in jobs(node)]) for node, scope in found]


def jobs(node: ast.stmt) -> list[Job]:
    """What a statement is for, in a form that survives a change of its value or its arguments."""
    kind = type(node).__name__
    if isinstance(node, ast.Assign):
        return [(kind, " = ".join(map(ast.unparse, node.targets)))]
    if isinstance(node, (ast.AnnAssign, ast.AugAssign)):
        return [("Assign", ast.unparse(node.target))]
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return [(kind, ast.unparse(node.value.func))]
    if isinstance(node, (ast.If, ast.While)):
        return [(kind, ast.unparse(node.test))]
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [(kind, node.name)]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [(kind, getattr(node, "module", None) or "", alias.name) for alias in node.names]
    return [(kind,)]


def owner(comment: Comment, old: list[tuple[ast.stmt, list[Job]]]) -> list[Job]:
    """The jobs of the statement a comment belongs to; at the end of the file, one that no statement has."""
    inside = [
        (statement.lineno, jobs)
        for statement, jobs in old
        if statement.lineno <= comment.line <= (statement.end_lineno or 0) and not hasattr(statement, "body")
    ]
    behind = [(statement.lineno, jobs) for statement, jobs in old if statement.lineno >= comment.line]
    return max(inside)[1] if inside else min(behind)[1] if behind else [("end of file",)]

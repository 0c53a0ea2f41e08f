"""Which comments a rewrite lost although the statement they belong to is still there."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from tests.corpus.old_api import source

RENAMED = ("MultiHeadAttention", "MMEncoderAttention")  # a comment may follow the class it names

Job = tuple[str, ...]
Part = ast.stmt | ast.arg | ast.keyword


@dataclass(frozen=True)
class Comment:
    line: int
    text: str


@lru_cache(maxsize=1000)
def comments(text: str) -> list[Comment]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [Comment(t.start[0], t.string.replace(*RENAMED)) for t in tokens if t.type == tokenize.COMMENT]


def lost_comments(before: str, after: str) -> list[Comment]:
    """Comments of `before` that `after` lacks while what they belong to goes on to exist, changed or not.

    A comment belongs to the parameter, keyword argument or statement that it stands behind or in, or else to the next
    one. A statement goes on to exist when its function still has one of the same kind that does the same job: sets the
    same target, calls the same name, tests the same condition, imports one of the same names from the same place.
    """
    missing = Counter(c.text for c in comments(before)) - Counter(c.text for c in comments(after))
    if not missing:
        return []
    removed = Counter(job for _, jobs in parts(before) for job in jobs)
    removed -= Counter(job for _, jobs in parts(after) for job in jobs)
    old = parts(before)
    return [c for c in comments(before) if missing[c.text] and not removed.keys() >= set(owner(c, old))]


def parts(text: str) -> list[tuple[Part, list[Job]]]:
    """The statements, parameters and keyword arguments of a text, each with what it is for."""
    found: list[tuple[Part, list[Job]]] = []
    for node, parent, scope in source(text).nodes:
        if isinstance(node, ast.stmt):
            found.append((node, [(scope, *job) for job in jobs(node)]))
        elif isinstance(node, ast.arg):
            found.append((node, [(scope, "parameter", node.arg)]))
        elif isinstance(node, ast.keyword) and isinstance(parent, ast.Call):
            found.append((node, [(scope, "argument", ast.unparse(parent.func), node.arg or "**")]))
    return found


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


def owner(comment: Comment, old: list[tuple[Part, list[Job]]]) -> list[Job]:
    """The jobs of the part a comment belongs to; at the end of the file, one that no part has."""
    places = [(part.lineno, part.end_lineno or part.lineno, part, jobs) for part, jobs in old]
    behind = [(part.col_offset, jobs) for first, _, part, jobs in places if first == comment.line]
    small = [(part.col_offset, jobs) for first, _, part, jobs in places if first == comment.line and is_small(part)]
    if small or behind:
        return max(small or behind)[1]
    around = [(first, last) for first, last, part, _ in places if first < comment.line <= last and not has_body(part)]
    end = max(around)[1] if around else max((last for _, last, _, _ in places), default=0)
    following = [(first, part.col_offset, jobs) for first, _, part, jobs in places if comment.line < first <= end]
    inside = [(first, jobs) for first, last, part, jobs in places if (first, last) in around]
    return min(following)[2] if following else max(inside)[1] if inside else [("end of file",)]


def is_small(part: Part) -> bool:
    return isinstance(part, (ast.arg, ast.keyword))


def has_body(part: Part) -> bool:
    return hasattr(part, "body")

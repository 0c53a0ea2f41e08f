"""Edits as data: what a rule wants changed, addressed by the position of `ast` nodes.

Rules decide on the standard library's `ast` (fast, and enough to decide); `codemods.apply` carries the edits out on a
LibCST tree (lossless). An edit therefore never holds a node, only its place: edits can be compared, sorted and sent to
another process.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, fields


@dataclass(frozen=True, order=True)
class Ref:
    """The place of an `ast` node: 1-based lines, 0-based columns in UTF-8 bytes, as `ast` counts them."""

    line: int
    column: int
    end_line: int
    end_column: int
    kind: str

    @classmethod
    def of(cls, node: ast.AST) -> Ref:
        return cls(
            node.lineno,  # type: ignore[attr-defined]
            node.col_offset,  # type: ignore[attr-defined]
            node.end_lineno,  # type: ignore[attr-defined]
            node.end_col_offset,  # type: ignore[attr-defined]
            type(node).__name__,
        )

    @property
    def start(self) -> tuple[int, int]:
        return (self.line, self.column)

    @property
    def end(self) -> tuple[int, int]:
        return (self.end_line, self.end_column)

    def contains(self, other: Ref) -> bool:
        return self.start <= other.start and other.end <= self.end


@dataclass(frozen=True)
class ReplaceStatement:
    """Put `code` (zero or more statements) in place of a statement. Comments above it stay if `code` is not empty."""

    statement: Ref
    code: str


@dataclass(frozen=True)
class InsertAfter:
    """Put `code` behind a statement, in the same block."""

    statement: Ref
    code: str


@dataclass(frozen=True)
class InsertBefore:
    """Put `code` ahead of a statement, in the same block; comments above the statement stay with the statement."""

    statement: Ref
    code: str


@dataclass(frozen=True)
class Unwrap:
    """Replace an `if`, a `try` or a conditional expression by one of its parts, whose comments are kept.

    "body" (of a `try`: and what its `else` holds), "orelse", or "handlers.0" and so on.
    """

    place: Ref
    keep: str


@dataclass(frozen=True)
class ReplaceExpression:
    """Put `code` in place of an expression."""

    expression: Ref
    code: str


@dataclass(frozen=True)
class RemoveArgument:
    """Take an argument out of a call (or a class definition's bases): by keyword, or by position."""

    call: Ref
    argument: str | int


@dataclass(frozen=True)
class SetArgument:
    """Rename and/or revalue an argument of a call, which is passed by keyword from then on; it is appended if the call
    has no such argument."""

    call: Ref
    argument: str | int
    new_keyword: str
    value: str | None = None  # None: the value stays


@dataclass(frozen=True)
class RemoveParameter:
    """Take a parameter out of a function's signature."""

    function: Ref
    name: str


@dataclass(frozen=True)
class SetParameter:
    """Rename, re-annotate and/or re-default a parameter; empty string takes annotation or default away."""

    function: Ref
    name: str
    new_name: str | None = None
    annotation: str | None = None
    default: str | None = None


@dataclass(frozen=True)
class Rename:
    """Change the name of a function where it is defined, or the last name of an attribute access."""

    place: Ref
    name: str


@dataclass(frozen=True)
class AddParameter:
    """Add a parameter with a default behind all others that may be passed by keyword; `annotation` may be empty."""

    function: Ref
    name: str
    annotation: str
    default: str


@dataclass(frozen=True)
class SetReturns:
    """Change a function's return annotation."""

    function: Ref
    annotation: str


@dataclass(frozen=True)
class RemoveElement:
    """Take an element out of a set, list, tuple or dict display, by index."""

    container: Ref
    index: int


@dataclass(frozen=True)
class RemoveImport:
    """Take one name out of an import statement, under whatever local names; the statement goes with its last name."""

    statement: Ref
    name: str  # as imported, before any `as`


@dataclass(frozen=True)
class AddImport:
    """Make `name` importable at module level as `from module import name`, in sorted place among its kind."""

    module: str
    name: str
    asname: str | None = None


@dataclass(frozen=True)
class RenameInComments:
    """Rename a whole word in every comment of the file: for a name that the file's code no longer has."""

    old: str
    new: str


def places(edit: Edit) -> Iterator[Ref]:
    """The places that an edit names."""
    return (value for field in fields(edit) if isinstance(value := getattr(edit, field.name), Ref))


Edit = (
    ReplaceStatement
    | InsertAfter
    | InsertBefore
    | Unwrap
    | ReplaceExpression
    | RemoveArgument
    | SetArgument
    | RemoveParameter
    | SetParameter
    | AddParameter
    | Rename
    | SetReturns
    | RemoveElement
    | RemoveImport
    | AddImport
    | RenameInComments
)

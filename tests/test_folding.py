"""An edited text is the same whether LibCST saw all of it or only what the edits concern."""

from __future__ import annotations

import ast
from collections.abc import Callable

import libcst as cst
import pytest

from codemods import edits as E
from codemods.apply import apply
from codemods.folding import FoldError, fold

TEXT = '''\
"""Towers."""
from a import b


def untouched(x):
    # inside
    if x:
        return 1
    return 2
    # behind, of the same block


class Tower:
    width = 1

    @staticmethod
    def first(a):
        b = a
        c = b
        return c

    def second(self, a):
        return self.first(a)

    async def last(self):
        one = 1
        two = 2
        three = 3
        return one + two + three  # at the end


if b:

    class Nested:
        def method(self):
            one = 1
            two = 2
            three = 3
            return one + two + three

        other = b
'''


def places(text: str, kind: type[ast.AST]) -> list[E.Ref]:
    return [E.Ref.of(node) for node in ast.walk(ast.parse(text)) if isinstance(node, kind)]


def named(text: str, name: str) -> E.Ref:
    found = [n for n in ast.walk(ast.parse(text)) if getattr(n, "name", None) == name and isinstance(n, ast.stmt)]
    return E.Ref.of(found[0])


def value_of(text: str, name: str) -> E.Ref:
    """The place of the value in `name = value`."""
    assigned = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == name]
    return E.Ref.of(assigned[0].value)


EDITS: dict[str, Callable[[str], list[E.Edit]]] = {
    "an import": lambda text: [E.AddImport("a", "c")],
    "a class attribute": lambda text: [E.ReplaceExpression(value_of(text, "width"), "2")],
    "a method": lambda text: [E.AddParameter(named(text, "second"), "mask", "object", "None")],
    "behind the last method": lambda text: [E.InsertAfter(named(text, "last"), "depth = 3\n")],
    "behind a class": lambda text: [E.InsertAfter(named(text, "Tower"), "depth = 3\n")],
    "a class as a whole": lambda text: [E.ReplaceStatement(named(text, "Tower"), "Tower = object\n")],
    "inside a branch": lambda text: [E.ReplaceExpression(value_of(text, "other"), "b.c")],
    "a comment": lambda text: [E.RenameInComments("behind", "below"), E.AddImport("a", "c")],
    "a branch": lambda text: [E.Unwrap(places(text, ast.If)[-1], "body")],
}

STYLES: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "tabs": lambda text: text.replace("    ", "\t"),
    "two spaces": lambda text: text.replace("    ", "  "),
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "no newline at the end": str.rstrip,
}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("edit", EDITS)
def test_nothing_but_time_depends_on_it(edit: str, style: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = STYLES[style](TEXT)
    planned = EDITS[edit](text)
    folded = apply(text, ast.parse(text), planned)
    monkeypatch.setattr("codemods.apply.fold", lambda *_: None)
    assert folded == apply(text, ast.parse(text), planned) != text


def test_what_no_edit_concerns_is_left_out() -> None:
    folded = fold(TEXT, ast.parse(TEXT), EDITS["a method"](TEXT))
    assert folded is not None
    assert [taken.split("\n")[0] for taken in folded.taken] == [
        "def untouched(x):",
        "    @staticmethod",
        "    async def last(self):",
        "    class Nested:",
    ]
    assert "behind, of the same block" in folded.taken[0]
    assert cst.parse_module(folded.text).code == folded.text
    assert folded.unfold(folded.text) == TEXT


LONG = """\
import a


def long(x, mask):
    first = a(
        x,
        1,
        2,
    )  # of first
    # above the branch
    if first:
        x = first
    elif (
        mask
        and x
        and first
    ):
        x = mask
        # of the branch
    y = a(x, mask=mask)
    # above the loop
    for item in x:
        y += item
        y += 1

    y += 2; y += 3
    return y
"""


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (ast.Call, lambda place: E.RemoveArgument(place, "mask")),
        (ast.For, lambda place: E.ReplaceStatement(place, "")),
        (ast.If, lambda place: E.Unwrap(place, "body")),
        (ast.FunctionDef, lambda place: E.RemoveParameter(place, "mask")),
        (ast.Return, lambda place: E.InsertBefore(place, "y += 4\n")),
    ],
)
def test_statements_around_the_place_are_left_out_as_well(
    kind: type[ast.AST], change: Callable[[E.Ref], E.Edit], monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = [change(places(LONG, kind)[-1 if kind is ast.Call else 0])]
    folded = fold(LONG, ast.parse(LONG), planned)
    assert folded is not None and folded.unfold(folded.text) == LONG
    assert len(folded.text.splitlines()) < len(LONG.splitlines()) - 4
    text = apply(LONG, ast.parse(LONG), planned)
    monkeypatch.setattr("codemods.apply.fold", lambda *_: None)
    assert text == apply(LONG, ast.parse(LONG), planned) != LONG


def test_a_block_that_was_indented_otherwise_is_not_put_back() -> None:
    folded = fold(TEXT, ast.parse(TEXT), EDITS["inside a branch"](TEXT))
    assert folded is not None
    with pytest.raises(FoldError):
        folded.unfold(folded.text.replace("        def __folded", "    def __folded"))

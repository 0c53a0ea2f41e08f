"""What a call must change so that each argument still reaches its parameter."""

from __future__ import annotations

import ast

import pytest

from codemods.rebinding import Rebinding, rebinding
from codemods.vllm_api import Signature


def change(call: str, *olds: str, new: str, settled: bool = False, **renamed: str) -> Rebinding | None:
    node = ast.parse(call, mode="eval").body
    assert isinstance(node, ast.Call)
    return rebinding(node, [Signature.parse(old) for old in olds], Signature.parse(new), settled, renamed)


def shown(found: Rebinding | None) -> tuple[list[int | str], list[tuple[int | str, str]], tuple[str, ...]]:
    assert found is not None
    return [a.place for a in found.gone], [(a.place, a.parameter) for a in found.named], found.missing


@pytest.mark.parametrize(
    ("call", "old", "new", "gone", "named", "missing"),
    [
        ("f(1, b=2)", "a b", "a b", [], [], ()),
        ("f(1, b=2)", "a b", "a", ["b"], [], ()),
        ("f(1, 2, 3)", "a b c", "a c", [1], [], ()),
        ("f(1, 2, 3)", "a b c", "a x= b= c=", [], [(1, "b"), (2, "c")], ()),
        ("f(1, 2, 3)", "a b c", "b a", [2], [(0, "a"), (1, "b")], ()),
        ("f(1, 2)", "a b", "a * b", [], [(1, "b")], ()),
        ("f(1)", "a", "a b c=", [], [], ("b",)),
        ("f(1, **more)", "a b=", "a b", [], [], ()),
        ("f(1, b=2)", "a b", "a **rest", [], [], ()),
    ],
)
def test_arguments_keep_their_parameters(
    call: str, old: str, new: str, gone: list[object], named: list[object], missing: tuple[str, ...]
) -> None:
    assert shown(change(call, old, new=new)) == (gone, named, missing)


def test_a_parameter_may_have_another_name() -> None:
    assert shown(change("f(1, old=2)", "a old", new="a now", old="now")) == ([], [("old", "now")], ())
    assert shown(change("f(1, 2)", "a old", new="a now", old="now")) == ([], [], ())


def test_what_was_written_for_the_new_signature_stays() -> None:
    assert change("f(1, 2)", "a b", new="a x", settled=True) == Rebinding()
    assert change("f(1, 2)", "a b", new="a x")


def test_names_tell_which_of_several_signatures_was_meant() -> None:
    assert shown(change("f(x, self.b)", "a b", "a c", new="a c= b=")) == ([], [(1, "b")], ())
    assert shown(change("f(x, b)", "a b", new="a c= b=", settled=True)) == ([], [(1, "b")], ())


@pytest.mark.parametrize(
    ("call", "olds"),
    [("f(1, 2)", ("a b", "a c")), ("f(*both)", ("a b",)), ("f(1, 2, 3)", ("a b",))],
    ids=["they disagree", "hidden by a star", "it fits none"],
)
def test_nothing_is_told_where_nothing_can_be(call: str, olds: tuple[str, ...]) -> None:
    assert change(call, *olds, new="b a") is None

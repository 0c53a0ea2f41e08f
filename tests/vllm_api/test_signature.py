"""A signature agrees with Python about which calls bind."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codemods.vllm_api import Kind, Parameter, Signature
from codemods.vllm_api.source import signature_text

NAMES = ("a", "b", "c", "d", "e")
KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: Kind.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD: Kind.POSITIONAL,
    inspect.Parameter.KEYWORD_ONLY: Kind.KEYWORD_ONLY,
    inspect.Parameter.VAR_POSITIONAL: Kind.ARGS,
    inspect.Parameter.VAR_KEYWORD: Kind.KWARGS,
}


@st.composite
def parameter_lists(draw: st.DrawFn) -> str:
    """The text between the parentheses of a `def`, any that Python accepts."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True))
    positional_only = draw(st.integers(0, len(names)))
    positional = draw(st.integers(positional_only, len(names)))
    defaults = draw(st.integers(0, positional))
    parts = [name + ("=0" if index >= positional - defaults else "") for index, name in enumerate(names[:positional])]
    if positional_only:
        parts.insert(positional_only, "/")
    keyword_only = [name + draw(st.sampled_from(["", "=0"])) for name in names[positional:]]
    if draw(st.booleans()):
        parts.append("*args")
    elif keyword_only:
        parts.append("*")
    parts += keyword_only
    if draw(st.booleans()):
        parts.append("**kwargs")
    return ", ".join(parts)


def parsed(parameters: str) -> Signature:
    definition = ast.parse(f"def f({parameters}): ...").body[0]
    assert isinstance(definition, ast.FunctionDef)
    return Signature.parse(signature_text(definition.args))


def python(parameters: str) -> Callable[..., None]:
    scope: dict[str, Callable[..., None]] = {}
    exec(f"def f({parameters}): ...", {}, scope)
    return scope["f"]


def python_binds(parameters: str, positional: int, keywords: Sequence[str]) -> bool:
    """By a real call: before Python 3.13, `inspect.Signature.bind` refuses some calls that Python makes."""
    try:
        python(parameters)(*[0] * positional, **dict.fromkeys(keywords, 0))
    except TypeError:
        return False
    return True


calls = st.tuples(st.integers(0, 6), st.lists(st.sampled_from((*NAMES, "x")), unique=True))


@given(parameter_lists())
def test_parameters_are_read_as_python_reads_them(parameters: str) -> None:
    expected = tuple(
        Parameter(p.name, KINDS[p.kind], p.default is not inspect.Parameter.empty)
        for p in inspect.signature(python(parameters)).parameters.values()
    )
    assert parsed(parameters).parameters == expected


@given(parameter_lists(), calls)
def test_a_call_binds_exactly_when_python_binds_it(parameters: str, call: tuple[int, list[str]]) -> None:
    positional, keywords = call
    assert (parsed(parameters).binds(positional, keywords) is None) == python_binds(parameters, positional, keywords)


@given(parameter_lists(), calls, st.integers(0, 6), st.lists(st.sampled_from(NAMES), unique=True))
def test_an_unpacked_call_is_not_refused_when_some_content_would_bind(
    parameters: str, call: tuple[int, list[str]], more: int, unpacked: list[str]
) -> None:
    positional, keywords = call
    unpacked = [name for name in unpacked if name not in keywords]
    if python_binds(parameters, positional + more, [*keywords, *unpacked]):
        assert parsed(parameters).binds(positional, keywords, star=bool(more), double_star=bool(unpacked)) is None


@pytest.mark.parametrize(
    ("positional", "keywords", "sentence"),
    [
        (4, [], "it takes at most 3 positional arguments, 4 are given"),
        (3, ["scale"], "'scale' is given by position and by keyword"),
        (3, ["multimodal_config"], "it has no parameter 'multimodal_config'"),
        (1, ["scale"], "it needs 'head_size'"),
        (2, ["prefix"], None),
    ],
)
def test_the_sentence_says_what_is_wrong(positional: int, keywords: list[str], sentence: str | None) -> None:
    signature = Signature.parse("num_heads head_size scale= * prefix=")
    assert signature.binds(positional, keywords) == sentence


@pytest.mark.parametrize(
    ("star", "double_star", "sentence"),
    [(True, False, "it needs 'c'"), (False, True, "it needs 'a'"), (True, True, None)],
)
def test_unpacking_excuses_only_what_it_could_fill(star: bool, double_star: bool, sentence: str | None) -> None:
    assert Signature.parse("a / b * c").binds(0, [], star, double_star) == sentence


def test_names_that_may_be_passed_by_keyword() -> None:
    signature = Signature.parse("a / b *args c= **kwargs")
    assert [name for name in ("a", "b", "args", "c", "kwargs") if name in signature] == ["b", "c"]


@given(parameter_lists())
def test_it_is_written_as_a_def_writes_it(text: str) -> None:
    arguments = ast.parse(f"def f({text}): pass").body[0].args  # type: ignore[attr-defined]
    written = str(Signature.parse(signature_text(arguments)))
    assert written == f"({', '.join(part.strip() for part in text.split(','))})".replace("=0", "=...")


def test_what_every_call_has_to_fill() -> None:
    assert Signature.parse("a b= *args c d= **rest").required == ("a", "c")

"""How a callable may be called: its parameters without annotations and default values, and whether a call binds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cache, cached_property


class Kind(str, Enum):
    """How an argument reaches a parameter."""

    POSITIONAL_ONLY = "positional-only"
    POSITIONAL = "positional"  # or by keyword
    KEYWORD_ONLY = "keyword-only"
    ARGS = "args"  # `*args`
    KWARGS = "kwargs"  # `**kwargs`


@dataclass(frozen=True)
class Parameter:
    """One parameter as a caller sees it."""

    name: str
    kind: Kind
    has_default: bool


@dataclass(frozen=True)
class Signature:
    """Parameters in order, as the caller writes the arguments: `self` and `cls` are not among them."""

    parameters: tuple[Parameter, ...]

    @staticmethod
    @cache
    def parse(text: str) -> Signature:
        """From blank-separated text: `a`, `b=` (has a default), `/`, `*`, `*args`, `**kwargs`."""
        found: list[Parameter] = []
        kind = Kind.POSITIONAL
        for token in text.split():
            if token == "/":
                found = [Parameter(p.name, Kind.POSITIONAL_ONLY, p.has_default) for p in found]
            elif token == "*":
                kind = Kind.KEYWORD_ONLY
            elif token.startswith("**"):
                found.append(Parameter(token[2:], Kind.KWARGS, False))
            elif token.startswith("*"):
                found.append(Parameter(token[1:], Kind.ARGS, False))
                kind = Kind.KEYWORD_ONLY
            else:
                found.append(Parameter(token.rstrip("="), kind, token.endswith("=")))
        return Signature(tuple(found))

    def __contains__(self, name: str) -> bool:
        """Whether an argument may be passed by this keyword to a parameter of its own."""
        return name in self._by_keyword

    def __str__(self) -> str:
        """As a `def` has it, with `...` for every default."""
        words: list[str] = []
        before = Kind.POSITIONAL
        for parameter in self.parameters:
            if before is Kind.POSITIONAL_ONLY and parameter.kind is not before:
                words.append("/")
            if parameter.kind is Kind.KEYWORD_ONLY and before not in (Kind.KEYWORD_ONLY, Kind.ARGS):
                words.append("*")
            stars = {Kind.ARGS: "*", Kind.KWARGS: "**"}.get(parameter.kind, "")
            words.append(f"{stars}{parameter.name}{'=...' * parameter.has_default}")
            before = parameter.kind
        return f"({', '.join([*words, '/'] if before is Kind.POSITIONAL_ONLY else words)})"

    @cached_property
    def by_position(self) -> tuple[Parameter, ...]:
        """The parameters that positional arguments reach, in order."""
        return tuple(p for p in self.parameters if p.kind in (Kind.POSITIONAL_ONLY, Kind.POSITIONAL))

    @property
    def required(self) -> tuple[str, ...]:
        """The parameters that every call has to fill."""
        variable = (Kind.ARGS, Kind.KWARGS)
        return tuple(p.name for p in self.parameters if not p.has_default and p.kind not in variable)

    @cached_property
    def _by_keyword(self) -> frozenset[str]:
        return frozenset(p.name for p in self.parameters if p.kind in (Kind.POSITIONAL, Kind.KEYWORD_ONLY))

    def _takes_any(self, kind: Kind) -> bool:
        return any(p.kind is kind for p in self.parameters)

    def binds(
        self, positional: int, keywords: Iterable[str], star: bool = False, double_star: bool = False
    ) -> str | None:
        """None when a call with so many positional arguments and these keywords binds, else one sentence why not.

        `star` and `double_star` say that the call also unpacks `*x` or `**x`. What those hold is not known, so a call
        is refused only when it could not bind whatever they hold.
        """
        keywords = tuple(keywords)
        if positional > len(self.by_position) and not self._takes_any(Kind.ARGS):
            return f"it takes at most {len(self.by_position)} positional arguments, {positional} are given"
        filled = self.by_position[:positional]
        twice = [p.name for p in filled if p.name in keywords and p.kind is Kind.POSITIONAL]
        if twice:
            return f"'{twice[0]}' is given by position and by keyword"
        if not self._takes_any(Kind.KWARGS):
            unknown = [name for name in keywords if name not in self._by_keyword]
            if unknown:
                return f"it has no parameter '{unknown[0]}'"
        for parameter in self.parameters:
            if parameter.has_default or parameter in filled or parameter.kind in (Kind.ARGS, Kind.KWARGS):
                continue
            named = parameter.kind is not Kind.POSITIONAL_ONLY and (parameter.name in keywords or double_star)
            placed = parameter.kind is not Kind.KEYWORD_ONLY and star
            if not named and not placed:
                return f"it needs '{parameter.name}'"
        return None

"""Reading the index. `data.json` has for each name what it was from which release on:
`{name: [[release, fact], ...]}`, where a fact is one of

- `{"is": name}`: another name for it;
- `{"class": {"callable": true, false or null, "methods": {...}, "attributes": {name: kinds}}}`;
- `{"function": {"takes": parameters, "keywords": names, "returns": kinds, "parts": [kinds], "sends": {name: role}}}`,
  as `OmniFunction` has them; what is empty is left out;
- null: it is gone.

Kinds are a list of class names, `type ` ahead of those that are meant themselves; null is "not known".
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

DATA = Path(__file__).with_name("data.json")


class Role(str, Enum):
    """What a call does with a tensor that it is given."""

    SENT = "sent"  # it is read and goes to other ranks; so is a list of tensors
    FILLED = "filled"  # it takes what comes: a copy made of it for the call would be thrown away with that
    BOTH = "both"  # read on one rank and filled on the others, or both on each


@dataclass(frozen=True)
class Kind:
    """An instance of a class, or (`is_class`) the class itself or a subclass of it."""

    name: str
    is_class: bool = False


Found = frozenset[Kind] | None  # None: not known, or not only these


@dataclass(frozen=True)
class OmniFunction:
    """A function or method of vllm-omni. `takes` are the parameters that can be given by position, without `self`."""

    takes: tuple[str, ...]
    keywords: tuple[str, ...]  # what can only be given by name; `**` for anything
    returns: Found = None
    parts: tuple[Found, ...] = ()  # of a tuple that it returns
    sends: tuple[tuple[str, Role], ...] = ()  # what it hands to a collective without making it contiguous

    def passed(self, call: ast.Call, parameter: str) -> ast.expr | None:
        """What a call gives for a parameter; None if nothing, or `*args` hide it."""
        for word in call.keywords:
            if word.arg == parameter:
                return word.value
        at = self.takes.index(parameter) if parameter in self.takes else len(call.args)
        hidden = any(isinstance(a, ast.Starred) for a in call.args[: at + 1])
        return call.args[at] if at < len(call.args) and not hidden else None


class OmniApi:
    """One release: the newest in the index that is not newer than the vLLM it has to run with."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self._facts = facts

    @classmethod
    def beside(cls, vllm: str) -> OmniApi:
        """The vllm-omni for a vLLM release: they carry the same minor number, and every second one is published."""
        fitting = [release for release in releases() if _key(release)[:2] <= _key(vllm)[:2]]
        return _release(fitting[-1]) if fitting else NOTHING

    def follow(self, name: str) -> str:
        """The name under which something is defined, for a name that re-exports it."""
        return str(self._facts.get(name, {}).get("is", name))

    def has_class(self, name: str) -> bool:
        return "class" in self._facts.get(name, {})

    def callable(self, name: str) -> bool | None:
        """Whether instances of a class and of its subclasses can be called; None if some can, or it is not known."""
        answer: bool | None = self._class(name).get("callable")
        return answer

    def attribute(self, name: str, attribute: str) -> Found:
        return _kinds(self._class(name).get("attributes", {}).get(attribute))

    def method(self, name: str, method: str) -> OmniFunction | None:
        return _function(self._class(name).get("methods", {}).get(method))

    def function(self, name: str) -> OmniFunction | None:
        return _function(self._facts.get(self.follow(name), {}).get("function"))

    def _class(self, name: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._facts.get(name, {}).get("class", {})
        return found


NOTHING = OmniApi({})


@cache
def _history() -> dict[str, list[list[Any]]]:
    return dict(json.loads(DATA.read_text(encoding="utf-8"))) if DATA.is_file() else {}


@cache
def releases() -> tuple[str, ...]:
    """Every indexed release, ascending."""
    return tuple(_history().get("", [[]])[0])


@cache
def _release(release: str) -> OmniApi:
    return OmniApi(facts_of(release))


def facts_of(release: str) -> dict[str, Any]:
    """What the index has for a release. What is gone there is as it was last: a file that still uses it means that."""
    known = [r for r in releases() if _key(r) <= _key(release)]
    found = {}
    for name, history in _history().items():
        states = [fact for since, fact in history if since in known and fact is not None] if name else []
        if states:
            found[name] = states[-1]
    return found


def _key(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))


def _function(fact: Mapping[str, Any] | None) -> OmniFunction | None:
    if fact is None:
        return None
    return OmniFunction(
        tuple(fact["takes"]),
        tuple(fact.get("keywords", ())),
        _kinds(fact.get("returns")),
        tuple(_kinds(part) for part in fact.get("parts", ())),
        tuple((name, Role(role)) for name, role in fact.get("sends", {}).items()),
    )


def _kinds(names: list[str] | None) -> Found:
    if names is None:
        return None
    return frozenset(Kind(name.removeprefix("type "), name.startswith("type ")) for name in names)

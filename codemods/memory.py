"""Answers that are asked for again and again: each is worked out once, and kept as long as what it is about."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

Memory = dict[Callable[..., Any], dict[tuple[Hashable, ...], Any]]


class Remembers(Protocol):
    """What answers are kept by: a project, a plan."""

    @property
    def memory(self) -> Memory: ...


Owner = TypeVar("Owner", bound=Remembers)
Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")


def remembered(function: Callable[Concatenate[Owner, Asked], Answer]) -> Callable[Concatenate[Owner, Asked], Answer]:
    """Ask `function` once for the same arguments (all positional), which must be hashable.

    Only for what follows from the files, the releases and the target alone: rules add to a plan while they ask. The
    answer is shared, so nobody may change it.
    """

    @wraps(function)
    def answer(owner: Owner, *asked: Asked.args, **none: Asked.kwargs) -> Answer:
        try:
            known = owner.memory[function]
        except KeyError:
            known = owner.memory[function] = {}
        try:
            return cast(Answer, known[asked])
        except KeyError:
            found = known[asked] = function(owner, *asked, **none)
            return found

    return cast("Callable[Concatenate[Owner, Asked], Answer]", answer)

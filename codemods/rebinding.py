"""What a call must change so that its arguments reach under one signature what they reach under another."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from codemods import calls
from codemods.vllm_api import Signature


@dataclass(frozen=True)
class Argument:
    """An argument of a call, and the parameter it is for."""

    place: int | str  # by position, or by keyword
    parameter: str
    value: ast.expr


@dataclass(frozen=True)
class Rebinding:
    """What has to change; nothing does if all three are empty."""

    gone: tuple[Argument, ...] = ()  # their parameter is gone
    named: tuple[Argument, ...] = ()  # to be passed by this keyword: the parameter has another place, or another name
    missing: tuple[str, ...] = ()  # parameters that must be given and are not

    def __bool__(self) -> bool:
        return bool(self.gone or self.named or self.missing)


def rebinding(
    call: ast.Call,
    olds: Iterable[Signature | None],
    new: Signature,
    settled: bool,
    renamed: Mapping[str, str] | None = None,
) -> Rebinding | None:
    """From the signature that the call was written for, one of `olds`, or `new` itself if `settled` says it may be.

    Where it fits several, the names of what is passed by position tell. `renamed` are parameters, old to new. None
    where nothing can be told: the call fits none, those it fits disagree, or `*x` hides what reaches what.
    """
    found = readings(call, olds, new, settled, renamed)
    return next(iter(found)) if len(found) == 1 else None


def readings(
    call: ast.Call,
    olds: Iterable[Signature | None],
    new: Signature,
    settled: bool,
    renamed: Mapping[str, str] | None = None,
) -> set[Rebinding | None]:
    """The same of each signature that it may have been written for."""
    candidates = {*olds, new} if settled else {*olds}
    fitting = {s: _spoken(call, s) for s in candidates if s is not None and calls.binds(s, call) is None}
    best = [signature for signature, score in fitting.items() if score == max(fitting.values())]
    if settled and new in best:
        return {Rebinding()}
    return {_rebinding(call, old, new, renamed or {}) for old in best}


def _spoken(call: ast.Call, signature: Signature) -> int:
    """How many positional arguments are named like the parameter they reach, less those named like another one."""
    names = {parameter.name for parameter in signature.parameters}
    score = 0
    for value, parameter in zip(call.args, signature.by_position):
        name = value.id if isinstance(value, ast.Name) else value.attr if isinstance(value, ast.Attribute) else None
        score += 1 if name == parameter.name else -1 if name in names else 0
    return score


def _rebinding(call: ast.Call, old: Signature, new: Signature, renamed: Mapping[str, str]) -> Rebinding | None:
    if any(isinstance(value, ast.Starred) for value in call.args) or len(call.args) > len(old.by_position):
        return None

    def now(parameter: str) -> str:
        return renamed[parameter] if parameter not in new and renamed.get(parameter, "") in new else parameter

    gone: list[Argument] = []
    named: list[Argument] = []
    places = [parameter.name for parameter in new.by_position]
    kept = 0
    for index, (value, parameter) in enumerate(zip(call.args, old.by_position)):
        argument = Argument(index, now(parameter.name), value)
        if not named and kept < len(places) and places[kept] == argument.parameter:
            kept += 1
        elif argument.parameter in new:
            named.append(argument)
        else:
            gone.append(argument)
    takes_any = any(parameter.kind.value == "kwargs" for parameter in new.parameters)
    for word in call.keywords:
        if word.arg is not None and word.arg not in new:
            argument = Argument(word.arg, now(word.arg), word.value)
            if argument.parameter in new:
                named.append(argument)
            elif not takes_any:
                gone.append(argument)
    given = {*places[:kept], *(a.parameter for a in named), *(k.arg for k in call.keywords if k.arg is not None)}
    hidden = any(word.arg is None for word in call.keywords)
    missing = () if hidden else tuple(p for p in new.required if p not in given)
    return Rebinding(tuple(gone), tuple(named), missing)

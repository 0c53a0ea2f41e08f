"""What the index knows of a place that is patched: whether each release has it, how it is called, who has a copy."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

from codemods.parsed_file import default_of
from codemods.project import AnyFunction
from codemods.target import release_key
from codemods.vision_attention import vocabulary as V
from codemods.vllm_api import Api, Kind, Parameter, Signature, releases, store
from codemods.vllm_api.api import UNSEEN

# Objects that vLLM makes when it is imported, and the class whose methods they have.
_INSTANCES = {"vllm.platforms.current_platform": "vllm.platforms.interface.Platform"}

_ROTARY = (*V.ROTARY_HELPERS, "ApplyRotaryEmb")


@dataclass(frozen=True)
class Place:
    """A dotted vLLM name in its parts at one release: the module, a name of it, a member of that."""

    module: str
    name: str = ""
    member: str = ""


def place(api: Api, target: str) -> Place | None:
    """The parts of a name, as far as the release has its modules; None if it has none of them."""
    for instance, cls in _INSTANCES.items():
        if target.startswith(f"{instance}."):
            target = cls + target.removeprefix(instance)
    parts = target.split(".")
    for size in range(len(parts), 0, -1):
        module = ".".join(parts[:size])
        if api.names(module) is not None:
            name, *member = parts[size:] or [""]
            return Place(module, name, ".".join(member))
    return None


def has(api: Api, target: str) -> bool | None:
    """Whether a release has what is patched; None where that cannot be known."""
    if UNSEEN.match(target):
        return None
    found = place(api, target)
    if found is None:
        return None
    if not found.name:
        return True
    named = api.has(found.module, found.name)
    if named is not True or not found.member:
        return named
    if "." in found.member:
        return None
    cls = f"{found.module}.{found.name}"
    members = api.members(cls)
    if found.member in members or found.member in api.enum_members(cls):
        return True
    # A class may have more than the index reads: what it got by assignment, or from bases outside of vLLM.
    return None if not members or found.member in ("forward", "__init__", "__call__") else False


def short(api: Api, target: str) -> str:
    """Without the module where a class or function says enough."""
    found = place(api, target)
    return target if found is None else ".".join(part for part in (found.name, found.member) if part) or target


@cache
def history(target: str) -> tuple[str, ...]:
    """The releases that have it."""
    return tuple(release for release in releases() if has(Api.of(release), target))


def gone_since(target: str, release: str) -> str | None:
    """The first release, up to a given one, that no longer has it; None if no earlier one ever had it."""
    earlier = [r for r in history(target) if release_key(r) <= release_key(release)]
    if not earlier:
        return None
    return next((r for r in releases() if release_key(r) > release_key(earlier[-1])), None)


def signature(api: Api, target: str) -> Signature | None:
    """How what is patched is called: a function or method, or a class's constructor."""
    found = place(api, target)
    if found is None or not found.name:
        return None
    return api.signature(".".join(part for part in (found.module, found.name, found.member) if part))


def copies(api: Api, target: str) -> tuple[str, ...]:
    """Modules that took the name by `from module import name`: what they have is not what is patched."""
    found = place(api, target)
    if found is None or not found.name or found.member:
        return ()
    origins, modules = {f"{found.module}.{found.name}"}, list(api.exported_from(found.name))
    taken: list[str] = []
    while more := [m for m in modules if m not in taken and (api.names(m) or {}).get(found.name) in origins]:
        taken += more
        origins |= {f"{m}.{found.name}" for m in more}
    return tuple(sorted(m for m in taken if m != found.module))


def taken_from(api: Api, module: str) -> dict[str, list[str]]:
    """The names that other modules of vLLM import from a module, and which modules do."""
    found: dict[str, list[str]] = {}
    for other in api.modules():
        for origin in (api.names(other) or {}).values():
            if other != module and origin.rpartition(".")[0] == module and not api.has_module(origin):
                found.setdefault(origin.rpartition(".")[2], []).append(other)
    return found


def moved_to(api: Api, module: str) -> str | None:
    """Where most of what a module defined is now."""
    before = next((Api.of(r) for r in reversed(releases()) if Api.of(r).names(module) is not None), None)
    names = [n for n, origin in (before.names(module) or {}).items() if origin == store.HERE] if before else []
    places = Counter(homes[0] for name in names if len(homes := api.where(name)) == 1)
    return places.most_common(1)[0][0] if places else None


def op(api: Api, target: str) -> str | None:
    """The layer of vLLM's that a device replaces by an out-of-tree op to reach what is patched; None if there is none.

    A patch of what vision attention is made of is a replacement of `MMEncoderAttention`; a class that is itself such
    a layer stands for itself.
    """
    names = target.split(".")
    if any(name in _ROTARY for name in names):
        return "ApplyRotaryEmb"
    if any(name in V.ATTENTION for name in names):
        return V.ENCODER_ATTENTION
    for version in (api.version, *reversed(history(target)[-1:])):
        found = place(Api.of(version), target)
        if found is None or not found.name:
            continue
        cls = f"{found.module}.{found.name}"
        if "forward_oot" in Api.of(version).members(cls) and "forward_native" in Api.of(version).members(cls):
            return found.name if version == api.version else None
        called = Api.of(version).call_signature(cls)
        if "Attention" in found.name and called is not None and "cu_seqlens" in called:
            return V.ENCODER_ATTENTION
    return None


# -- signatures ------------------------------------------------------------------------------------------------------


def of_function(
    node: AnyFunction | ast.Lambda, skip: int, without: frozenset[str] = frozenset(), named: Mapping[str, str] = {}
) -> Signature:
    """The signature of a function of the project, less its first parameters and those in `without`; those in `named`
    by their new names."""
    arguments = node.args
    found = [
        *(
            Parameter(a.arg, kind, _default(node, a))
            for kind, group in (
                (Kind.POSITIONAL_ONLY, arguments.posonlyargs),
                (Kind.POSITIONAL, arguments.args),
            )
            for a in group
        )
    ][skip:]
    if arguments.vararg:
        found.append(Parameter(arguments.vararg.arg, Kind.ARGS, False))
    found += [Parameter(a.arg, Kind.KEYWORD_ONLY, _default(node, a)) for a in arguments.kwonlyargs]
    if arguments.kwarg:
        found.append(Parameter(arguments.kwarg.arg, Kind.KWARGS, False))
    return Signature(tuple(replace(p, name=named.get(p.name, p.name)) for p in found if p.name not in without))


def _default(node: AnyFunction | ast.Lambda, parameter: ast.arg) -> bool:
    return default_of(node, parameter) is not None  # type: ignore[arg-type]  # a lambda has the same `args`


@dataclass(frozen=True)
class Misfit:
    """Why one function cannot stand in for another: what fails however it is called, and what fails in some calls."""

    always: tuple[str, ...] = ()
    sometimes: tuple[str, ...] = ()


def misfit(own: Signature, wanted: Signature) -> Misfit:
    """Hold the signature of a replacement against that of what it replaces."""
    if any(p.kind in (Kind.ARGS, Kind.KWARGS) for p in wanted.parameters):
        return Misfit()  # how it is called is not told by its parameters
    always: list[str] = []
    sometimes: list[str] = []
    has_args = any(p.kind is Kind.ARGS for p in own.parameters)
    has_kwargs = any(p.kind is Kind.KWARGS for p in own.parameters)
    placed = [p for p in own.parameters if p.kind in (Kind.POSITIONAL, Kind.POSITIONAL_ONLY)]
    names = {p.name for p in own.parameters}
    wanted_names = {p.name for p in wanted.parameters}
    stands_for: set[str] = set()
    for index, parameter in enumerate(wanted.parameters):
        name = parameter.name
        at_place = placed[index] if parameter.kind is not Kind.KEYWORD_ONLY and index < len(placed) else None
        if name in names:
            if at_place is not None and at_place.name != name and at_place.name in wanted_names:
                sometimes.append(f"{name} has another place")
        elif at_place is not None and at_place.name not in wanted_names and not at_place.has_default:
            stands_for.add(at_place.name)
            sometimes.append(f"{name} is called {at_place.name}")
        elif not has_kwargs and not (has_args and parameter.kind is not Kind.KEYWORD_ONLY):
            (sometimes if parameter.has_default else always).append(f"it takes no {name}")
    for parameter in own.parameters:
        free = parameter.has_default or parameter.kind in (Kind.ARGS, Kind.KWARGS)
        if not free and parameter.name not in wanted_names and parameter.name not in stands_for:
            always.append(f"it needs {parameter.name}")
    return Misfit(tuple(always), tuple(sometimes))


def spelled(items: tuple[str, ...]) -> Iterator[str]:
    """Reasons as clauses of one sentence, those of one beginning together."""
    groups: dict[str, list[str]] = {}
    for item in items:
        for start in ("it takes no ", "it needs "):
            if item.startswith(start):
                groups.setdefault(start, []).append(item.removeprefix(start))
                break
        else:
            groups.setdefault(item, [])
    for start, names in groups.items():
        yield f"{start}{', '.join(names)}"

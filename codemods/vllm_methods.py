"""Methods of vLLM's model classes that a plugin calls: on what it builds, inherits, or finds in what it inherits."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, replace

from codemods import calls
from codemods.memory import remembered
from codemods.parsed_file import parameters, self_attribute
from codemods.plan import FilePlan, Plan
from codemods.project import Class
from codemods.vllm_api import Api, Signature, releases
from codemods.vllm_classes import (
    ModelPart,
    are_in_reach,
    bases,
    is_super,
    may_be_imported,
    model_class,
    stands_for,
    wholes,
)
from codemods.vllm_contracts import contracts

Whole = Class | ModelPart
"""What a value may be an instance of."""


def signatures_then(part: ModelPart, call: ast.Call, signature: Callable[[Api], Signature | None]) -> list[Signature]:
    """The signatures in the releases that the file may be written for, or in all, if the call fits none of these: a
    file can be older in one place than in another."""
    for apis in (part.then, tuple(Api.of(release) for release in releases())):
        found = [one for api in apis if (one := signature(api)) is not None]
        if any(calls.binds(one, call) is None for one in found):
            return found
    return []


@dataclass(frozen=True)
class Method:
    """A method of one of vLLM's model classes; `name` is None for calling the instance itself."""

    part: ModelPart
    name: str | None

    def then(self, api: Api) -> Signature | None:
        return _signature_of(api, self.part.name, self.name)

    def now(self, api: Api) -> Signature | None:
        return _signature_of(api, self.part.home, self.name)

    def __str__(self) -> str:
        return self.part.short if self.name is None else f"{self.part.short}.{self.name}"


def _signature_of(api: Api, cls: str, method: str | None) -> Signature | None:
    return api.call_signature(cls) if method in (None, "__call__") else api.signature(f"{cls}.{method}")


@remembered
def methods_called(run: Plan, file: FilePlan, call: ast.Call) -> list[Method]:
    """The methods of vLLM's model classes that a call may reach; empty where it may reach anything else, such as what
    the plugin puts in a method's place."""
    found = _methods_called(run, file, call) if are_in_reach(run) else []
    return [] if any(is_patched(run, method.part, method.name or "forward") for method in found) else found


def is_patched(run: Plan, part: ModelPart, method: str) -> bool:
    """Whether a file of the run puts something of its own in the place of a method."""
    return not {f"{part.name}.{method}", f"{part.home}.{method}"}.isdisjoint(_patched(run))


@remembered
def _patched(run: Plan) -> frozenset[str]:
    return frozenset(patch.target for file in run.project.files for patch in run.patches.of(file))


def _methods_called(run: Plan, file: FilePlan, call: ast.Call) -> list[Method]:
    function = call.func
    owner = file.file.class_of(call)
    if isinstance(function, ast.Attribute) and owner is not None:
        here = Class(file.file, owner)
        if is_super(function, owner):
            known = run.project.callee(file.file, call) is not None or function.attr == "__init__"
            return [] if known else _of_base(run, here, function.attr)
        if isinstance(function.value, ast.Name) and function.value.id == "self":
            found = _of_base(run, here, function.attr)
            own = run.project.method(here, function.attr) or run.project.makers(file.file, function)
            if found and not own:
                return _reached(run, _held(run, file, function), None) or found
    held = _held(run, file, function)
    if held:
        return _reached(run, held, None)
    return _reached(run, _held(run, file, function.value), function.attr) if isinstance(function, ast.Attribute) else []


def _reached(run: Plan, holders: tuple[Whole, ...], name: str | None) -> list[Method]:
    """The methods that a call on instances of these classes reaches; empty if the project has one of them."""
    found: list[Method] = []
    for holder in holders:
        if isinstance(holder, ModelPart):
            found.append(Method(holder, name))
        elif run.project.method(holder, name or "forward") or _is_set(run, holder, name or "forward"):
            return []
        else:
            inherited = _of_base(run, holder, name or "forward")
            if not inherited:
                return []
            found += [replace(method, name=name) for method in inherited]
    return found


def _of_base(run: Plan, cls: Class, method: str) -> list[Method]:
    """The method as a class of the project inherits it from vLLM."""
    parts = bases(run, cls).models if not contracts(run, cls) else ()  # VA614 has the interfaces of whole models
    return [Method(part, method) for part in parts[:1] if any(method in api.members(part.name) for api in part.then)]


@remembered
def _held(run: Plan, file: FilePlan, value: ast.expr, steps: int = 5) -> tuple[Whole, ...]:
    """The classes, of the project or of vLLM's models, that a value is an instance of; empty if it may be anything
    else."""
    if isinstance(value, ast.Attribute) and may_be_imported(file.file, value):
        return ()
    makers = run.project.makers(file.file, value)
    found: list[tuple[Whole, ...]] = []
    if makers:
        found = [_named(run, run.of(home), made.func) for home, made in makers]
    elif steps:
        found = [_found_in(run, file, source, steps - 1) for source in run.project.sources(file.file, value)]
    return tuple(dict.fromkeys(one for several in found for one in several)) if all(found) else ()


def _named(run: Plan, file: FilePlan, name: ast.expr | None) -> tuple[Whole, ...]:
    """The class that an expression stands for."""
    own = run.project.class_named(file.file, name)
    part = model_class(run, file, run.project.vllm(file.file, name)) if own is None else None
    return tuple(found for found in (own, part) if found is not None)


def _found_in(run: Plan, file: FilePlan, value: ast.expr, steps: int) -> tuple[Whole, ...]:
    """The same of a parameter, by its annotation or its callers, or of an attribute that vLLM's constructors set."""
    if isinstance(value, ast.Attribute):
        own = isinstance(value.value, ast.Name) and value.value.id == "self"
        owner = file.file.class_of(value) if own else None
        holders = (Class(file.file, owner),) if owner else () if own else _held(run, file, value.value, steps)
        parts = [_part_of(run, file, holder, value.attr) for holder in holders]
        return tuple(part for part in parts if part is not None) if None not in parts else ()
    bound = file.file.bound(value.id, value) if isinstance(value, ast.Name) else []
    parameter = bound[0] if len(bound) == 1 and isinstance(bound[0], ast.arg) else None
    if parameter is None or parameter.annotation is not None:
        named = _named(run, file, parameter.annotation) if parameter is not None else ()
        return (*named, *(below for whole in named for below in _below(run, whole)))
    found = [_held(run, user, given, steps) for user, given in _passed_for(run, file, parameter)]
    return tuple(one for several in found for one in several) if all(found) else ()


@remembered
def _below(run: Plan, whole: Whole) -> tuple[Class, ...]:
    """The project's subclasses of a class."""
    if isinstance(whole, Class):
        return tuple(run.project.subclasses.get(whole.qualified, ()))
    return tuple(
        cls for cls in run.project.classes.values() if any(part.home == whole.home for part in bases(run, cls).models)
    )


@remembered
def _passed_for(run: Plan, file: FilePlan, parameter: ast.arg) -> list[tuple[FilePlan, ast.expr]]:
    """What a helper of the project's own is called with for a parameter; empty where that is not known of each call."""
    function = file.file.function(parameter)
    if function is None or parameter not in parameters(function):  # that of a lambda, or `*more`
        return []
    if function.name == "forward" or function.name.startswith("__"):  # called from elsewhere too
        return []
    found: list[tuple[FilePlan, ast.expr]] = []
    for user in run.project.files:
        for name in (*user.attributes.get(function.name, ()), *user.reads.get(function.name, ())):
            call = user.parents[name]
            reached = run.project.callee(user, call) if isinstance(call, ast.Call) and call.func is name else None
            if not isinstance(call, ast.Call) or reached is None or reached.node is not function:
                return []
            given = (reached.passed(call) or {}).get(parameter.arg)
            if given is None:
                return []
            found.append((run.of(user), given))
    return found


def _part_of(run: Plan, file: FilePlan, holder: Whole, attribute: str) -> ModelPart | None:
    """The one model class in an attribute that vLLM's own constructor sets, then and now."""
    homes = wholes(run, holder) if isinstance(holder, Class) else (holder,)
    places = [part for part in homes if any(attribute in api.members(part.name) for api in part.then)]
    if not places or _is_set(run, holder, attribute):
        return None
    then = {held for part in places for api in part.then if (held := api.held(part.name, attribute)) is not None}
    now = {run.api.held(part.home, attribute) for part in places}
    part = model_class(run, file, then.pop()) if len(then) == 1 else None
    home = now.pop() if len(now) == 1 else None
    if part is None or home is None or not {part.name, home}.isdisjoint(_patched(run)):
        return None
    return replace(part, home=home)


def _is_set(run: Plan, holder: Whole, attribute: str) -> bool:
    """Whether the project sets an attribute of a class, its bases or subclasses, or that of what it cannot tell."""
    setters = _setters(run).get(attribute)
    if setters is None or None in setters:
        return setters is not None
    if isinstance(holder, ModelPart):
        return any(holder.home in run.api.ancestry(home) for cls in setters if cls for home in stands_for(run, cls))
    return not setters.isdisjoint({*run.project.bases(holder), *run.project.subclasses.get(holder.qualified, ())})


@remembered
def _setters(run: Plan) -> dict[str, set[Class | None]]:
    """Attribute -> the classes that set it on self; None stands for whoever sets it on something else."""
    table: dict[str, set[Class | None]] = {}
    for file in run.project.files:
        for node in file.nodes[ast.Attribute]:
            assert isinstance(node, ast.Attribute)
            if isinstance(node.ctx, ast.Store):
                owner = file.class_of(node) if self_attribute(node) else None
                table.setdefault(node.attr, set()).add(Class(file, owner) if owner is not None else None)
    return table

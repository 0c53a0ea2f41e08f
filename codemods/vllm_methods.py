"""Methods of vLLM's model classes that a plugin calls: on what it builds, inherits, or finds in what it inherits."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, replace

from codemods import calls
from codemods.memory import remembered
from codemods.parsed_file import self_attribute
from codemods.plan import FilePlan, Plan
from codemods.project import Class
from codemods.vllm_api import Api, Signature, releases
from codemods.vllm_classes import ModelPart, are_in_reach, bases, is_super, model_class, wholes
from codemods.vllm_contracts import contracts


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
                return [Method(part, None) for part in _inherited(run, file, function)] or found
    held = _held(run, file, function)
    if not held and isinstance(function, ast.Attribute):
        return [Method(part, function.attr) for part in _held(run, file, function.value)]
    return [Method(part, None) for part in held]


def _of_base(run: Plan, cls: Class, method: str) -> list[Method]:
    """The method as a class of the project inherits it from vLLM."""
    parts = bases(run, cls).models if not contracts(run, cls) else ()  # VA614 has the interfaces of whole models
    return [Method(part, method) for part in parts[:1] if any(method in api.members(part.name) for api in part.then)]


def _held(run: Plan, file: FilePlan, value: ast.expr) -> list[ModelPart]:
    """The model classes that a value is an instance of; empty if it may be anything else."""
    makers = run.project.makers(file.file, value)
    if not makers:
        return _inherited(run, file, value)
    parts = [
        None
        if run.project.class_named(home, made.func)
        else model_class(run, run.of(home), run.project.vllm(home, made.func))
        for home, made in makers
    ]
    found = {part.name: part for part in parts if part is not None}
    return list(found.values()) if None not in parts else []


def _inherited(run: Plan, file: FilePlan, value: ast.expr) -> list[ModelPart]:
    """The same of attributes of self, or their items, that only a constructor of vLLM's sets."""
    owner = file.file.class_of(value)
    if owner is None or not wholes(run, cls := Class(file.file, owner)):
        return []
    names = {self_attribute(source) for source in run.project.sources(file.file, value)}
    found = [None if name is None else _part_of(run, file, cls, name) for name in names]
    return [part for part in found if part is not None] if None not in found else []


def _part_of(run: Plan, file: FilePlan, cls: Class, attribute: str) -> ModelPart | None:
    """The one model class in an attribute that vLLM's own constructor sets, then and now."""
    if _is_set(run, cls, attribute):
        return None
    places = [part for part in wholes(run, cls) if any(attribute in api.members(part.name) for api in part.then)]
    then = {held for part in places for api in part.then if (held := api.held(part.name, attribute)) is not None}
    now = {run.api.held(part.home, attribute) for part in places}
    part = model_class(run, file, then.pop()) if len(then) == 1 else None
    home = now.pop() if len(now) == 1 else None
    return replace(part, home=home) if part is not None and home is not None else None


def _is_set(run: Plan, cls: Class, attribute: str) -> bool:
    """Whether the project sets an attribute of a class, its bases or subclasses, or that of what it cannot tell."""
    setters = _setters(run).get(attribute)
    kin = {None, *run.project.bases(cls), *run.project.subclasses.get(cls.qualified, ())}
    return setters is not None and not setters.isdisjoint(kin)


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

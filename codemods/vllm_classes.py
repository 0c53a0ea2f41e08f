"""vLLM's own model classes in the hands of a plugin: which of them it builds, holds and is built on, then and now."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from codemods import moved_names
from codemods.memory import remembered
from codemods.parsed_file import FunctionNode, ParsedFile, dotted
from codemods.plan import FilePlan, Plan
from codemods.project import Class
from codemods.run_time_names import Value
from codemods.vllm_api import Api, releases
from codemods.vllm_api.api import PLAIN_BASES
from codemods.vllm_contracts import outside_bases

MODELS = ("vllm.model_executor.models.", "vllm.models.")
"""Where vLLM has its models."""

_MODULE = "torch.nn.Module"


@dataclass(frozen=True)
class ModelPart:
    """A module of one of vLLM's models, or a function, by its dotted name in the file, and at the target."""

    name: str
    home: str
    then: tuple[Api, ...]  # the releases that the file may be written for, and that have it

    @property
    def short(self) -> str:
        return self.name.rpartition(".")[2]


@dataclass(frozen=True)
class Bases:
    """What a class of the project is built on outside of the project."""

    models: tuple[ModelPart, ...]  # nearest first
    others: tuple[str, ...]  # dotted names of vLLM's other classes, as imported
    closed: bool  # there is nothing else of which it is not known what it brings

    def had(self, member: str) -> bool:
        """Whether a model class brought a member in a release that the file may be written for."""
        return any(member in api.members(part.name) for part in self.models for api in part.then)

    def has(self, api: Api, member: str) -> bool:
        """Whether anything brings it at the target."""
        return any(member in api.members(name) for name in [*(part.home for part in self.models), *self.others])


def model_class(run: Plan, file: FilePlan, name: str | None) -> ModelPart | None:
    """vLLM's model class of this dotted name; None if there is none, or not any more at the target."""
    return _part(run, file, name, _is_module)


def model_function(run: Plan, file: FilePlan, name: str | None) -> ModelPart | None:
    """The same of a function."""
    return _part(run, file, name, _is_function)


def _is_module(api: Api, name: str) -> bool:
    return _MODULE in api.ancestry(name)


def _is_function(api: Api, name: str) -> bool:
    return not api.ancestry(name) and api.signature(name) is not None


@remembered
def _part(run: Plan, file: FilePlan, name: str | None, kind: Callable[[Api, str], bool]) -> ModelPart | None:
    if name is None or not name.startswith(MODELS):
        return None
    module, _, last = name.rpartition(".")
    if module in run.project.by_module:
        return None
    then = _having(name, file.source, kind)
    home = moved_names.home(run, module, last) if then else None
    if home is None or not kind(run.api, f"{home.module}.{home.name}"):
        return None
    return ModelPart(name, f"{home.module}.{home.name}", then)


@cache
def _having(name: str, source: tuple[str, ...], kind: Callable[[Api, str], bool]) -> tuple[Api, ...]:
    apis = (Api.of(release) for release in source or releases())
    return tuple(api for api in apis if kind(api, name))


def written_for_target(run: Plan, file: FilePlan) -> bool:
    """Whether the file may be written for the target as it stands."""
    return not file.source or run.target.version in file.source


@remembered
def bases(run: Plan, cls: Class) -> Bases:
    """The model classes of vLLM that a class of the project is built on, through its bases inside the project."""
    models: list[ModelPart] = []
    others: list[str] = []
    closed = True
    for base in outside_bases(run, cls):
        found = model_class(run, run.of(base.file), base.vllm)
        if found is not None:
            models.append(found)
            above = run.api.ancestry(found.home)
            closed = closed and all(name.startswith("vllm.") or name in PLAIN_BASES for name in above)
        elif base.vllm is not None and run.api.ancestry(base.vllm):
            others.append(base.vllm)
        else:
            closed = closed and base.plain
    return Bases(tuple(models), tuple(others), closed)


@remembered
def stands_for(run: Plan, cls: Class) -> frozenset[str]:
    """The classes of vLLM's, at the target, whose instances run a class's methods: those it extends, and those that its
    methods are put into."""
    return frozenset(_patched_into(run, cls) | {part.home for part in bases(run, cls).models})


@remembered
def wholes(run: Plan, cls: Class) -> tuple[ModelPart, ...]:
    """The same classes, nearest base first."""
    file = run.of(cls.file)
    patched = (model_class(run, file, name) for name in sorted(_patched_into(run, cls)))
    return (*bases(run, cls).models, *(part for part in patched if part is not None))


def _patched_into(run: Plan, cls: Class) -> set[str]:
    """vLLM's classes that methods of a class are put into, as the patch names them."""
    return {
        patch.target.rpartition(".")[0]
        for user in run.project.files
        for patch in run.patches.of(user)
        if patch.value is not None and _is_method(run, cls, patch.value)
    }


def _is_method(run: Plan, cls: Class, value: Value) -> bool:
    """Whether what a patch puts somewhere is a method of a class, `Tower.__init__`."""
    if isinstance(value.node, FunctionNode):
        return value.file is cls.file and value.node in cls.node.body
    name = run.project.meaning(value.file, value.node) if isinstance(value.node, ast.Attribute) else None
    return name is not None and name.rpartition(".")[0] == cls.qualified


@remembered
def are_in_reach(run: Plan) -> bool:
    """Whether a file of the run imports anything by which it can name a model class of vLLM's: a cheap look."""
    return any(
        _leads_to_models(run, run.project.follow(imported.qualified))
        or run.project.missing_neighbour(file, imported.statement) is not None
        for file in run.project.files
        for imported in file.imports
    )


def _leads_to_models(run: Plan, name: str) -> bool:
    if name.startswith(MODELS):
        return name not in run.project.by_module and name.rpartition(".")[0] not in run.project.by_module
    return any(models.startswith(f"{name}.") for models in MODELS)


@remembered
def built_by(run: Plan, file: FilePlan, call: ast.Call) -> ModelPart | None:
    """The model class that a call builds, or that a subclass is built by in its constructor."""
    if not are_in_reach(run):
        return None
    function = call.func
    if may_be_imported(file.file, function):
        return model_class(run, file, run.project.vllm(file.file, function))
    owner = file.file.class_of(call)
    if owner is not None and is_super(function, owner, "__init__") and run.project.callee(file.file, call) is None:
        return next(iter(bases(run, Class(file.file, owner)).models), None)
    return None


def is_super(function: ast.expr, owner: ast.ClassDef, method: str | None = None) -> bool:
    """`super().method` inside a class, of any method if none is named. `super(Other, self)` passes bases over: no."""
    if not isinstance(function, ast.Attribute) or method not in (None, function.attr):
        return False
    if not isinstance(function.value, ast.Call) or dotted(function.value.func) != "super":
        return False
    return not function.value.args or dotted(function.value.args[0]) == owner.name


def may_be_imported(file: ParsedFile, function: ast.expr) -> bool:
    """A cheap look: whether the first name of an expression is one that an import binds."""
    name = (dotted(function) or "").partition(".")[0]
    return name in file.imported

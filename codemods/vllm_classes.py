"""vLLM's own model classes in the hands of a plugin: which of them it builds, holds and is built on, then and now."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from codemods import moved_names
from codemods.parsed_file import ParsedFile, dotted
from codemods.plan import FilePlan, Plan
from codemods.project import Class
from codemods.vllm_api import Api, releases

MODELS = ("vllm.model_executor.models.", "vllm.models.")
"""Where vLLM has its models."""

_MODULE = "torch.nn.Module"
_PLAIN = frozenset({_MODULE, "object", "abc.ABC", "typing.Generic", "typing.Protocol", "typing_extensions.Protocol"})
"""Bases from outside vLLM of which it is known what they bring."""


@dataclass(frozen=True)
class ModelClass:
    """A module of one of vLLM's models, by its dotted name where the file was written, and at the target."""

    name: str
    home: str
    then: tuple[Api, ...]  # the releases that the file may be written for, and that have the class

    @property
    def short(self) -> str:
        return self.name.rpartition(".")[2]


@dataclass(frozen=True)
class Bases:
    """What a class of the project is built on outside of the project."""

    models: tuple[ModelClass, ...]  # nearest first
    closed: bool  # there is nothing else of which it is not known what it brings


def model_class(run: Plan, file: FilePlan, name: str | None) -> ModelClass | None:
    """vLLM's model class of this dotted name; None if there is none, or not any more at the target."""
    if name is None or not name.startswith(MODELS):
        return None
    module, _, last = name.rpartition(".")
    if module in run.project.by_module:
        return None
    then = _having(name, file.source)
    home = moved_names.home(run, module, last) if then else None
    if home is None or _MODULE not in run.api.ancestry(f"{home.module}.{home.name}"):
        return None
    return ModelClass(name, f"{home.module}.{home.name}", then)


@cache
def _having(name: str, source: tuple[str, ...]) -> tuple[Api, ...]:
    apis = (Api.of(release) for release in source or releases())
    return tuple(api for api in apis if _MODULE in api.ancestry(name))


def written_for_target(run: Plan, file: FilePlan) -> bool:
    """Whether the file may be written for the target as it stands."""
    return not file.source or run.target.version in file.source


def bases(run: Plan, cls: Class) -> Bases:
    """The model classes of vLLM that a class of the project is built on, through its bases inside the project."""
    models: list[ModelClass] = []
    closed = True
    for here in run.project.bases(cls):
        for node in here.node.bases:
            if run.project.class_named(here.file, node) is not None:
                continue
            bare = node.value if isinstance(node, ast.Subscript) else node  # Generic[T]
            name = run.project.vllm(here.file, bare)
            found = model_class(run, run.of(here.file), name)
            if found is not None:
                models.append(found)
            elif name is None or name.startswith(MODELS):
                closed = closed and run.project.meaning(here.file, bare) in _PLAIN
    return Bases(tuple(models), closed)


def constructor_calls(run: Plan, file: FilePlan) -> Iterator[tuple[ast.Call, ModelClass]]:
    """Calls that build one of vLLM's model classes, and those by which a subclass has itself built."""
    for node in file.file.nodes[ast.Call]:
        assert isinstance(node, ast.Call)
        found = built_by(run, file, node)
        if found is not None:
            yield node, found


def built_by(run: Plan, file: FilePlan, call: ast.Call) -> ModelClass | None:
    function = call.func
    if _may_be_imported(file.file, function):
        return model_class(run, file, run.project.vllm(file.file, function))
    if is_super(function, "__init__") and run.project.callee(file.file, call) is None:
        owner = file.file.class_of(call)
        return next(iter(bases(run, Class(file.file, owner)).models), None) if owner is not None else None
    return None


def is_super(function: ast.expr, method: str | None = None) -> bool:
    """`super().method`; of any method if none is named."""
    return (
        isinstance(function, ast.Attribute)
        and method in (None, function.attr)
        and isinstance(function.value, ast.Call)
        and dotted(function.value.func) == "super"
    )


def _may_be_imported(file: ParsedFile, function: ast.expr) -> bool:
    """A cheap look: whether the first name of an expression is one that an import binds."""
    name = (dotted(function) or "").partition(".")[0]
    return any(imported.alias == name for imported in file.imports)

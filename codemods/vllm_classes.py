"""vLLM's own model classes in the hands of a plugin: which of them it builds, holds and is built on, then and now."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from codemods import moved_names
from codemods.memory import remembered
from codemods.parsed_file import FunctionNode, Import, ParsedFile, dotted, self_attribute
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
    """The model class that a call builds, itself or as a subclass that brings no constructor of its own, or that a
    subclass is built by in its constructor."""
    if not are_in_reach(run):
        return None
    function = _meant(run, file, call.args[0] if is_partial(run, file, call) else call.func)
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Call):
        owner = file.file.class_of(call)
        return _built_above(run, file, call, owner) if owner and is_super(function, owner, "__init__") else None
    own = run.project.class_named(file.file, function)
    if own is not None:
        return _constructor(run, own, run.project.bases(own))
    if may_be_imported(file.file, function):
        return model_class(run, file, run.project.vllm(file.file, function))
    return None


def received(run: Plan, file: FilePlan, call: ast.Call) -> ast.Call:
    """The arguments of such a call as they come to vLLM's constructor."""
    if is_partial(run, file, call):
        more = ast.keyword(None, ast.Dict([], []))  # what is passed later
        return ast.Call(call.args[0], call.args[1:], [*call.keywords, more])
    owner = file.file.class_of(call)
    if owner is not None and is_super(call.func, owner, "__init__"):
        chain = run.project.bases(Class(file.file, owner))[1:]
    else:
        own = run.project.class_named(file.file, _meant(run, file, call.func))
        chain = run.project.bases(own) if own is not None else ()
    kept = _kept_back(run, chain)
    return ast.Call(call.func, call.args, [k for k in call.keywords if k.arg not in kept]) if kept else call


def _meant(run: Plan, file: FilePlan, function: ast.expr) -> ast.expr:
    """What a name that is bound once, or an attribute that only the body of a class sets, stands for."""
    bound: list[ast.AST | Import] = []
    if isinstance(function, ast.Name) and function.id not in file.file.imported:
        bound = file.file.bound(function.id, function)
    elif (name := self_attribute(function)) and (owner := file.file.class_of(function)):
        cls = Class(file.file, owner)
        kin = [*run.project.bases(cls), *run.project.subclasses.get(cls.qualified, ())]
        if not any(isinstance(n.ctx, ast.Store) for f in run.project.files for n in f.attributes.get(name, ())):
            bound = [n for one in kin for n in one.file.writes.get(name, ()) if one.file.scope(n) is one.node]
    assign = file.file.parents.get(bound[0]) if len(bound) == 1 and isinstance(bound[0], ast.Name) else None
    if isinstance(assign, ast.Assign) and isinstance(assign.value, (ast.Name, ast.Attribute)):
        return assign.value if assign.targets == bound else function
    return function


def is_partial(run: Plan, file: FilePlan, call: ast.Call) -> bool:
    """`functools.partial(function, ...)`"""
    named = (dotted(call.func) or "").rpartition(".")[2] == "partial" and bool(call.args)
    return named and run.project.meaning(file.file, call.func) == "functools.partial"


def _built_above(run: Plan, file: FilePlan, call: ast.Call, owner: ast.ClassDef) -> ModelPart | None:
    """The model class that `super().__init__(...)` builds."""
    cls = Class(file.file, owner)
    if run.project.callee(file.file, call) is None:
        return next(iter(bases(run, cls).models), None)
    return _constructor(run, cls, run.project.bases(cls)[1:])


def _constructor(run: Plan, cls: Class, chain: tuple[Class, ...]) -> ModelPart | None:
    """The one model class whose constructor takes what is passed to that of a class, the first of a chain of bases."""
    base = bases(run, cls)
    if len({part.home for part in base.models}) != 1 or not base.closed:
        return None
    if any("__init__" in run.api.members(name) for name in base.others) or _kept_back(run, chain) is None:
        return None
    return base.models[0]


@remembered
def _kept_back(run: Plan, chain: tuple[Class, ...]) -> frozenset[str] | None:
    """The keywords that constructors of the project keep from what they otherwise hand on whole; None if any of them
    does more with it."""
    kept: set[str] = set()
    for cls in chain:
        makers = [f for f in cls.file.inside(cls.node, ast.FunctionDef) if f.name in ("__init__", "__new__")]
        makers = [f for f in makers if cls.file.class_of(f) is cls.node]
        if cls.node.decorator_list or cls.node.keywords or _is_set_from_outside(run, cls):
            return None
        if makers and (len(makers) > 1 or not _hands_on(makers[0], cls.node)):
            return None
        kept.update(argument.arg for maker in makers for argument in maker.args.kwonlyargs)
    return frozenset(kept)


def _hands_on(constructor: ast.FunctionDef, owner: ast.ClassDef) -> bool:
    """`def __init__(self, *args, ..., **kwargs): super().__init__(*args, **kwargs)`, which has no other use of them."""
    arguments = constructor.args
    if constructor.name != "__init__" or constructor.decorator_list or len(arguments.posonlyargs + arguments.args) != 1:
        return False
    stars = [argument.arg for argument in (arguments.vararg, arguments.kwarg) if argument is not None]
    for statement in constructor.body:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call) and is_super(call.func, owner, "__init__"):
            given = [a.value if isinstance(a, ast.Starred) else None for a in call.args]
            given += [k.value if k.arg is None else None for k in call.keywords]
            uses = [n.id for n in ast.walk(constructor) if isinstance(n, ast.Name) and n.id in stars]
            return [dotted(value) for value in given] == stars and len(uses) == len(stars)
    return False


def _is_set_from_outside(run: Plan, cls: Class) -> bool:
    """Whether the project puts a constructor into a class."""
    return any(
        isinstance(node.ctx, ast.Store) and run.project.class_named(file, node.value) == cls
        for file in run.project.files
        for node in file.attributes.get("__init__", ())
    )


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

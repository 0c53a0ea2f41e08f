"""VA614: calls of vLLM's functions, of its helper classes, and of what a class inherits from vLLM's interfaces."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from codemods import calls
from codemods import contract_remedies as remedies
from codemods import edits as E
from codemods import vllm_contracts as contracts
from codemods.findings import Severity
from codemods.parsed_file import dotted, self_attribute, spelled
from codemods.plan import FilePlan, Plan
from codemods.project import Class
from codemods.rebinding import Argument, Rebinding, rebinding
from codemods.rule import Example, Rule
from codemods.vision_attention import vocabulary as V
from codemods.vllm_api import Signature

_BEFORE = """\
from torch import nn
from vllm.compilation.decorators import support_torch_compile
from vllm.model_executor.models.interfaces_base import default_pooling_type
from vllm.model_executor.models.vision import resolve_visual_encoder_outputs


@default_pooling_type("CLS")
@support_torch_compile(dynamic_arg_dims={"x": 0}, shape_invariants=None)
class Tower(nn.Module):
    def forward(self, x):
        outputs = self.encoder(x)
        return resolve_visual_encoder_outputs(outputs, [-2], self.norm, 24)
"""

_AFTER = """\
from torch import nn
from vllm.compilation.decorators import support_torch_compile
from vllm.model_executor.models.interfaces_base import default_pooling_type
from vllm.model_executor.models.vision import resolve_visual_encoder_outputs


@default_pooling_type(seq_pooling_type="CLS")
@support_torch_compile(dynamic_arg_dims={"x": 0})
class Tower(nn.Module):
    def forward(self, x):
        outputs = self.encoder(x)
        return resolve_visual_encoder_outputs(outputs, select_layers=[-2], post_layer_norm=self.norm, max_possible_layers=24)
"""  # noqa: E501  the rewritten call stays on its line

_REFUSED = """\
from vllm.model_executor.layers.linear import ColumnParallelLinear


def gates(width: int) -> ColumnParallelLinear:
    return ColumnParallelLinear(width, 2 * width, output_sizes=[width, width])
"""


# handled where they are understood: by the rules of vision attention
_OWNED = {
    V.GET_BACKEND,
    V.GET_FLASH,
    V.UPSTREAM_FA,
    V.ENCODER_ATTENTION,
    V.MULTI_HEAD_ATTENTION,
    *V.WRAPPERS,
    "get_rope",
}


@dataclass(frozen=True)
class Called:
    """What a call calls: as the code names it, and its signature in the releases before the target, and there."""

    name: str
    olds: tuple[Signature, ...]
    new: Signature | None  # None: it is gone


def plan(run: Plan) -> None:
    for file in run.open_files:
        edited = {edit.call for edit in file.edits if isinstance(edit, (E.RemoveArgument, E.SetArgument))}
        renamed = {edit.place for edit in file.edits if isinstance(edit, E.Rename)}
        for node in file.file.nodes[ast.Call]:
            assert isinstance(node, ast.Call)
            called = _called(run, file, node)
            if called is None or file.gone(node) or _told(file, node):
                continue
            if E.Ref.of(node) not in edited and E.Ref.of(node.func) not in renamed:
                _plan_call(run, file, node, called)


def _told(file: FilePlan, call: ast.Call) -> bool:
    ref = E.Ref.of(call)
    return any(place.contains(ref) and place.kind == "Call" for place in file.refused)


# -- what is called ----------------------------------------------------------------------------------------------------


def _called(run: Plan, file: FilePlan, call: ast.Call) -> Called | None:
    function = call.func
    if isinstance(function, ast.Attribute):
        inherited = _inherited(run, file, function)
        if inherited is not None:
            return inherited
    if spelled(function) in _OWNED:
        return None
    first = (dotted(function) or "").partition(".")[0]
    if first not in file.file.imported:
        return None
    name = run.project.vllm(file.file, function)
    if name is None or _is_project(run, name) or _is_module_class(run, name):
        return None
    home = contracts.home(run, name)
    new = run.api.signature(home) if home is not None else None
    if new is None:
        return None
    olds = (api.signature(there) for api, there in contracts.before(run, name))
    return Called(name.rpartition(".")[2], tuple(old for old in olds if old is not None), new)


def _is_project(run: Plan, name: str) -> bool:
    return name.rpartition(".")[0] in run.project.by_module


def _is_module_class(run: Plan, name: str) -> bool:
    """Whether a name is one of the parts that vLLM's models are built of: those are another rule's."""
    return name.startswith(("vllm.model_executor.models.", "vllm.models.")) and any(
        "torch.nn.Module" in api.ancestry(there) for api, there in contracts.before(run, name)
    )


def _inherited(run: Plan, file: FilePlan, function: ast.Attribute) -> Called | None:
    """A method that the class has from an interface of vLLM, called on self or by super()."""
    owner = file.file.class_of(function)
    by_super = isinstance(function.value, ast.Call) and dotted(function.value.func) == "super"
    if owner is None or not (by_super or self_attribute(function) is not None):
        return None
    cls = Class(file.file, owner)
    own = list(run.project.bases(cls))[1 if by_super else 0 :]
    bases = contracts.contracts(run, cls)
    if not bases or not contracts.heritage(run, cls).closed or any(function.attr in _binds(c) for c in own):
        return None
    name = f"super().{function.attr}" if by_super else f"self.{function.attr}"
    for base in bases:
        new = _method(run, base, function.attr)
        olds = tuple(_olds(run, base, function.attr))
        if new is not None or olds:
            lost = new is None and contracts.lost(run, bases, function.attr) is not None
            return Called(name, olds, new) if new is not None or lost else None
    return None


def _binds(cls: Class) -> set[str]:
    """What a class statement, and the methods in it, set on an instance."""
    names = {n.name for n in cls.node.body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))}
    for node in cls.file.below(cls.node):
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
    return names


def _method(run: Plan, base: str, method: str) -> Signature | None:
    home = contracts.home(run, base)
    if home is None:
        return None
    return run.api.signature(home if method == "__init__" else f"{home}.{method}")


def _olds(run: Plan, base: str, method: str) -> Iterator[Signature]:
    for api, name in contracts.before(run, base):
        found = api.signature(name if method == "__init__" else f"{name}.{method}")
        if found is not None:
            yield found


# -- what becomes of the call ------------------------------------------------------------------------------------------


def _plan_call(run: Plan, file: FilePlan, call: ast.Call, called: Called) -> None:
    if called.new is not None and calls.binds(called.new, call) is None:
        return
    if not any(calls.binds(old, call) is None for old in called.olds):
        return  # it never did as vLLM wanted: nothing is known of it
    if called.new is None:
        told = remedies.remedy(remedies.MEMBERS, called.name.rpartition(".")[2], run.target.version)
        remedy = told.text if told is not None else "See what the class that it was inherited from has in its place."
        _tell(file, call, f"{called.name} is not inherited from vLLM {run.target.version}", remedy)
        return
    change = rebinding(call, called.olds, called.new, False, remedies.RENAMED_PARAMETERS.get(called.name))
    if change is None or change.missing or not all(_may_drop(called, a) for a in change.gone):
        why = calls.binds(called.new, call)
        message = f"this call of {called.name} does not fit vLLM {run.target.version}: {why}"
        _tell(file, call, message, _remedy(run, called, change))
        return
    ref = E.Ref.of(call)
    message = f"{called.name} is called as vLLM {run.target.version} wants it"
    edits: list[E.Edit] = [E.SetArgument(ref, a.place, a.parameter) for a in change.named]
    file.rewrite(RULE, call, message, edits)
    for argument in change.gone:
        file.add(E.RemoveArgument(ref, argument.place))
        file.removed.append(E.Ref.of(argument.value))


def _may_drop(called: Called, argument: Argument) -> bool:
    return (called.name, argument.parameter) in remedies.DROPPED


def _remedy(run: Plan, called: Called, change: Rebinding | None) -> str:
    for argument in change.gone if change is not None else ():
        found = remedies.ARGUMENTS.get((called.name, argument.parameter), ())
        told = remedies.remedy({"": found}, "", run.target.version)
        if told is not None:
            return told.text
    return f"Call it as {called.name}{called.new}."


def _tell(file: FilePlan, call: ast.Call, message: str, remedy: str) -> None:
    file.find(RULE, call, Severity.ERROR, message, remedy)


RULE = Rule(
    code="VA614",
    name="outdated-calls",
    summary="Calls of vLLM's functions, helper classes and inherited methods are given the arguments of the target.",
    why=(
        "A call that an older vLLM took and the target does not take is a TypeError when it is made. An argument "
        "whose parameter has another place or another name is passed by keyword, one that vLLM has no need of is taken "
        "out. For the rest the report says why the call does not fit, and what to write."
    ),
    follows="the signatures of vLLM's functions and classes at each release, as the index has them",
    names=frozenset(),
    plan=plan,
    examples=(
        Example(before=_BEFORE, after=_AFTER, source="0.11.0"),
        Example(before=_REFUSED, after=_REFUSED, refused=True),
    ),
)

"""VA613: methods that vLLM calls with other arguments than they take."""

from __future__ import annotations

import ast

from codemods import contract_remedies as remedies
from codemods import edits as E
from codemods import vllm_contracts as contracts
from codemods.embed_methods import RENAMED
from codemods.findings import Severity
from codemods.parsed_file import FunctionNode, default_of, dotted
from codemods.plan import FilePlan, Plan
from codemods.project import AnyFunction, Class
from codemods.rule import Example, Rule
from codemods.vllm_api import Kind, Parameter, Signature

_BEFORE = """\
from collections.abc import Mapping

from vllm.multimodal.profiling import BaseDummyInputsBuilder


class CaptionDummyInputs(BaseDummyInputsBuilder):
    def get_dummy_text(self, mm_counts: Mapping[str, int]) -> str:
        return "<image>" * mm_counts.get("image", 0)

    def get_dummy_mm_data(self, seq_len: int, mm_counts: Mapping[str, int]):
        return {"image": self._get_dummy_images(width=336, height=336, num_images=mm_counts.get("image", 0))}
"""

_AFTER = """\
from collections.abc import Mapping

from vllm.config.multimodal import BaseDummyOptions
from vllm.multimodal.processing import BaseDummyInputsBuilder


class CaptionDummyInputs(BaseDummyInputsBuilder):
    def get_dummy_text(self, mm_counts: Mapping[str, int]) -> str:
        return "<image>" * mm_counts.get("image", 0)

    def get_dummy_mm_data(self, seq_len: int, mm_counts: Mapping[str, int], mm_options: Mapping[str, BaseDummyOptions] | None = None):
        return {"image": self._get_dummy_images(width=336, height=336, num_images=mm_counts.get("image", 0))}
"""  # noqa: E501  the new parameter stays on the line

_POSITIONS = """\
from torch import nn
from vllm.model_executor.models.interfaces import SupportsMRoPE


class CaptionModel(nn.Module, SupportsMRoPE):
    def get_mrope_input_positions(self, input_tokens, hf_config, image_grid_thw, video_grid_thw):
        return self.positions(input_tokens, image_grid_thw), 0
"""

_HANDLED = frozenset({name for method in RENAMED for name in (method.old, method.new)})


def plan(run: Plan) -> None:
    for file in run.open_files:
        for node in file.file.class_nodes:
            bases = contracts.contracts(run, Class(file.file, node))
            for statement in node.body if bases else ():
                if isinstance(statement, FunctionNode) and not file.gone(statement):
                    if statement.name not in _HANDLED and statement.name != "__init__":
                        _plan_method(run, file, node, bases, statement)


def _plan_method(run: Plan, file: FilePlan, cls: ast.ClassDef, bases: tuple[str, ...], function: AnyFunction) -> None:
    own = signature_of(file, function)
    base = next((b for b in bases if contracts.signature(run, b, function.name) is not None), None)
    called = contracts.signature(run, base, function.name) if base is not None else None
    if own is None or base is None or called is None or _fits(own, called):
        return
    olds = [s for api, name in contracts.before(run, base) if (s := api.signature(f"{name}.{function.name}"))]
    if not any(_fits(own, old) or _fits(own, _needed(old)) for old in olds):
        return  # it never was as vLLM's: nothing is known of what it is for
    if _fits(own, _needed(called)) and contracts.reads(run, function.name):
        return  # a helper that the project calls itself, as it takes it
    new = [p.name for p in called.parameters if p.name not in own]
    added = [p for p in remedies.IGNORABLE if p.method == function.name and p.name in new]
    more = (*own.parameters, *(Parameter(p.name, Kind.POSITIONAL, True) for p in added))
    if len(added) == len(new) and _fits(Signature(more), called):
        _add(file, function, added)
        return
    told = remedies.remedy(remedies.METHODS, function.name, run.target.version)
    file.find(
        RULE,
        function,
        Severity.ERROR,
        f"{function.name} of {cls.name} is called as {function.name}{called} by vLLM {run.target.version}",
        told.text
        if told is not None
        else f"Take these parameters, as {contracts.home(run, base)}.{function.name} does.",
        covers=contracts.head(function),
    )


def _add(file: FilePlan, function: AnyFunction, parameters: list[remedies.Parameter]) -> None:
    for parameter in parameters:
        knows = any(i.alias == "Mapping" for i in file.file.imports)
        edits: list[E.Edit] = [E.AddImport(*remedies.DUMMY_OPTIONS)] if knows else []
        annotation = parameter.annotation if knows else "dict | None"
        edits.append(E.AddParameter(E.Ref.of(function), parameter.name, annotation, parameter.default))
        file.rewrite(RULE, function, f"{function.name} takes {parameter.name}", edits)
        file.inserted.append((E.Ref.of(function.body[0]), remedies.DUMMY_OPTIONS[1])) if knows else None


def signature_of(file: FilePlan, function: AnyFunction) -> Signature | None:
    """How a method is called on an instance, less what other rules take out; None where decorators may have changed
    that."""
    decorators = [dotted(d) for d in function.decorator_list]
    if any(d not in ("classmethod", "staticmethod") for d in decorators):
        return None
    arguments = function.args
    found: list[Parameter] = []
    for group, kind in (
        (arguments.posonlyargs, Kind.POSITIONAL_ONLY),
        (arguments.args, Kind.POSITIONAL),
        ([arguments.vararg] if arguments.vararg else [], Kind.ARGS),
        (arguments.kwonlyargs, Kind.KEYWORD_ONLY),
        ([arguments.kwarg] if arguments.kwarg else [], Kind.KWARGS),
    ):
        for argument in group:
            variable = kind in (Kind.ARGS, Kind.KWARGS)
            found.append(Parameter(argument.arg, kind, not variable and default_of(function, argument) is not None))
    ref = E.Ref.of(function)
    kept = [p for p in found if E.RemoveParameter(ref, p.name) not in file.edits]
    return Signature(tuple(kept if "staticmethod" in decorators else kept[1:]))


def _fits(own: Signature, called: Signature) -> bool:
    """Whether a method takes a call by a signature: its parameters by place, and none under another's name."""
    keywords = [p.name for p in called.parameters if p.kind is Kind.KEYWORD_ONLY]
    if own.binds(len(called.by_position), keywords) is not None:
        return False
    names = [p.name for p in called.by_position]
    return all(mine.name == name or mine.name not in names for mine, name in zip(own.by_position, names))


def _needed(called: Signature) -> Signature:
    return Signature(tuple(p for p in called.parameters if not p.has_default))


RULE = Rule(
    code="VA613",
    name="outdated-overrides",
    summary="A method that vLLM calls with other arguments than it takes gets the parameter, or is reported.",
    why=(
        "vLLM calls the methods of models, processors and dummy inputs with the arguments of its own interfaces, which "
        "change from release to release. A method that took what an older release passed, and does not take what the "
        "target passes, fails when it is called. A parameter that may be left unread is added; for the rest the report "
        "says what is passed now, and where the former arguments are to be found."
    ),
    follows="the signatures of vLLM's interfaces at each release, as the index has them",
    names=frozenset(),
    plan=plan,
    examples=(
        Example(before=_BEFORE, after=_AFTER, source="0.11.0"),
        Example(before=_POSITIONS, after=_POSITIONS, source="0.11.0", refused=True),
    ),
)

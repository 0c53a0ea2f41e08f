"""VA619: the mapping of expert weights is asked for as the target asks: with the model, from a function of its own."""

from __future__ import annotations

import ast

from codemods import calls, import_moves
from codemods import edits as E
from codemods.findings import Severity
from codemods.plan import FilePlan, Plan
from codemods.rule import Example, Rule
from codemods.vllm_api import Signature

_METHOD = "make_expert_params_mapping"
_PACKAGE = "vllm.model_executor.layers.fused_moe"
_FUNCTION = "fused_moe_make_expert_params_mapping"

_BEFORE = """\
from torch import nn
from vllm.model_executor.layers.fused_moe import FusedMoE


class Model(nn.Module):
    def get_expert_mapping(self):
        return FusedMoE.make_expert_params_mapping(
            ckpt_gate_proj_name="gate_proj",
            ckpt_down_proj_name="down_proj",
            ckpt_up_proj_name="up_proj",
            num_experts=self.config.num_experts,
        )
"""

_AFTER = """\
from torch import nn
from vllm.model_executor.layers.fused_moe import fused_moe_make_expert_params_mapping


class Model(nn.Module):
    def get_expert_mapping(self):
        return fused_moe_make_expert_params_mapping(
            ckpt_gate_proj_name="gate_proj",
            ckpt_down_proj_name="down_proj",
            ckpt_up_proj_name="up_proj",
            num_experts=self.config.num_experts,
            model=self,
        )
"""


def plan(run: Plan) -> None:
    for file in run.open_files:
        for function in file.file.attributes.get(_METHOD, ()):
            call = file.file.parents[function]
            if isinstance(call, ast.Call) and call.func is function and not file.gone(call):
                meaning = run.project.vllm(file.file, function, function) or ""
                if meaning.startswith(_PACKAGE) and meaning.endswith(f".FusedMoE.{_METHOD}"):
                    _plan_call(run, file, call, meaning)


def _plan_call(run: Plan, file: FilePlan, call: ast.Call, meaning: str) -> None:
    module, _, owner = meaning.rpartition(".")[0].rpartition(".")
    stays = run.api.has(module, owner) and run.api.signature(meaning) is not None
    signature = run.api.signature(meaning if stays else f"{_PACKAGE}.{_FUNCTION}")
    if signature is None:
        return
    edits: list[E.Edit] = []
    if "model" in signature and not _gives_model(signature, call):
        model = _module(file, call)
        if call.args or model is None or any(k.arg is None for k in call.keywords):
            message = f"{_METHOD} takes the model as its first argument in vLLM {run.target.version}"
            file.find(
                RULE, call, Severity.ERROR, message, "Pass the module that holds the experts ahead of the others."
            )
            return
        edits.append(E.SetArgument(E.Ref.of(call), "model", "model", model))
    if not stays and import_moves.is_free(file.file, _FUNCTION, _FUNCTION):
        edits += [E.ReplaceExpression(E.Ref.of(call.func), _FUNCTION), E.AddImport(_PACKAGE, _FUNCTION)]
    if edits:
        name = _METHOD if stays else _FUNCTION
        file.rewrite(RULE, call, f"the mapping of expert weights comes from {name}, which is given the model", edits)


def _gives_model(signature: Signature, call: ast.Call) -> bool:
    """Whether a call fits as it is, and what stands where the model is taken is no name of weights."""
    named = any(isinstance(argument, ast.Constant) for argument in call.args[:1])
    return not named and calls.binds(signature, call) is None


def _module(file: FilePlan, call: ast.Call) -> str | None:
    """What a method calls its instance; None outside of methods."""
    function = file.file.function(call)
    if function is None or not isinstance(file.file.parents[function], ast.ClassDef):
        return None
    static = any(isinstance(d, ast.Name) and d.id in ("staticmethod", "classmethod") for d in function.decorator_list)
    return function.args.args[0].arg if function.args.args and not static else None


RULE = Rule(
    code="VA619",
    name="expert-mapping",
    summary="The mapping of expert weights is asked for with the model, and from its function where FusedMoE is gone.",
    why=(
        "FusedMoE.make_expert_params_mapping took the model as a first argument from 0.14 on; with FusedMoE it went in "
        "0.27, and fused_moe_make_expert_params_mapping gives the same. The model is asked for the names of its layers "
        "alone: a method that maps the weights of its own module passes that module, as vLLM's models do."
    ),
    follows="vLLM 0.14.0 (model), 0.27.0 (FusedMoE dissolved)",
    names=frozenset({_METHOD}),
    plan=plan,
    review="the module that the method belongs to must be the one that holds the experts",
    examples=(Example(before=_BEFORE, after=_AFTER),),
)

"""VA652: an op that derives from CustomOp passes enforce_enable by keyword."""

from __future__ import annotations

import ast

from codemods import edits as E
from codemods.parsed_file import dotted
from codemods.plan import FilePlan, Plan
from codemods.rule import Example, Rule
from codemods.vision_attention.out_of_tree import CUSTOM_OP

_NAME = "enforce_enable"

_BEFORE = """\
from vllm.model_executor.custom_op import CustomOp


@CustomOp.register("device_norm")
class DeviceNorm(CustomOp):
    def __init__(self, size: int) -> None:
        super().__init__(True)
        self.size = size
"""


def plan(run: Plan) -> None:
    signature = run.api.signature(CUSTOM_OP)
    if signature is None or _NAME not in signature or signature.binds(1, ()) is None:
        return
    for file in run.open_files:
        if "CustomOp" in file.file.text:
            for call in file.file.nodes[ast.Call]:
                assert isinstance(call, ast.Call)
                _plan_call(run, file, call)


def _plan_call(run: Plan, file: FilePlan, call: ast.Call) -> None:
    cls = file.file.class_of(call)
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "__init__" or cls is None or not call.args:
        return
    owner = call.func.value
    by_name = run.project.vllm(file.file, owner, owner) == CUSTOM_OP
    by_super = isinstance(owner, ast.Call) and dotted(owner.func) == "super" and _derives(run, file, cls)
    given = call.args[1:] if by_name else call.args
    if not (by_name or by_super) or len(given) != 1 or isinstance(given[0], ast.Starred):
        return
    arguments = [file.file.written(argument) for argument in call.args[:-1]]
    arguments.append(f"{_NAME}={file.file.written(given[0])}")
    arguments += [f"{k.arg}={file.file.written(k.value)}" if k.arg else ast.unparse(k) for k in call.keywords]
    code = f"{file.file.written(call.func)}({', '.join(arguments)})"
    message = f"{cls.name}: CustomOp takes {_NAME} by keyword"
    file.rewrite(RULE, call, message, [E.ReplaceExpression(E.Ref.of(call), code)])


def _derives(run: Plan, file: FilePlan, cls: ast.ClassDef) -> bool:
    """Whether the class behind `super()` is CustomOp itself."""
    return bool(cls.bases) and run.project.vllm(file.file, cls.bases[0]) == CUSTOM_OP


RULE = Rule(
    code="VA652",
    name="custom-op-keyword",
    summary="An op that derives from CustomOp passes enforce_enable by keyword.",
    why=(
        "CustomOp of 0.13 and 0.14 took enforce_enable by position. From 0.15 on its parameters are keyword-only, and "
        "the old call is a TypeError as soon as the op is built."
    ),
    follows="vLLM 0.15.0",
    names=frozenset({"CustomOp"}),
    plan=plan,
    examples=(Example(before=_BEFORE, after=_BEFORE.replace("(True)", "(enforce_enable=True)"), source="0.14"),),
)

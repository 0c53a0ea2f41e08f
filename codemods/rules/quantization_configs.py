"""VA617: configurations of GPTQ and AWQ that were two classes each are asked for as one."""

from __future__ import annotations

import ast

from codemods import edits as E
from codemods.findings import Severity
from codemods.import_moves import is_free
from codemods.plan import FilePlan, Plan
from codemods.rule import Example, Rule

_LAYERS = "vllm.model_executor.layers.quantization"

# What each was, and what it is; each holds where the old one is gone and the new one is there. vLLM 0.22 and 0.24.
_MERGED = {
    (f"{_LAYERS}.gptq", "GPTQConfig"): (f"{_LAYERS}.auto_gptq", "AutoGPTQConfig"),
    (f"{_LAYERS}.gptq_marlin", "GPTQMarlinConfig"): (f"{_LAYERS}.auto_gptq", "AutoGPTQConfig"),
    (f"{_LAYERS}.awq", "AWQConfig"): (f"{_LAYERS}.auto_awq", "AutoAWQConfig"),
    (f"{_LAYERS}.awq_marlin", "AWQMarlinConfig"): (f"{_LAYERS}.auto_awq", "AutoAWQConfig"),
}

_BEFORE = """\
from vllm.model_executor.layers.quantization import QuantizationConfig
from vllm.model_executor.layers.quantization.awq import AWQConfig
from vllm.model_executor.layers.quantization.gptq import GPTQConfig
from vllm.model_executor.layers.quantization.gptq_marlin import GPTQMarlinConfig


def of_tower(config: QuantizationConfig) -> QuantizationConfig | None:
    if isinstance(config, (GPTQConfig, GPTQMarlinConfig)) or isinstance(config, AWQConfig):
        return None
    return config
"""

_AFTER = """\
from vllm.model_executor.layers.quantization import QuantizationConfig
from vllm.model_executor.layers.quantization.auto_awq import AutoAWQConfig
from vllm.model_executor.layers.quantization.auto_gptq import AutoGPTQConfig


def of_tower(config: QuantizationConfig) -> QuantizationConfig | None:
    if isinstance(config, AutoGPTQConfig) or isinstance(config, AutoAWQConfig):
        return None
    return config
"""


def plan(run: Plan) -> None:
    for file in run.open_files:
        for statement in file.file.nodes[ast.ImportFrom]:
            assert isinstance(statement, ast.ImportFrom)
            for alias in statement.names:
                old = (file.file.absolute(statement), alias.name)
                new = _MERGED.get(old)
                if new is not None and run.api.has(*old) is False and run.api.has(*new):
                    _plan_import(file, statement, alias, new)


def _plan_import(file: FilePlan, statement: ast.ImportFrom, alias: ast.alias, new: tuple[str, str]) -> None:
    module, name = new
    uses = file.file.reads.get(alias.name, [])
    if alias.asname or not isinstance(file.file.parents[statement], ast.Module) or not is_free(file.file, name, name):
        return
    if not all(file.file.in_annotation(use) or _is_asked(file, use) for use in uses):
        return  # a use of a class that is gone: the import is reported
    edits: list[E.Edit] = [E.RemoveImport(E.Ref.of(statement), alias.name), E.AddImport(module, name)]
    message = f"{alias.name} is part of {name}"
    file.rewrite(RULE, statement, message, edits)
    for use in uses:
        above = file.file.parents[use]
        if isinstance(above, ast.Tuple) and _names(file, above.elts) == [name] * len(above.elts):
            edit = E.ReplaceExpression(E.Ref.of(above), name)
            if edit not in file.edits:
                file.rewrite(RULE, use, message, [edit])
        else:
            file.rewrite(RULE, use, message, [E.ReplaceExpression(E.Ref.of(use), name)])


def _is_asked(file: FilePlan, use: ast.Name) -> bool:
    """Whether a class stands in isinstance, alone or among others."""
    above = file.file.parents[use]
    inner: ast.AST = use
    if isinstance(above, ast.Tuple):
        inner, above = above, file.file.parents[above]
    named = isinstance(above, ast.Call) and isinstance(above.func, ast.Name)
    return named and above.func.id == "isinstance" and inner in above.args[1:]  # type: ignore[attr-defined]


def _names(file: FilePlan, elements: list[ast.expr]) -> list[str | None]:
    """The new names of classes in a tuple."""
    found: list[str | None] = []
    for element in elements:
        imported = file.file.bound(element.id, element) if isinstance(element, ast.Name) else []
        pair = next(((i.module, i.name) for i in imported if hasattr(i, "qualified")), None)  # type: ignore[union-attr]
        new = _MERGED.get(pair) if pair is not None else None  # type: ignore[arg-type]
        found.append(new[1] if new is not None else None)
    return found


RULE = Rule(
    code="VA617",
    name="quantization-configs",
    summary="GPTQConfig, AWQConfig and their kin for Marlin kernels are AutoGPTQConfig and AutoAWQConfig.",
    why=(
        "vLLM 0.22 made one class of GPTQConfig and GPTQMarlinConfig, 0.24 of AWQConfig and AWQMarlinConfig. Vision "
        "models ask by isinstance which of them they are given, to leave their tower as it is. A class that is used as "
        "more is left, and its import is reported."
    ),
    follows="vLLM 0.22.0 (AutoGPTQConfig), 0.24.0 (AutoAWQConfig)",
    names=frozenset({name for _, name in _MERGED}),
    plan=plan,
    review="the new class also stands for the configurations whose kernels are Marlin's, or are not",
    examples=(Example(before=_BEFORE, after=_AFTER),),
    unported=Severity.WARNING,
)

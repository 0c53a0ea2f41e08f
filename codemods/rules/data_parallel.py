"""VA650: a tower's data-parallel mode is asked of vLLM where multimodal_config was handed down for it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods import edits as E
from codemods.findings import Severity
from codemods.parsed_file import Import, parameters, self_attribute
from codemods.plan import FilePlan, Plan
from codemods.project import AnyFunction
from codemods.rule import Example, Rule
from codemods.uses import uses_of
from codemods.vision_attention import vocabulary as V

_MODULE, _ASK = "vllm.model_executor.models.vision", "is_vit_use_data_parallel"
_MODE, _DATA = "mm_encoder_tp_mode", "data"
# what says that a value is the configuration of the model that is being built
_CONFIG = (".model_config.multimodal_config", ".model_config.get_multimodal_config()")

_BEFORE = """\
from torch import nn
from vllm.attention.layers.mm_encoder_attention import MMEncoderAttention
from vllm.config import MultiModalConfig, VllmConfig
from vllm.distributed import get_tensor_model_parallel_world_size


class PatchAttention(nn.Module):
    def __init__(self, heads: int, head_dim: int, multimodal_config: MultiModalConfig | None = None) -> None:
        super().__init__()
        use_data_parallel = (
            multimodal_config.mm_encoder_tp_mode == "data"
            if multimodal_config
            else False
        )
        ranks = 1 if use_data_parallel else get_tensor_model_parallel_world_size()
        self.attn = MMEncoderAttention(heads // ranks, head_dim, multimodal_config=multimodal_config)


class Model(nn.Module):
    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__()
        multimodal_config = vllm_config.model_config.multimodal_config
        self.use_data_parallel = multimodal_config.mm_encoder_tp_mode == "data"
        self.visual = PatchAttention(16, 64, multimodal_config=multimodal_config)
"""

_AFTER = """\
from torch import nn
from vllm.config import VllmConfig
from vllm.distributed import get_tensor_model_parallel_world_size
from vllm.model_executor.layers.attention import MMEncoderAttention
from vllm.model_executor.models.vision import is_vit_use_data_parallel


class PatchAttention(nn.Module):
    def __init__(self, heads: int, head_dim: int) -> None:
        super().__init__()
        use_data_parallel = is_vit_use_data_parallel()
        ranks = 1 if use_data_parallel else get_tensor_model_parallel_world_size()
        self.attn = MMEncoderAttention(heads // ranks, head_dim)


class Model(nn.Module):
    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__()
        multimodal_config = vllm_config.model_config.multimodal_config
        self.use_data_parallel = multimodal_config.mm_encoder_tp_mode == "data"
        self.visual = PatchAttention(16, 64)
"""

Carrier = tuple[int, str]  # a constructor, by the identity of its node, and one of its parameters


def plan(run: Plan) -> None:
    if run.target.takes_multimodal_config or not run.api.has(_MODULE, _ASK):
        return
    constructors: dict[int, tuple[FilePlan, AnyFunction]] = {
        id(node): (file, node)
        for file in run.open_vision
        for node in file.file.nodes[ast.FunctionDef]
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    }
    modes = {
        (key, parameter.arg): found
        for key, (file, node) in constructors.items()
        for parameter in parameters(node)
        if (found := list(_modes(file, node, parameter.arg)))
    }
    if not modes:
        return
    carriers = _carriers(run, constructors)
    for carrier in carriers:
        file, node = constructors[carrier[0]]
        for expression in modes.get(carrier, ()):
            file.rewrite(
                RULE,
                expression,
                f"{_owner(file, node)}: vLLM is asked for the data-parallel mode",
                [_asked(file, expression), E.AddImport(_MODULE, _ASK)],
            )
        for read in uses_of(file).now(carrier[1], node):
            if (statement := _assertion(file, read)) is not None:
                file.rewrite(
                    RULE,
                    statement,
                    f"{_owner(file, node)}: {carrier[1]} is not asked for any more",
                    [E.ReplaceStatement(E.Ref.of(statement), "")],
                )


def _is_free(run: Plan, file: FilePlan, node: AnyFunction) -> bool:
    """Whether the function's name means vLLM's function in a constructor, or nothing yet."""
    bound = file.file.bound(_ASK, node)
    return all(isinstance(b, Import) and run.project.follow(b.qualified) == f"{_MODULE}.{_ASK}" for b in bound)


def _asked(file: FilePlan, expression: ast.expr) -> E.Edit:
    """The whole statement anew where it is nothing but the mode: its parentheses are not wanted any more."""
    statement = file.file.statement(expression)
    lines = file.file.lines[statement.lineno - 1 : statement.end_lineno]
    if isinstance(statement, ast.Assign) and statement.value is expression and not any("#" in line for line in lines):
        targets = " = ".join(file.file.written(target) for target in statement.targets)
        return E.ReplaceStatement(E.Ref.of(statement), f"{targets} = {_ASK}()\n")
    return E.ReplaceExpression(E.Ref.of(expression), f"{_ASK}()")


def _assertion(file: FilePlan, read: ast.Name) -> ast.Assert | None:
    """`assert config is not None`."""
    statement = file.file.statement(read)
    there = isinstance(statement, ast.Assert) and ast.unparse(statement.test) in (read.id, f"{read.id} is not None")
    return statement if there else None  # type: ignore[return-value]


def _modes(file: FilePlan, function: AnyFunction, name: str) -> Iterator[ast.expr]:
    """Expressions that are true where the configuration of this name says data-parallel."""
    for node in file.file.below(function):
        if isinstance(node, ast.Compare) and _is_mode(node, name) and not file.gone(node):
            above = file.file.parents[node]
            yield above if isinstance(above, (ast.IfExp, ast.BoolOp)) and _guards(above, node, name) else node


def _is_mode(node: ast.Compare, name: str) -> bool:
    sides = [node.left, *node.comparators]
    return (
        len(sides) == 2
        and isinstance(node.ops[0], ast.Eq)
        and sorted(ast.unparse(side) for side in sides) == sorted([f"{name}.{_MODE}", repr(_DATA)])
    )


def _guards(node: ast.IfExp | ast.BoolOp, mode: ast.Compare, name: str) -> bool:
    """`mode if config else False`, `config is not None and mode`."""
    there = (name, f"{name} is not None")
    if isinstance(node, ast.IfExp):
        return node.body is mode and ast.unparse(node.test) in there and ast.unparse(node.orelse) == "False"
    return (
        isinstance(node.op, ast.And)
        and len(node.values) == 2
        and node.values[1] is mode
        and ast.unparse(node.values[0]) in there
    )


def _carriers(run: Plan, constructors: dict[int, tuple[FilePlan, AnyFunction]]) -> list[Carrier]:
    """Parameters that are read for nothing but the mode once all edits are made, and that are given the configuration
    of the running model by every call."""
    found = {
        (key, parameter.arg)
        for key, (file, node) in constructors.items()
        for parameter in parameters(node)
        if not run.elsewhere(_owner(file, node), file.file)
    }
    while True:
        kept = {
            carrier
            for carrier in found
            if _is_given(run, *constructors[carrier[0]], carrier[1], found)
            and all(
                _is_settled(run, constructors[carrier[0]][0], constructors[carrier[0]][1], read, found)
                for read in uses_of(constructors[carrier[0]][0]).now(carrier[1], constructors[carrier[0]][1])
            )
        }
        if kept == found:
            break
        found = kept
    return [(key, p.arg) for key, (_, node) in constructors.items() for p in parameters(node) if (key, p.arg) in found]


def _owner(file: FilePlan, node: AnyFunction) -> str:
    owner = file.file.class_of(node)
    return owner.name if owner is not None else node.name


def _is_settled(run: Plan, file: FilePlan, function: AnyFunction, read: ast.Name, found: set[Carrier]) -> bool:
    """Whether a read of the configuration is one of the mode, or will be gone."""
    if any(inner is read for mode in _modes(file, function, read.id) for inner in ast.walk(mode)):
        return _is_free(run, file, function)
    if _assertion(file, read) is not None:
        return True
    statement = file.file.statement(read)
    if isinstance(statement, ast.Assign) and V.CONFIG_OVERRIDE in ast.unparse(statement.value):
        names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
        if len(names) == len(statement.targets) and not any(uses_of(file).now(name, function) for name in names):
            return True
    above = file.file.parents[read]
    call = file.file.parents[above] if isinstance(above, ast.keyword) else above
    reached = run.reached(call) if isinstance(call, ast.Call) else None
    given = (reached.passed(call) or {}) if reached is not None and isinstance(call, ast.Call) else {}
    return reached is not None and any(
        value is read and (id(reached.node), name) in found for name, value in given.items()
    )


def _is_given(run: Plan, file: FilePlan, node: AnyFunction, name: str, found: set[Carrier]) -> bool:
    """Whether every call gives a parameter the running model's configuration."""
    callers = run.callers.get(id(node), [])
    for other, call, reached in callers:
        value = (reached.passed(call) or {}).get(name)
        function = other.file.function(call)
        if value is None or function is None or other.read_only:
            return False
        handed = isinstance(value, ast.Name) and (id(function), value.id) in found
        if not handed and not _is_config(other, function, value):
            return False
    return bool(callers)


def _is_config(file: FilePlan, function: AnyFunction, value: ast.expr) -> bool:
    if ast.unparse(value).endswith(_CONFIG):
        return True
    attribute = self_attribute(value)
    inside = file.file.class_of(function) if attribute else function
    if inside is None or not isinstance(value, (ast.Name, ast.Attribute)):
        return False
    assigned = [
        step.value
        for step in file.file.below(inside)
        if isinstance(step, ast.Assign) and any(ast.unparse(t) == ast.unparse(value) for t in step.targets)
    ]
    return bool(assigned) and all(ast.unparse(found).endswith(_CONFIG) for found in assigned)


RULE = Rule(
    code="VA650",
    name="data-parallel-mode",
    summary="Where multimodal_config was handed down for the data-parallel mode alone, vLLM is asked for the mode.",
    why=(
        "At 0.13 and 0.14 the configuration went through every constructor of a tower, for the op and for the "
        "data-parallel mode. From 0.15 on the op reads it itself, and is_vit_use_data_parallel() gives the mode "
        "while a model is built, so the parameter has nothing left to carry and goes. A tower that some call "
        "builds without the configuration stays as it is: it was never data-parallel there."
    ),
    follows="vLLM 0.15.0, PR #31972",
    names=frozenset({_MODE}),
    plan=plan,
    examples=(Example(before=_BEFORE, after=_AFTER, source="0.13"),),
    unported=Severity.WARNING,
)

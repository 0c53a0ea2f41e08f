"""VA301: a vision tower asks for its backend the way the target does, and no longer checks the answer."""

from __future__ import annotations

import ast

from codemods import edits as E
from codemods.findings import Severity
from codemods.parsed_file import keyword, self_attribute
from codemods.plan import FilePlan, Plan
from codemods.project import Class
from codemods.rule import Example, Rule
from codemods.vision_attention import vocabulary as V
from codemods.vision_attention.backend import BackendState, held
from codemods.vision_attention.override import CHOOSE, forced

_BEFORE = """\
import torch
from torch import nn
from vllm.attention.backends.registry import AttentionBackendEnum
from vllm.model_executor.models.vision import get_vit_attn_backend


class Tower(nn.Module):
    def __init__(self, width: int, heads: int, attn_backend_override: AttentionBackendEnum | None = None) -> None:
        super().__init__()
        self.attn_backend = get_vit_attn_backend(
            head_size=width // heads,
            dtype=torch.get_default_dtype(),
            attn_backend_override=attn_backend_override,
        )
        if self.attn_backend not in {AttentionBackendEnum.FLASH_ATTN, AttentionBackendEnum.TORCH_SDPA}:
            raise RuntimeError(f"this tower does not support {self.attn_backend}")

    def needs_lengths(self) -> bool:
        return self.attn_backend != AttentionBackendEnum.TORCH_SDPA


def build(width: int, heads: int) -> Tower:
    return Tower(width, heads)
"""

_AFTER = """\
import torch
from torch import nn
from vllm.model_executor.models.vision import get_vit_attn_backend
from vllm.v1.attention.backends.registry import AttentionBackendEnum


class Tower(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attn_backend = get_vit_attn_backend(
            head_size=width // heads,
            dtype=torch.get_default_dtype(),
        )

    def needs_lengths(self) -> bool:
        return self.attn_backend != AttentionBackendEnum.TORCH_SDPA


def build(width: int, heads: int) -> Tower:
    return Tower(width, heads)
"""


def plan(run: Plan) -> None:
    for file in run.open_vision:
        attention = {found.cls.node for found in run.attention(file)}
        blocked = run.blocked(file)
        for node in file.file.classes.values():
            constructor = Class(file.file, node).own("__init__")
            if node in attention or constructor is None:
                continue
            state = run.backend(file.file, constructor)
            if not state.statements:
                continue
            if blocked is not None and state.calls:
                file.find(
                    RULE,
                    state.statements[0],
                    Severity.ERROR,
                    f"{node.name} keeps its backend for {blocked.cls.node.name}, which is left as it is",
                    f"Migrate {blocked.cls.node.name} first ({file.file.line(getattr(blocked.node, 'lineno', 1))}: "
                    f"{blocked.check}), then "
                    f"run again.",
                    covers=node,
                )
                continue
            for statement in state.statements:
                _plan_statement(run, file, node, state, statement)
            if state.calls:
                _find_mixed_guards(run, file, constructor, state)
        for call in file.file.nodes[ast.Call]:
            assert isinstance(call, ast.Call)
            if not V.vllm_call(run.project, file.file, call, V.GET_BACKEND) or file.gone(call):
                continue
            if "current_platform" not in (run.project.vllm(file.file, call.func) or ""):
                cls = file.file.class_of(call)
                if cls is None or (cls not in attention and blocked is None):
                    _plan_call(run, file, call)


def tell_of_forced(run: Plan, file: FilePlan, rule: Rule, call: ast.Call, value: ast.expr | None) -> None:
    """A look-up that was told to give a certain backend, which the target still has, and is not told so any more."""
    function, cls = file.file.function(call), file.file.class_of(call)
    if function is None or run.fits(file):
        return
    members = run.api.enum_members(f"{run.target.backend_enum}.{V.ENUMS[0]}")
    for member in forced(run.project, file.file, function, value):
        if member.attr in members:
            owner = f"{cls.name}.{function.name}" if cls is not None else function.name
            message = f"{owner} no longer asks for {ast.unparse(member)}"
            file.find(rule, member, Severity.WARNING, message, CHOOSE)


def _plan_statement(run: Plan, file: FilePlan, cls: ast.ClassDef, state: BackendState, statement: ast.stmt) -> None:
    """Guards, upgrades to upstream flash-attn and second look-ups go; the first look-up stays."""
    calls = [n for n in ast.walk(statement) if isinstance(n, ast.Call)]
    if any(V.vllm_call(run.project, file.file, c, V.GET_FLASH, V.UPSTREAM_FA, V.XFORMERS_AVAILABLE) for c in calls):
        kept = next((c for c in calls if V.vllm_call(run.project, file.file, c, V.GET_BACKEND)), None)
        if kept is None:
            file.rewrite(
                RULE,
                statement,
                f"{cls.name}: the look-up of a flash kernel is taken out",
                [E.ReplaceStatement(E.Ref.of(statement), "")],
            )
        return
    if isinstance(statement, ast.If) and _is_obsolete(run, file, cls, state, statement):
        steps = [*statement.body, *statement.orelse]
        if all(isinstance(s, ast.Raise) for s in steps):
            message = "the check of the backend is taken out; vLLM refuses what it cannot serve"
            file.rewrite(RULE, statement, f"{cls.name}: {message}", [E.ReplaceStatement(E.Ref.of(statement), "")])
        elif all(_falls_back(run, file, s) for s in steps):
            file.rewrite(
                RULE,
                statement,
                f"{cls.name}: the fall-back to another backend is taken out",
                [E.ReplaceStatement(E.Ref.of(statement), "")],
                review="an unsupported backend used to fall back here; vLLM now refuses it when the model is built",
            )


def _is_obsolete(run: Plan, file: FilePlan, cls: ast.ClassDef, state: BackendState, guard: ast.If) -> bool:
    """Whether a check of the backend is wrong at the target, or is the check of a dispatch that goes.

    A list of what vLLM had at its time, down to plain PyTorch, refuses what vLLM has since; a list of single kernels is
    a decision of the model's, which holds at the target as it did before.
    """
    if state.parameters or _hands_down(run, file, cls, state):
        return True
    read = {held(node) for node in ast.walk(guard.test)}
    flags = [s.value for s in state.statements if isinstance(s, ast.Assign) and read & set(map(held, s.targets))]
    named = {
        node.attr
        for step in [guard.test, *flags]
        for node in ast.walk(step)
        if isinstance(node, ast.Attribute) and V.is_backend_enum(run.project, file.file, node)
    }
    members = run.api.enum_members(f"{run.target.backend_enum}.{V.ENUMS[0]}")
    return ("TORCH_SDPA" in named and not named >= set(run.target.varlen_backends)) or not named <= set(members)


def _hands_down(run: Plan, file: FilePlan, cls: ast.ClassDef, state: BackendState) -> bool:
    """Whether a tower gives its backend to layers of the project, which then chose by it."""
    return any(
        held(value) in state.names
        for call in file.file.below(cls)
        if isinstance(call, ast.Call) and not _is_outside(run, file, call)
        for value in [*(k.value for k in call.keywords), *(call.args if run.reached(call) else ())]
    )


def _is_outside(run: Plan, file: FilePlan, call: ast.Call) -> bool:
    """Whether a call is one of vLLM's that is not among the files of the run."""
    name = run.project.vllm(file.file, call.func)
    return name is not None and name.rpartition(".")[0] not in run.project.by_module


def _find_mixed_guards(
    run: Plan, file: FilePlan, constructor: ast.FunctionDef | ast.AsyncFunctionDef, state: BackendState
) -> None:
    """Checks that refuse backends by a list, and ask for something else as well: a person has to part the two."""
    for statement in constructor.body:
        if (
            not isinstance(statement, ast.If)
            or not isinstance(statement.test, ast.BoolOp)
            or statement in state.statements
            or not any(isinstance(step, ast.Raise) for step in statement.body)
        ):
            continue
        for part in statement.test.values:
            named = {
                n.attr
                for n in ast.walk(part)
                if isinstance(n, ast.Attribute) and V.is_backend_enum(run.project, file.file, n)
            }
            listed = isinstance(part, ast.Compare) and isinstance(part.ops[0], (ast.NotIn, ast.NotEq, ast.IsNot))
            if listed and named and not named >= set(run.target.varlen_backends):
                file.find(
                    RULE,
                    part,
                    Severity.WARNING,
                    f"{ast.unparse(part)} refuses backends that vLLM may choose",
                    "Take this part of the check out; vLLM refuses what it cannot serve.",
                )


def _falls_back(run: Plan, file: FilePlan, step: ast.stmt) -> bool:
    return isinstance(step, ast.Assign) and V.is_backend_enum(run.project, file.file, step.value)


def _plan_call(run: Plan, file: FilePlan, call: ast.Call) -> None:
    edits: list[E.Edit] = []
    ref = E.Ref.of(call)
    if keyword(call, "support_fa") is not None or (len(call.args) <= 1 and not call.keywords):
        size = _head_size(file, call)
        if size is None or not any(i.qualified == "torch" for i in file.file.imports):
            file.find(
                RULE,
                call,
                Severity.ERROR,
                "get_vit_attn_backend needs the head size and the dtype, and no single head size is in reach here",
                "Write get_vit_attn_backend(head_size=<head size>, dtype=torch.get_default_dtype()).",
            )
            return
        edits.append(
            E.ReplaceExpression(ref, f"{ast.unparse(call.func)}(head_size={size}, dtype=torch.get_default_dtype())")
        )
        file.rewrite(RULE, call, "the backend is looked up by head size and dtype", edits)
        return
    value = keyword(call, V.OVERRIDE)
    if value is not None and not run.target.takes_backend_override:
        file.rewrite(RULE, call, "the backend override is read from the configuration by vLLM", [])
        file.remove_argument(call, V.OVERRIDE)
        tell_of_forced(run, file, RULE, call, value)
    elif not run.target.takes_backend_override and any(k.arg is None for k in call.keywords):
        file.find(
            RULE,
            call,
            Severity.WARNING,
            f"what the ** argument holds cannot be seen here; {V.OVERRIDE} is no parameter of get_vit_attn_backend any "
            f"more",
            f"See that {V.OVERRIDE} is not among it.",
        )


def _head_size(file: FilePlan, call: ast.Call) -> str | None:
    """The one name in reach that a head size is computed into: `x // heads`, as a local or an attribute of self."""
    function = file.file.function(call)
    if function is None:
        return None
    found: list[str] = []
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign) or node.lineno >= call.lineno or len(node.targets) != 1:
            continue
        value = node.value
        divided = isinstance(value, ast.BinOp) and isinstance(value.op, ast.FloorDiv) and value.right
        if isinstance(value, ast.Call) and V.called(value) == "divide" and len(value.args) == 2:
            divided = value.args[1]
        if divided and "head" in ast.unparse(divided) and "head" not in ast.unparse(_dividend(value)):
            target = node.targets[0]
            name = target.id if isinstance(target, ast.Name) else self_attribute(target) and ast.unparse(target)
            if name:
                found.append(name)
    return found[-1] if len(set(found)) == 1 else None


def _dividend(value: ast.expr) -> ast.expr:
    return value.left if isinstance(value, ast.BinOp) else value.args[0]  # type: ignore[attr-defined]


RULE = Rule(
    code="VA301",
    name="tower-backend",
    summary="A tower's backend look-up follows the target's signature; guards around it are taken out.",
    why=(
        "A tower still asks for the backend, because it decides whether max_seqlen is computed. From 0.15 the "
        "override is read from vLLM's "
        "configuration and may not be passed. Guards that list the known backends reject Triton, which vLLM "
        "chooses from 0.17 on; one that still lists all, and one that allows a single kernel, stay."
    ),
    follows="vLLM 0.11.0 (head_size, dtype), 0.15.0 PR #31972 (override), 0.17.0 (Triton)",
    names=frozenset({V.GET_BACKEND, V.GET_FLASH, V.UPSTREAM_FA, V.OVERRIDE}),
    plan=plan,
    examples=(Example(before=_BEFORE, after=_AFTER),),
    unported=Severity.WARNING,
)

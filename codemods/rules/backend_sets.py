"""VA305: a test that lists backends before max_seqlen is computed lists every backend whose kernel reads it."""

from __future__ import annotations

import ast

from codemods import edits as E
from codemods.findings import Severity
from codemods.parsed_file import self_attribute
from codemods.plan import FilePlan, Plan
from codemods.project import Class
from codemods.rule import Example, Rule
from codemods.rules.backend_enum import enum_name
from codemods.vision_attention import vocabulary as V
from codemods.vision_attention.backend import is_backend_test
from codemods.vision_attention.chain import is_flash, is_sdpa, is_xformers
from codemods.vision_attention.lengths import computes_longest

_BEFORE = """\
import torch
from torch import nn
from vllm.model_executor.models.vision import get_vit_attn_backend
from vllm.v1.attention.backends.registry import AttentionBackendEnum


class Tower(nn.Module):
    def __init__(self, head_dim: int) -> None:
        super().__init__()
        self.attn_backend = get_vit_attn_backend(head_size=head_dim, dtype=torch.get_default_dtype())

    def longest(self, cu_seqlens: torch.Tensor) -> torch.Tensor | None:
        kind = self.attn_backend
        if kind == AttentionBackendEnum.FLASH_ATTN or kind == AttentionBackendEnum.ROCM_AITER_FA:
            return (cu_seqlens[1:] - cu_seqlens[:-1]).max()
        return None
"""

_AFTER = """\
import torch
from torch import nn
from vllm.model_executor.models.vision import get_vit_attn_backend
from vllm.v1.attention.backends.registry import AttentionBackendEnum


class Tower(nn.Module):
    def __init__(self, head_dim: int) -> None:
        super().__init__()
        self.attn_backend = get_vit_attn_backend(head_size=head_dim, dtype=torch.get_default_dtype())

    def longest(self, cu_seqlens: torch.Tensor) -> torch.Tensor | None:
        kind = self.attn_backend
        if kind in {
            AttentionBackendEnum.FLASH_ATTN,
            AttentionBackendEnum.ROCM_AITER_FA,
            AttentionBackendEnum.TRITON_ATTN,
        }:
            return (cu_seqlens[1:] - cu_seqlens[:-1]).max()
        return None
"""


def plan(run: Plan) -> None:
    for file in run.open_vision:
        if run.blocked(file) is None:
            for cls in file.file.classes.values():
                _backend_sets(run, file, cls)


def _backend_sets(run: Plan, file: FilePlan, cls: ast.ClassDef) -> None:
    constructor = Class(file.file, cls).own("__init__")
    if constructor is None or any(f.cls.node is cls for f in run.attention(file)):
        return
    names = run.backend(file.file, constructor).names
    if not names:
        return
    for node in file.file.below(cls):
        if not isinstance(node, (ast.If, ast.IfExp, ast.Assign)) or file.gone(node):
            continue
        test = node.value if isinstance(node, ast.Assign) else node.test
        held = names | _local(run, file, node, names)
        if not isinstance(test, (ast.Compare, ast.BoolOp)):
            continue
        if isinstance(node, ast.If) and _leaves_early(file, node):
            if is_backend_test(run.project, file.file, test, held) and _misses(run, file, test):
                file.find(
                    RULE,
                    test,
                    Severity.WARNING,
                    f"max_seqlen is computed only for some of the backends whose kernels read it: {ast.unparse(test)}",
                    f"Let the test name {', '.join(run.target.varlen_backends)}.",
                )
            continue
        if not isinstance(node, ast.Assign) and not _decides(node):
            continue
        if _constant_set(run, file, test, held):
            file.find(
                RULE,
                test,
                Severity.WARNING,
                f"{ast.unparse(test)} decides whether max_seqlen is computed, and the set leaves out a backend whose "
                f"kernel reads it",
                f"Let the set hold {', '.join(run.target.varlen_backends)}.",
            )
        elif is_backend_test(run.project, file.file, test, held):
            _complete(run, file, node, test)


def _local(run: Plan, file: FilePlan, node: ast.AST, names: frozenset[str]) -> frozenset[str]:
    """Local names of the method that hold the backend: `kind = self.attn_backend`."""
    function = file.file.function(node)
    return frozenset(
        target.id
        for step in (file.file.below(function) if function is not None else ())
        if isinstance(step, ast.Assign) and self_attribute(step.value) in names
        for target in step.targets
        if isinstance(target, ast.Name)
    )


def _decides(node: ast.If | ast.IfExp) -> bool:
    """Whether a test decides if max_seqlen is computed: right there, or by a flag that it sets."""
    if isinstance(node, ast.IfExp):
        return computes_longest([node.body])
    if any(isinstance(n, ast.Call) and (is_flash(n) or is_sdpa(n) or is_xformers(n)) for n in ast.walk(node)):
        return False  # it chooses the kernel itself
    return computes_longest(node.body) or all(
        isinstance(step, ast.Assign) and isinstance(step.value, ast.Constant) and step.value.value is True
        for step in node.body
    )


def _leaves_early(file: FilePlan, node: ast.If) -> bool:
    """`if backend != ...: return None` ahead of statements that compute max_seqlen."""
    above = file.file.parents[node]
    return (
        isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef))
        and isinstance(node.body[-1], ast.Return)
        and not node.orelse
        and computes_longest(above.body[above.body.index(node) + 1 :])
    )


def _misses(run: Plan, file: FilePlan, test: ast.expr) -> bool:
    """Whether a test names flash, and not every backend whose kernel reads max_seqlen."""
    named = {
        n.attr for n in ast.walk(test) if isinstance(n, ast.Attribute) and V.is_backend_enum(run.project, file.file, n)
    }
    return "FLASH_ATTN" in named and not named >= set(run.target.varlen_backends)


def _complete(run: Plan, file: FilePlan, statement: ast.stmt | ast.expr, test: ast.expr) -> None:
    members = [
        n for n in ast.walk(test) if isinstance(n, ast.Attribute) and V.is_backend_enum(run.project, file.file, n)
    ]
    wanted = run.target.varlen_backends
    if not members or not _asks_for_flash(test) or {m.attr for m in members} >= set(wanted):
        return
    if _taken_later(statement, set(wanted) - {m.attr for m in members}):
        return
    enum = enum_name(run, file, members[0].value)
    backend = next(
        ast.unparse(n)
        for n in ast.walk(test)
        if (self_attribute(n) or isinstance(n, ast.Name)) and not _is_enum_root(n, members)
    )
    indent = " " * 4
    code = "\n".join([f"{backend} in {{", *(f"{indent}{enum}.{name}," for name in wanted), "}"])
    file.rewrite(
        RULE,
        statement,
        f"max_seqlen is computed for {', '.join(wanted)}: the backends whose kernels read it",
        [E.ReplaceExpression(E.Ref.of(test), code)],
    )
    if enum != ast.unparse(members[0].value):
        file.add(E.AddImport(run.target.backend_enum, enum))


def _is_enum_root(node: ast.AST, members: list[ast.Attribute]) -> bool:
    return any(node is inner for m in members for inner in ast.walk(m))


def _asks_for_flash(test: ast.expr) -> bool:
    """`== FLASH_ATTN`, `in {FLASH_ATTN, ...}` or an `or` of such; a negation asks something else."""
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) else [test]
    return all(
        isinstance(p, ast.Compare) and len(p.ops) == 1 and isinstance(p.ops[0], (ast.Eq, ast.In, ast.Is)) for p in parts
    ) and "FLASH_ATTN" in ast.unparse(test)


def _constant_set(run: Plan, file: FilePlan, test: ast.expr, held: frozenset[str]) -> bool:
    """Whether a test asks if the backend is in a module's constant that names flash, but not all that are wanted."""
    if not (
        isinstance(test, ast.Compare)
        and len(test.ops) == 1
        and (self_attribute(test.left) or ast.unparse(test.left)) in held
        and isinstance(test.ops[0], ast.In)
        and isinstance(test.comparators[0], ast.Name)
    ):
        return False
    name = test.comparators[0].id
    for statement in file.file.tree.body:
        if isinstance(statement, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == name for t in statement.targets
        ):
            members = {
                n.attr
                for n in ast.walk(statement.value)
                if isinstance(n, ast.Attribute) and V.is_backend_enum(run.project, file.file, n)
            }
            return "FLASH_ATTN" in members and not members >= set(run.target.varlen_backends)
    return False


def _taken_later(statement: ast.stmt | ast.expr, missing: set[str]) -> bool:
    """Whether a later arm of the same `if` names one of the backends."""
    return isinstance(statement, ast.If) and any(
        isinstance(n, ast.Attribute) and n.attr in missing
        for later in statement.orelse
        for n in ast.walk(later.test if isinstance(later, ast.If) else ast.Pass())
    )


RULE = Rule(
    code="VA305",
    name="backend-sets",
    summary="max_seqlen is computed for every backend whose kernel reads it.",
    why=(
        "Towers compute max_seqlen only for the backends they know. From 0.17 vLLM may choose Triton, whose "
        "kernel reads max_seqlen too; "
        "a test that names flash alone leaves it None, or zero, and ROCm's AITER is left out by some."
    ),
    follows="vLLM 0.13.0 (ROCM_AITER_FA), 0.17.0 (TRITON_ATTN)",
    names=frozenset(V.ENUMS),
    plan=plan,
    examples=(Example(before=_BEFORE, after=_AFTER, source="0.16"),),
    unported=Severity.WARNING,
)

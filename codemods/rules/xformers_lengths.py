"""VA304: lists of sequence lengths that only xFormers read are no longer computed, returned or unpacked."""

from __future__ import annotations

import ast

from codemods import edits as E
from codemods.findings import Severity
from codemods.parsed_file import self_attribute
from codemods.plan import FilePlan, Plan
from codemods.project import AnyFunction, Class
from codemods.rule import Example, Rule
from codemods.uses import uses_of
from codemods.vision_attention import vocabulary as V

_BEFORE = """\
import torch
from torch import nn
from vllm.attention.backends.registry import AttentionBackendEnum
from vllm.attention.layer import maybe_get_vit_flash_attn_backend
from vllm.attention.ops.vit_attn_wrappers import vit_flash_attn_wrapper, vit_xformers_attn_wrapper
from vllm.model_executor.models.vision import get_vit_attn_backend


class PatchAttention(nn.Module):
    def __init__(self, heads: int, head_dim: int, prefix: str = "") -> None:
        super().__init__()
        self.heads = heads
        self.head_dim = head_dim
        self.attn_backend = get_vit_attn_backend(head_size=self.head_dim, dtype=torch.get_default_dtype())
        self.attn_backend, self.flash = maybe_get_vit_flash_attn_backend(self.attn_backend, False)

    def forward(self, q, k, v, cu_seqlens, max_seqlen, seqlens):
        q = q.view(1, -1, self.heads, self.head_dim)
        if self.attn_backend == AttentionBackendEnum.FLASH_ATTN:
            y = vit_flash_attn_wrapper(q, k, v, cu_seqlens, max_seqlen, 1, False, False)
        elif self.attn_backend == AttentionBackendEnum.XFORMERS:
            y = vit_xformers_attn_wrapper(q, k, v, seqlens)
        return y


class Tower(nn.Module):
    def __init__(self, heads: int, head_dim: int) -> None:
        super().__init__()
        self.attn = PatchAttention(heads, head_dim)
        self.attn_backend = get_vit_attn_backend(head_size=head_dim, dtype=torch.get_default_dtype())

    def lengths(self, cu_seqlens):
        max_seqlen, seqlens = None, None
        if self.attn_backend == AttentionBackendEnum.FLASH_ATTN:
            max_seqlen = (cu_seqlens[1:] - cu_seqlens[:-1]).max()
        elif self.attn_backend == AttentionBackendEnum.XFORMERS:
            seqlens = (cu_seqlens[1:] - cu_seqlens[:-1]).tolist()
        return max_seqlen, seqlens

    def forward(self, q, k, v, cu_seqlens):
        max_seqlen, seqlens = self.lengths(cu_seqlens)
        return self.attn(q, k, v, cu_seqlens, max_seqlen=max_seqlen, seqlens=seqlens)
"""

_AFTER = """\
import torch
from einops import rearrange
from torch import nn
from vllm.model_executor.layers.attention import MMEncoderAttention
from vllm.model_executor.models.vision import get_vit_attn_backend
from vllm.v1.attention.backends.registry import AttentionBackendEnum


class PatchAttention(nn.Module):
    def __init__(self, heads: int, head_dim: int, prefix: str = "") -> None:
        super().__init__()
        self.heads = heads
        self.head_dim = head_dim
        self.attn = MMEncoderAttention(
            num_heads=self.heads,
            head_size=self.head_dim,
            scale=self.head_dim**-0.5,
            prefix=f"{prefix}.attn",
        )

    def forward(self, q, k, v, cu_seqlens, max_seqlen):
        q = q.view(1, -1, self.heads, self.head_dim)
        y = self.attn(
            query=q,
            key=k,
            value=v,
            cu_seqlens=cu_seqlens,
            max_seqlen=max_seqlen,
        )
        y = rearrange(y, "b s h d -> s b (h d)").contiguous()
        return y


class Tower(nn.Module):
    def __init__(self, heads: int, head_dim: int) -> None:
        super().__init__()
        self.attn = PatchAttention(heads, head_dim)
        self.attn_backend = get_vit_attn_backend(head_size=head_dim, dtype=torch.get_default_dtype())

    def lengths(self, cu_seqlens):
        max_seqlen = None
        if self.attn_backend in {
            AttentionBackendEnum.FLASH_ATTN,
            AttentionBackendEnum.ROCM_AITER_FA,
            AttentionBackendEnum.TRITON_ATTN,
        }:
            max_seqlen = (cu_seqlens[1:] - cu_seqlens[:-1]).max()
        return max_seqlen

    def forward(self, q, k, v, cu_seqlens):
        max_seqlen = self.lengths(cu_seqlens)
        return self.attn(q, k, v, cu_seqlens, max_seqlen=max_seqlen)
"""


def plan(run: Plan) -> None:
    for file in run.open_vision:
        if not file.edits:
            continue
        returning: dict[AnyFunction, list[ast.Return]] = {}
        for found in file.file.nodes[ast.Return]:
            function = file.file.function(found)
            if function is not None and isinstance(found, ast.Return):
                returning.setdefault(function, []).append(found)
        for function, returns in returning.items():
            if all(isinstance(r.value, ast.Tuple) for r in returns):
                _narrow(run, file, function, returns)


def _narrow(run: Plan, file: FilePlan, node: AnyFunction, returns: list[ast.Return]) -> None:
    """Take a component out of a returned tuple that no caller reads any more."""
    tuples = [r.value for r in returns if isinstance(r.value, ast.Tuple)]
    if len({len(t.elts) for t in tuples}) != 1:
        return
    ref = E.Ref.of(tuples[0])
    if any(isinstance(e, E.ReplaceExpression) and e.expression == ref for e in file.edits):
        return
    callers = [(other, call) for other, call, _ in run.callers.get(id(node), ())]
    unpacked: list[tuple[FilePlan, ast.Assign, ast.Tuple]] = []
    for other, call in callers:
        statement = other.file.parents[call]
        if not (
            isinstance(statement, ast.Assign)
            and len(statement.targets) == 1
            and isinstance(statement.targets[0], ast.Tuple)
        ):
            return
        target = statement.targets[0]
        if (
            len(target.elts) != len(tuples[0].elts)
            or not all(isinstance(t, ast.Name) for t in target.elts)
            or other.read_only
        ):
            return
        unpacked.append((other, statement, target))
    if not unpacked or _reached_otherwise(run, file, node, [call for _, call in callers]):
        return
    dead = [
        index
        for index in range(len(tuples[0].elts))
        if all(_died(other, statement, target, index) for other, statement, target in unpacked)
    ]
    if not dead or len(dead) == len(tuples[0].elts):
        return
    name = " and ".join(ast.unparse(tuples[0].elts[i]) for i in dead)
    for value in tuples:
        _shorten(file, value, dead, f"{node.name} no longer returns {name}")
    for other, _, target in unpacked:
        _shorten(other, target, dead, f"{name} is no longer unpacked")
    if (
        isinstance(node.returns, ast.Subscript)
        and isinstance(node.returns.slice, ast.Tuple)
        and len(node.returns.slice.elts) == len(tuples[0].elts)
    ):
        kept = [a for i, a in enumerate(node.returns.slice.elts) if i not in dead]
        code = (
            ast.unparse(kept[0])
            if len(kept) == 1
            else f"{ast.unparse(node.returns.value)}[{', '.join(ast.unparse(a) for a in kept)}]"
        )
        if len(kept) == 1:
            code = _tensor(run, file, kept[0], code)
        file.add(E.ReplaceExpression(E.Ref.of(node.returns), code))


def _reached_otherwise(run: Plan, file: FilePlan, node: AnyFunction, calls: list[ast.Call]) -> bool:
    """Whether the function is named anywhere but in these calls, or another class of its family has one of its name."""
    known = {id(call.func) for call in calls}
    for other in run.vision:
        for use in (*other.file.attributes.get(node.name, ()), *other.file.reads.get(node.name, ())):
            if id(use) not in known and not _own_name(run, file, node, other, use):
                return True
    cls = file.file.class_of(node)
    if cls is None:
        return False
    here = Class(file.file, cls)
    family = [*list(run.project.bases(here))[1:], *run.project.subclasses.get(here.qualified, [])]
    return any(member.own(node.name) is not None for member in family)


def _own_name(run: Plan, file: FilePlan, node: AnyFunction, other: FilePlan, use: ast.AST) -> bool:
    """`self.name` in a class that has nothing to do with the function's: a method of its own."""
    owner = other.file.class_of(use)
    mine = file.file.class_of(node)
    if owner is None or mine is None or self_attribute(use) != node.name:
        return False
    classes = {c.qualified for c in run.project.bases(Class(other.file, owner))}
    return f"{file.file.module}.{mine.name}" not in classes


def _tensor(run: Plan, file: FilePlan, annotation: ast.expr, code: str) -> str:
    """The annotation as VA303 leaves it, if it planned a change inside."""
    place = E.Ref.of(annotation)
    for edit in file.edits:
        if isinstance(edit, E.ReplaceExpression) and place.contains(edit.expression) and edit.expression.kind == "Name":
            code = code.replace("int", edit.code, 1)
    return code


def _died(file: FilePlan, statement: ast.Assign, target: ast.Tuple, index: int) -> bool:
    function = file.file.function(statement)
    name = target.elts[index]
    return function is not None and isinstance(name, ast.Name) and uses_of(file).died(name.id, function)


def _shorten(file: FilePlan, node: ast.Tuple, dead: list[int], message: str) -> None:
    kept = [ast.unparse(e) for i, e in enumerate(node.elts) if i not in dead]
    code = kept[0] if len(kept) == 1 else f"{', '.join(kept)}"
    file.rewrite(RULE, node, message, [E.ReplaceExpression(E.Ref.of(node), code)])


RULE = Rule(
    code="VA304",
    name="xformers-lengths",
    summary="Sequence lengths that only xFormers read are no longer computed, returned, unpacked or declared.",
    why=(
        "vLLM 0.12 removed xFormers from vision attention. Its list of lengths came along through every forward "
        "and as a second result of "
        "the lengths helper. Where something else reads the list (patch embeddings do, in some models), it stays."
    ),
    follows="vLLM 0.12.0, PR #29262 (xFormers removed)",
    names=frozenset({V.XFORMERS_WRAPPER, *V.XFORMERS_KERNELS, "seqlens"}),
    plan=plan,
    examples=(Example(before=_BEFORE, after=_AFTER, source="0.11.2"),),
    sweeps=True,
    unported=Severity.NOTE,
)

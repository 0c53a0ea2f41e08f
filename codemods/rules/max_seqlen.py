"""VA303: max_seqlen reaches attention as a tensor."""

from __future__ import annotations

import ast

from codemods import edits as E
from codemods.findings import Severity
from codemods.parsed_file import FunctionNode, parameters
from codemods.plan import FilePlan, Plan
from codemods.rule import Example, Rule
from codemods.uses import uses_of
from codemods.vision_attention.length_flow import REPLACED, Leaf, LengthFlow, Step
from codemods.vision_attention.lengths import Kind, as_tensor, kind, wrapped

_BEFORE = """\
import torch
from torch import nn
from vllm.model_executor.layers.attention import MMEncoderAttention
from vllm.model_executor.models.vision import get_vit_attn_backend
from vllm.v1.attention.backends.registry import AttentionBackendEnum


class Tower(nn.Module):
    def __init__(self, heads: int, head_dim: int) -> None:
        super().__init__()
        self.attn = MMEncoderAttention(heads, head_dim, head_dim**-0.5)
        self.attn_backend = get_vit_attn_backend(head_size=head_dim, dtype=torch.get_default_dtype())

    def longest(self, cu_seqlens: torch.Tensor) -> int | None:
        max_seqlen = None
        if self.attn_backend != AttentionBackendEnum.TORCH_SDPA:
            max_seqlen = (cu_seqlens[1:] - cu_seqlens[:-1]).max().item()
        return max_seqlen

    def forward(self, x, cu_seqlens):
        return self.attn(query=x, key=x, value=x, cu_seqlens=cu_seqlens, max_seqlen=self.longest(cu_seqlens))
"""

_AFTER = """\
import torch
from torch import nn
from vllm.model_executor.layers.attention import MMEncoderAttention
from vllm.model_executor.models.vision import get_vit_attn_backend
from vllm.v1.attention.backends.registry import AttentionBackendEnum


class Tower(nn.Module):
    def __init__(self, heads: int, head_dim: int) -> None:
        super().__init__()
        self.attn = MMEncoderAttention(heads, head_dim, head_dim**-0.5)
        self.attn_backend = get_vit_attn_backend(head_size=head_dim, dtype=torch.get_default_dtype())

    def longest(self, cu_seqlens: torch.Tensor) -> torch.Tensor | None:
        max_seqlen = None
        if self.attn_backend != AttentionBackendEnum.TORCH_SDPA:
            max_seqlen = (cu_seqlens[1:] - cu_seqlens[:-1]).max()
        return max_seqlen

    def forward(self, x, cu_seqlens):
        return self.attn(query=x, key=x, value=x, cu_seqlens=cu_seqlens, max_seqlen=self.longest(cu_seqlens))
"""


def plan(run: Plan) -> None:
    flow = LengthFlow(run)
    changed: set[Step] = set()  # what carries a tensor only now
    for leaf in flow.leaves:
        if leaf.file.read_only and leaf.kind in (Kind.ITEM, Kind.NUMBER) and leaf.path:
            _outside(leaf)
        if not leaf.file.read_only and run.blocked(leaf.file) is None and not leaf.file.gone(leaf.node):
            if _plan_leaf(flow, leaf):
                changed |= flow.way(id(leaf.node))
    _unfollowed(run, flow)
    for variable in flow.parameters:
        if variable in changed or REPLACED in flow.way(variable):
            file, function, name = variable
            argument = next(a for a in parameters(function) if a.arg == name)
            _annotate(run, file, argument.annotation, None, f"{name} becomes a tensor")
    for result in flow.results:
        if result in changed or REPLACED in flow.way(result):
            file, function, place = result
            _annotate(run, file, function.returns, place, f"{function.name} returns a tensor")


def _unfollowed(run: Plan, flow: LengthFlow) -> None:
    """Numbers by the name of a parameter that carries max_seqlen, where no call of its function could be followed."""
    uncalled = [(file, name) for file, function, name in flow.parameters if not run.callers.get(id(function))]
    followed = {id(leaf.node) for leaf in flow.leaves}
    for file in run.open_vision if uncalled else ():
        near = {file.file.module, *(i.module for i in file.file.imports), *(i.qualified for i in file.file.imports)}
        names = {name for other, name in uncalled if other.file.module in near}
        for node in file.file.nodes[ast.Assign] if names and run.blocked(file) is None else ():
            assert isinstance(node, ast.Assign)
            target = node.targets[0]
            if (
                isinstance(target, ast.Name)
                and target.id in names
                and kind(node.value) in (Kind.ITEM, Kind.NUMBER)
                and id(node.value) not in followed
                and not file.gone(node)
                and _goes_on(file, node, target.id)
            ):
                file.find(
                    RULE,
                    node,
                    Severity.WARNING,
                    f"{target.id} is a number here, and how it reaches attention could not be followed",
                    "If attention is given it, keep it a tensor: leave the .item() out.",
                )


def _goes_on(file: FilePlan, statement: ast.Assign, name: str) -> bool:
    """Whether the function hands the number on: returns it, keeps it, or passes it to what may be a layer."""
    for use in uses_of(file).now(name, file.file.function(statement)):
        above = file.file.parents[use]
        above = file.file.parents[above] if isinstance(above, ast.keyword) else above
        if isinstance(above, (ast.Return, ast.Tuple, ast.Dict)):
            return True
        if isinstance(above, ast.Call) and kind(above) is Kind.UNKNOWN:
            return True
    return False


def _outside(leaf: Leaf) -> None:
    """A length that is computed as a number in a file that is not among the given ones."""
    file, function, name = leaf.path[0]
    taken = parameters(function) if isinstance(function, FunctionNode) else []
    argument = next((a for a in taken if a.arg == name), None)
    if argument is not None and not file.read_only:
        file.find(
            RULE,
            argument,
            Severity.WARNING,
            f"{name} is passed as a number from {leaf.file.file.place(leaf.node)}, which is not among the given files",
            "Run on the whole folder, so that the length is made a tensor there.",
        )


def _plan_leaf(flow: LengthFlow, leaf: Leaf) -> bool:
    """Make a length a tensor, or say why not. Whether it was made one."""
    file, node = leaf.file, leaf.node
    if leaf.kind is Kind.TENSOR:
        return False
    if leaf.kind is Kind.ENTRY:
        file.find(
            RULE,
            node,
            Severity.WARNING,
            f"{ast.unparse(node)} reaches attention as max_seqlen, and all that is stored there are numbers",
            "Store a tensor of one number, on any device; who reads it as a number takes its .item().",
        )
        return False
    if leaf.kind is Kind.UNKNOWN:
        if REPLACED not in flow.way(id(node)):
            return False  # what its author gave to MMEncoderAttention is not in doubt without a reason
        file.find(
            RULE,
            node,
            Severity.WARNING,
            f"{ast.unparse(node)} reaches attention as max_seqlen, and cannot be shown to be a tensor",
            "MMEncoderAttention's flash and Triton paths call max_seqlen.item(): pass a tensor of one number, on "
            "any device.",
        )
        return False
    stray = flow.stray(leaf)
    if stray is not None:
        other, use = stray
        file.find(
            RULE,
            node,
            Severity.WARNING,
            f"this length reaches attention as max_seqlen, and is used as a number at {other.file.place(use)}",
            "Give attention the tensor, (cu_seqlens[1:] - cu_seqlens[:-1]).max(), and the other use its .item().",
        )
        return False
    if "torch." in (code := as_tensor(node) if leaf.kind is Kind.ITEM else wrapped(node)) and not any(
        i.qualified == "torch" and i.alias == "torch" for i in file.file.imports
    ):
        file.find(
            RULE,
            node,
            Severity.WARNING,
            "this length is a number, and attention wants a tensor",
            "Wrap it in torch.tensor(..., dtype=torch.int32).",
        )
        return False
    message = (
        "max_seqlen stays a tensor; the kernel's wrapper reads its number"
        if leaf.kind is Kind.ITEM
        else "max_seqlen is made a tensor"
    )
    file.rewrite(RULE, node, message, [E.ReplaceExpression(E.Ref.of(node), code)])
    return True


def _annotate(run: Plan, file: FilePlan, annotation: ast.expr | None, place: int | None, message: str) -> None:
    """`int` in an annotation becomes `torch.Tensor`; `place`: which item of a `tuple[...]` is meant."""
    torch = next(
        (i.alias for i in file.file.imports if i.qualified == "torch" and isinstance(i.scope, ast.Module)), None
    )
    if annotation is None or torch is None or file.read_only or run.blocked(file) is not None:
        return
    if place is not None:
        if not (
            isinstance(annotation, ast.Subscript)
            and isinstance(annotation.slice, ast.Tuple)
            and place < len(annotation.slice.elts)
        ):
            return
        annotation = annotation.slice.elts[place]
    if any(isinstance(node, ast.Attribute) and node.attr == "Tensor" for node in ast.walk(annotation)):
        return  # it may be either
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name) and node.id == "int":
            file.rewrite(RULE, node, message, [E.ReplaceExpression(E.Ref.of(node), f"{torch}.Tensor")])


RULE = Rule(
    code="VA303",
    name="max-seqlen",
    summary="max_seqlen reaches attention as a tensor, wherever it is computed.",
    why=(
        "The flash and Triton paths of MMEncoderAttention call max_seqlen.item() themselves, so a Python number "
        "raises there while every SDPA "
        "test passes. The value is followed back through names, parameters and results; what cannot be shown to "
        "be a tensor is reported."
    ),
    follows="vLLM 0.13.0, PR #30125",
    names=frozenset({"max_seqlen"}),
    plan=plan,
    examples=(Example(before=_BEFORE, after=_AFTER),),
    unported=Severity.WARNING,
)

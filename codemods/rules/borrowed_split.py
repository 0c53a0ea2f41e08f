"""VA644: a class whose projection gives each rank its own q, k and v does not split by a vLLM method that gathers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from codemods import edits as E
from codemods import vllm_contracts as contracts
from codemods.findings import Severity
from codemods.parsed_file import FunctionNode, dotted, keyword, same, self_attribute, stores
from codemods.plan import FilePlan, Plan
from codemods.project import Class
from codemods.rule import Example, Rule
from codemods.target import release_key
from codemods.vision_attention import vocabulary as V


@dataclass(frozen=True)
class Split:
    """A method of vLLM's that cuts [seq, batch, 3 * heads * head_dim] into three of [seq, batch, heads, head_dim]."""

    owner: str
    method: str
    gathers_from: str  # the release from which it puts the ranks' parts behind each other, and cuts that in three
    heads: str  # the attribute with the heads of one rank, which the method has always read
    reads: tuple[str, ...]  # attributes that it reads since it gathers


_SPLITS = (
    Split(
        owner="vllm.model_executor.models.qwen2_vl.Qwen2VisionAttention",
        method="split_qkv",
        gathers_from="0.13",
        heads="num_attention_heads_per_partition",
        reads=("tp_size", "tp_rank"),
    ),
)

_NONE = contracts.Heritage((), closed=True)  # all that the class has is seen here
_SHARDED = "QKVParallelLinear"
_TOTAL, _TOTAL_KV = (2, "total_num_heads"), (3, "total_num_kv_heads")  # of its constructor

_BEFORE = """\
import torch
from torch import nn
from vllm.distributed import parallel_state
from vllm.model_executor.layers.linear import QKVParallelLinear
from vllm.model_executor.models.qwen2_vl import Qwen2VisionAttention


class Attention(nn.Module):
    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        ranks = parallel_state.get_tensor_model_parallel_world_size()
        self.num_attention_heads_per_partition = num_heads // ranks
        self.hidden_size_per_attention_head = width // num_heads
        self.qkv = QKVParallelLinear(width, width // num_heads, num_heads)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x, _ = self.qkv(x)
        q, k, v = Qwen2VisionAttention.split_qkv(self, x)
        return q, k, v
"""

_AFTER = _BEFORE.replace("from vllm.model_executor.models.qwen2_vl import Qwen2VisionAttention\n", "").replace(
    "Qwen2VisionAttention.split_qkv(self, x)",
    "(part.unflatten(-1, (self.num_attention_heads_per_partition, -1)) for part in x.chunk(3, dim=-1))",
)

_GROUPED = _BEFORE.replace("num_heads, num_heads)", "num_heads, num_heads, 2)").replace(
    "width // num_heads, num_heads)", "width // num_heads, num_heads, total_num_kv_heads=2)"
)


def plan(run: Plan) -> None:
    splits = [split for split in _SPLITS if release_key(run.target.version) >= release_key(split.gathers_from)]
    for file in run.open_files:
        for node in file.file.class_nodes:
            if file.gone(node):
                continue
            cls = Class(file.file, node)
            for split in splits:
                for call in file.file.inside(node, ast.Call):
                    if not file.gone(call) and _is_borrowed(run, file, cls, call, split):
                        _plan_call(run, file, cls, call, split)


def _is_borrowed(run: Plan, file: FilePlan, cls: Class, call: ast.Call, split: Split) -> bool:
    """Whether a call runs vLLM's method on an object of a class of the project."""
    if self_attribute(call.func) == split.method:
        return run.project.method(cls, split.method) is None and split.owner in contracts.heritage(run, cls).bases
    return (
        run.project.vllm(file.file, call.func) == f"{split.owner}.{split.method}"
        and bool(call.args)
        and dotted(call.args[0]) == "self"
    )


def _plan_call(run: Plan, file: FilePlan, cls: Class, call: ast.Call, split: Split) -> None:
    name, release = cls.node.name, run.target.version
    made = list(_projections(run, cls))
    gathers = f"{name} splits by {ast.unparse(call.func)}, which gathers since vLLM {split.gathers_from}"
    if made and all(map(_is_even, made)) and (tensor := _tensor(call)) is not None:
        cut = f"part.unflatten(-1, (self.{split.heads}, -1)) for part in {file.file.operand(tensor)}.chunk(3, dim=-1)"
        text = f"({cut})" if _is_unpacked(file, call) else f"tuple({cut})"
        file.rewrite(
            RULE,
            call,
            f"{gathers}: of a {_SHARDED}, which gives each rank its own q, k and v, this rank's part is cut",
            [E.ReplaceExpression(E.Ref.of(call), text)],
        )
    elif made:
        file.find(
            RULE,
            call,
            Severity.ERROR,
            f"{gathers}, and projects by {_SHARDED}, which gives each rank its own q, k and v: "
            "wrong from two tensor-parallel ranks on",
            "Cut this rank's own output: q, k, v = qkv.split([q_size, kv_size, kv_size], dim=-1).",
        )
    elif contracts.heritage(run, cls) == _NONE:
        missing = [attribute for attribute in split.reads if attribute not in set(_set_here(run, cls))]
        if missing:
            file.find(
                RULE,
                call,
                Severity.ERROR,
                f"{ast.unparse(call.func)} of vLLM {release} reads {', '.join(f'self.{m}' for m in missing)}, "
                f"which {name} does not set",
                "Set them from vllm.distributed's rank and world size of tensor parallelism.",
            )


def _projections(run: Plan, cls: Class) -> Iterator[ast.Call]:
    """What makes the class's q, k and v where a rank gets its own."""
    for here in run.project.bases(cls):
        for call in here.file.inside(here.node, ast.Call):
            if V.last(run.project.vllm(here.file, call.func)) == _SHARDED:
                yield call


def _set_here(run: Plan, cls: Class) -> Iterator[str]:
    """The attributes that a class sets on its objects, in whatever form, or has itself."""
    for here in run.project.bases(cls):
        yield from (a.attr for a in here.file.inside(here.node, ast.Attribute) if isinstance(a.ctx, ast.Store))
        for statement in here.node.body:
            yield from ({statement.name} if isinstance(statement, FunctionNode) else stores(statement))


def _is_even(call: ast.Call) -> bool:
    """Whether there are as many heads of k and v as of q, so that a rank's output has three equal parts."""
    if any(isinstance(a, ast.Starred) for a in call.args) or any(word.arg is None for word in call.keywords):
        return False
    total, total_kv = _argument(call, *_TOTAL), _argument(call, *_TOTAL_KV)
    is_none = isinstance(total_kv, ast.Constant) and total_kv.value is None
    return total_kv is None or is_none or same(total, total_kv)


def _argument(call: ast.Call, place: int, name: str) -> ast.expr | None:
    return call.args[place] if len(call.args) > place else keyword(call, name)


def _tensor(call: ast.Call) -> ast.expr | None:
    """What is split: the last of the arguments, where there is nothing else."""
    own = self_attribute(call.func) is None
    if len(call.args) == 1 + own and not call.keywords:
        return call.args[-1]
    return call.keywords[0].value if len(call.args) == own and len(call.keywords) == 1 else None


def _is_unpacked(file: FilePlan, call: ast.Call) -> bool:
    statement = file.file.statement(call)
    return (
        isinstance(statement, ast.Assign)
        and statement.value is call
        and all(isinstance(target, (ast.Tuple, ast.List)) for target in statement.targets)
        and len(statement.targets) == 1
    )


RULE = Rule(
    code="VA644",
    name="borrowed-split",
    summary="Where each rank has its own q, k and v, they are cut here, not by a vLLM method that gathers the ranks.",
    why=(
        "Qwen2VisionAttention.split_qkv cuts what a ColumnParallelLinear gives, whose ranks hold runs of the whole of "
        "q, k and v: since 0.13 it gathers the ranks and cuts that in three. A class that borrows it and projects by a "
        "QKVParallelLinear, whose ranks hold their own q, k and v behind each other, would mix them from two "
        "tensor-parallel ranks on, and no run on one device shows it. The rank's part is cut as the method of 0.12 "
        "did. Where there are fewer heads of k and v than of q, that is reported; so is a class without the "
        "attributes that the method reads now."
    ),
    follows="vLLM 0.13.0 (Qwen2-VL)",
    names=frozenset(),
    words=frozenset({"split_qkv"}),
    plan=plan,
    examples=(
        Example(before=_BEFORE, after=_AFTER),
        Example(before=_GROUPED, after=_GROUPED, refused=True),
    ),
    unported=Severity.WARNING,
)

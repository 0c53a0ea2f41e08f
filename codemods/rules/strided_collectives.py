"""VA802: a tensor whose memory has gaps or another order is made contiguous before a collective reads it."""

from __future__ import annotations

import ast

from codemods import edits as E
from codemods.devices.collectives import TELLING, Argument, Collectives
from codemods.devices.kinds import Kinds
from codemods.devices.layout import Layout
from codemods.devices.mutation import Mutations
from codemods.devices.placing import Placing
from codemods.devices.tensor_flow import Environment, Flow, Scope, scopes
from codemods.findings import Severity
from codemods.parsed_file import ParsedFile, dotted, keyword
from codemods.plan import FilePlan, Plan
from codemods.rule import Example, Rule
from codemods.vision_attention import vocabulary as V
from codemods.vllm_omni_api import OmniApi, Role

_BEFORE = """\
import torch
import torch.distributed as dist


def gather_text(out: torch.Tensor, text_len: int, group: dist.ProcessGroup) -> torch.Tensor:
    text = out[:, :text_len]
    gathered = [torch.empty_like(text) for _ in range(dist.get_world_size(group))]
    dist.all_gather(gathered, text, group=group)
    return torch.cat(gathered, dim=2)


def swap_heads(query: torch.Tensor, ranks: int, group: dist.ProcessGroup) -> torch.Tensor:
    shards = list(query.chunk(ranks, dim=2))
    received = [torch.empty_like(shard) for shard in shards]
    dist.all_to_all(received, shards, group=group)
    return torch.cat(received, dim=1)


def pass_on(rows: torch.Tensor, heads: torch.Tensor, peer: int) -> None:
    dist.send(rows[:4], peer)
    dist.send(heads.transpose(0, 1), peer)
"""

_AFTER = """\
import torch
import torch.distributed as dist


def gather_text(out: torch.Tensor, text_len: int, group: dist.ProcessGroup) -> torch.Tensor:
    text = out[:, :text_len]
    text = text.contiguous()
    gathered = [torch.empty_like(text) for _ in range(dist.get_world_size(group))]
    dist.all_gather(gathered, text, group=group)
    return torch.cat(gathered, dim=2)


def swap_heads(query: torch.Tensor, ranks: int, group: dist.ProcessGroup) -> torch.Tensor:
    shards = list(query.chunk(ranks, dim=2))
    shards = [part.contiguous() for part in shards]
    received = [torch.empty_like(shard) for shard in shards]
    dist.all_to_all(received, shards, group=group)
    return torch.cat(received, dim=1)


def pass_on(rows: torch.Tensor, heads: torch.Tensor, peer: int) -> None:
    dist.send(rows[:4], peer)
    dist.send(heads.transpose(0, 1).contiguous(), peer)
"""

_REFUSED = """\
import torch
import torch.distributed as dist


def share_half(cache: torch.Tensor, width: int) -> None:
    dist.broadcast(cache[:, :width], src=0)
"""


class _Scope:
    """The look at one function, or at a module outside of its functions."""

    def __init__(self, run: Plan, plan: FilePlan, scope: Scope, collectives: Collectives) -> None:
        self.run = run
        self.plan = plan
        self.file: ParsedFile = plan.file
        self.scope = scope
        self.collectives = collectives
        self.flow = Flow(run.project, plan.file, scope)
        self.filled = [
            argument.node
            for call, _ in self.flow.calls
            for argument in collectives.arguments(self.file, call)
            if argument.role is not Role.SENT
        ]
        self.mutations = Mutations(plan.file, scope, self.filled)
        self.placing = Placing(plan.file, scope, self.flow)
        self.mended: list[tuple[str, ast.stmt]] = []  # names made contiguous, and ahead of which statement

    def look(self) -> None:
        for call, known in self.flow.calls:
            if self.plan.gone(call):
                continue
            arguments = self.collectives.arguments(self.file, call)
            for argument in arguments:
                layout = self.flow.layout(argument.node, known)
                if layout.strided:
                    self._argument(call, argument, arguments, layout)
            if not arguments:
                self._unknown(call, known)

    def _argument(self, call: ast.Call, argument: Argument, others: list[Argument], layout: Layout) -> None:
        node = argument.node
        if self._mended_already(node, call):
            return
        filled = [other.node for other in others if other.role is Role.FILLED]
        anchor = None
        if (argument.role is Role.SENT and not self._shared(node, layout)) or self._own(argument, layout, call):
            assert isinstance(node, ast.Name)
            anchor = self.placing.anchor(node, call, filled)
        if anchor is not None:
            self._set_ahead(anchor, call, argument, layout)
        elif argument.role is Role.SENT:
            self._put_behind(call, argument, layout, filled)
        elif not any(self.placing.likes(o.node, [node], call) for o in others if o.role is Role.SENT):
            self._tell(call, argument, layout)  # a buffer that is made like a tensor becomes as that does

    def _mended_already(self, node: ast.expr, call: ast.Call) -> bool:
        """Whether an edit ahead of this call makes the name contiguous for it as well."""
        statement = self.file.statement(call)
        return isinstance(node, ast.Name) and any(
            name == node.id and self.placing.covers(anchor, statement, name) for name, anchor in self.mended
        )

    # -- what may be copied ------------------------------------------------------------------------------------------

    def _shared(self, node: ast.expr, layout: Layout) -> bool:
        """Whether a name must go on to share memory with other names, as something is written into that."""
        return not isinstance(node, ast.Name) or any(self.mutations.of(name) for name in {node.id, *layout.bases})

    def _own(self, argument: Argument, layout: Layout, call: ast.Call) -> bool:
        """Whether memory that a collective reads and fills was made here, and is seen under this one name only: then
        a copy may take its place for good."""
        node = argument.node
        if argument.role is not Role.BOTH or not layout.fresh or not isinstance(node, ast.Name):
            return False
        binding = [self.file.statement(write) for write in self.file.writes.get(node.id, ())]
        seen = [self.file.reads.get(name.partition(".")[0], ()) for name in layout.bases - {node.id}]
        elsewhere = [n for names in seen for n in names if self.file.statement(n) not in binding]
        earlier = [n for n in self.file.reads[node.id] if self.file.position(n) < self.file.position(call)]
        looped = any(isinstance(above, (ast.For, ast.While, ast.AsyncFor)) for above in self.file.above(call))
        return not elsewhere and not earlier and not looped and self.scope is not self.file.tree

    # -- edits -------------------------------------------------------------------------------------------------------

    def _set_ahead(self, anchor: ast.stmt, call: ast.Call, argument: Argument, layout: Layout) -> None:
        """`x = x.contiguous()` ahead of a statement."""
        name = ast.unparse(argument.node)
        value = f"[part.contiguous() for part in {name}]" if layout.listed else f"{name}.contiguous()"
        edit = E.InsertBefore(E.Ref.of(anchor), f"{name} = {value}")
        self.plan.rewrite(RULE, anchor, _message(call, argument, layout), [edit])
        self.mended.append((name, anchor))

    def _put_behind(self, call: ast.Call, argument: Argument, layout: Layout, filled: list[ast.expr]) -> None:
        """`.contiguous()` at the argument itself."""
        edits = [self._in_place(argument.node, layout)]
        if layout.permuted:
            likes = self.placing.likes(argument.node, filled, call)
            edits += [edit for like in likes if (edit := _ordered(like)) is not None]
        self.plan.rewrite(RULE, argument.node, _message(call, argument, layout), edits)

    def _in_place(self, node: ast.expr, layout: Layout) -> E.Edit:
        """`.contiguous()` behind the argument itself, or behind each item of a list."""
        if not layout.listed:
            return E.ReplaceExpression(E.Ref.of(node), f"{self.file.operand(node)}.contiguous()")
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            return E.ReplaceExpression(E.Ref.of(node.elt), f"{self.file.operand(node.elt)}.contiguous()")
        inner = node.args[0] if _is_list_call(node) else node  # type: ignore[attr-defined]
        return E.ReplaceExpression(E.Ref.of(node), f"[part.contiguous() for part in {self.file.written(inner)}]")

    # -- findings ----------------------------------------------------------------------------------------------------

    def _tell(self, call: ast.Call, argument: Argument, layout: Layout) -> None:
        where = ast.unparse(call.func)
        view = layout.why or ast.unparse(argument.node)
        self.plan.find(
            RULE,
            argument.node,
            Severity.WARNING,
            f"{where} writes into {view}, which has {_form(layout)}; strict backends such as HCCL take contiguous "
            "memory only",
            "Let it fill a contiguous tensor, and copy that into the view behind the call.",
        )

    def _unknown(self, call: ast.Call, known: Environment) -> None:
        """A strided tensor for a method that is a collective by its name, of which nothing else is known."""
        function = call.func
        if not isinstance(function, ast.Attribute) or function.attr not in TELLING or not call.args:
            return
        layout = self.flow.layout(call.args[0], known)
        if not layout.strided or self.collectives.known(self.file, call) or self._mended_already(call.args[0], call):
            return
        self.plan.find(
            RULE,
            call.args[0],
            Severity.NOTE,
            f"{ast.unparse(function)} gets {layout.why or ast.unparse(call.args[0])}, which has {_form(layout)}; "
            "whether it makes it contiguous is not known here",
            "If it hands the tensor on as it is, put .contiguous() behind it: strict backends such as HCCL need that.",
        )


def _message(call: ast.Call, argument: Argument, layout: Layout) -> str:
    view = layout.why or ast.unparse(argument.node)
    return f"{ast.unparse(call.func)} gets contiguous memory: {view} has {_form(layout)}"


def _ordered(like: ast.Call) -> E.Edit | None:
    """`torch.empty_like(x)` keeps the order of x in memory, unless told not to."""
    package, _, _ = (dotted(like.func) or "").rpartition(".")
    if not package or keyword(like, "memory_format") is not None:
        return None
    return E.SetArgument(E.Ref.of(like), "memory_format", "memory_format", f"{package}.contiguous_format")


def _form(layout: Layout) -> str:
    return "gaps in memory" if layout.gaps else "its dimensions in another order in memory"


def _is_list_call(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("list", "tuple")


def plan(run: Plan) -> None:
    collectives = Collectives(run.project, Kinds(run.project, OmniApi.beside(run.target.version)))
    for file in run.open_files:
        if collectives.may_send(file.file):
            for scope in scopes(file.file):
                if any(_may_send(collectives, file, call) for call in file.file.inside(scope, ast.Call)):
                    _Scope(run, file, scope, collectives).look()


def _may_send(collectives: Collectives, file: FilePlan, call: ast.Call) -> bool:
    """Whether a call is worth following the tensors of its function."""
    return V.called(call) in TELLING or bool(collectives.arguments(file.file, call))


RULE = Rule(
    code="VA802",
    name="strided-collective",
    summary="A slice, chunk, transpose or permute is made contiguous before a collective sends it.",
    why=(
        "HCCL, as Ascend NPUs have it, takes a tensor's memory as one run: of a view with gaps, or with its "
        "dimensions in another order, it raises or sends what lies between. On one GPU, or with a batch of one, where "
        "the view happens to be contiguous, nothing is seen of it. `.contiguous()` is put ahead of the receive list "
        "if that is made from the tensor, as `torch.empty_like` of a strided tensor is strided as well. Followed are "
        "slices behind the first dimension, `chunk`, `split`, `narrow`, `select`, `unbind`, `transpose`, `permute`, "
        "`expand` and what keeps their form, through names, lists and branches of a function; into "
        "`torch.distributed`, the wrappers of the project, and those of vllm-omni, which made tensors contiguous "
        "themselves from one release on. Slices and chunks of the first dimension are contiguous and stay. A buffer "
        "that is filled is never copied: a strided one is reported, and so is a broadcast into a view. Where a method "
        "is a collective by its name only, a note asks."
    ),
    follows="vllm-omni PR #597",
    names=frozenset(),
    words=frozenset({*TELLING, "P2POp", "distributed", "vllm_omni"}),
    plan=plan,
    examples=(Example(before=_BEFORE, after=_AFTER), Example(before=_REFUSED, after=_REFUSED, refused=True)),
    unported=Severity.WARNING,
)

"""VA801: a device's own branch that calls an attention implementation as if it were a module gives way to the call
that all devices share."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from codemods import edits as E
from codemods.devices.arms import Arms, Fault
from codemods.devices.device_tests import asks_device, may_name_device
from codemods.devices.kinds import Kinds
from codemods.findings import Severity
from codemods.parsed_file import FunctionNode, ParsedFile, same
from codemods.plan import FilePlan, Plan
from codemods.rule import Example, Rule
from codemods.vllm_omni_api import OmniApi

_BEFORE = """\
import torch
from torch import nn
from vllm_omni.diffusion.attention.selector import get_attn_backend
from vllm_omni.platforms import current_omni_platform


class ImageAttention(nn.Module):
    def __init__(self, heads: int, head_dim: int) -> None:
        super().__init__()
        self.heads = heads
        self.scale = head_dim**-0.5
        backend = get_attn_backend(head_dim)
        self.attention = backend.get_impl_cls()(heads, head_dim, self.scale)

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_metadata=None):
        if current_omni_platform.is_npu():
            # fused attention of the device
            return self.attention(
                query, key, value, num_heads=self.heads, input_layout="BSND", scale=self.scale
            )[0]
        return self.attention.forward(query, key, value, attn_metadata)
"""

_AFTER = """\
import torch
from torch import nn
from vllm_omni.diffusion.attention.selector import get_attn_backend


class ImageAttention(nn.Module):
    def __init__(self, heads: int, head_dim: int) -> None:
        super().__init__()
        self.heads = heads
        self.scale = head_dim**-0.5
        backend = get_attn_backend(head_dim)
        self.attention = backend.get_impl_cls()(heads, head_dim, self.scale)

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_metadata=None):
        return self.attention.forward(query, key, value, attn_metadata)
"""

_UNKNOWN = """\
from torch import nn
from vllm_omni.platforms import current_omni_platform


class ImageAttention(nn.Module):
    def __init__(self, kernel) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(self, query, key, value, attn_metadata=None):
        if current_omni_platform.is_npu():
            return self.kernel(query, key, value, input_layout="BSND")[0]
        return self.kernel.forward(query, key, value, attn_metadata)
"""

_MODULE = """\
from torch import nn
from vllm_omni.diffusion.attention.layer import Attention
from vllm_omni.platforms import current_omni_platform


class Block(nn.Module):
    def __init__(self, heads: int, head_dim: int) -> None:
        super().__init__()
        self.attn = Attention(heads, head_dim, causal=False, softmax_scale=head_dim**-0.5)

    def forward(self, query, key, value):
        if current_omni_platform.is_npu():
            return self.attn(query.float(), key.float(), value.float()).to(query.dtype)
        return self.attn.forward(query, key, value)
"""


class _File:
    """The look at one file."""

    def __init__(self, run: Plan, plan: FilePlan, kinds: Kinds) -> None:
        self.run = run
        self.plan = plan
        self.file: ParsedFile = plan.file
        self.arms = Arms(run.project, plan.file, kinds)

    def look(self) -> None:
        branches = [*self.file.nodes[ast.If], *self.file.nodes[ast.IfExp]]
        for node in sorted(branches, key=self.file.position):
            assert isinstance(node, (ast.If, ast.IfExp))
            if self.plan.gone(node) or not asks_device(self.run.project, self.file, node.test):
                continue
            self._branch(node)

    def _branch(self, node: ast.If | ast.IfExp) -> None:
        body, orelse = _arm(node.body), _arm(node.orelse)
        behind: list[ast.AST] = []
        if not orelse and isinstance(node, ast.If) and _leaves(body):
            orelse, behind = self._following(node)
        for keep, arm, kept in (("orelse", body, [*orelse, *behind]), ("body", orelse, body)):
            fault = self.arms.fault(arm)
            if fault is not None:
                shared = self.arms.shared(kept, fault)
                caught = self._caught(node)
                if shared is None or caught:
                    self._tell(fault, caught)
                else:
                    self._drop(node, arm, keep, fault)
                return
            if doubt := self.arms.doubt(arm, kept):
                self._ask(*doubt)

    def _following(self, node: ast.If) -> tuple[list[ast.AST], list[ast.AST]]:
        """What runs where an `if` without `else` is not taken: the rest of its block, and what comes behind that."""
        rests: list[list[ast.AST]] = []
        step: ast.AST = node
        while isinstance(step, (ast.If, ast.With, ast.AsyncWith)):
            if not _is_elif(self.file, step):
                block = _block(self.file, step)
                rests.append(list(block[block.index(step) + 1 :]))
            step = self.file.parents[step]
        first, *others = rests
        return first, [step for rest in others for step in rest]

    def _caught(self, node: ast.AST) -> bool:
        """Whether something around the branch may catch the failure and go on in another way."""
        below = node
        for above in self.file.above(node):
            if isinstance(above, (*FunctionNode, ast.Lambda)):
                return False
            if isinstance(above, ast.Try) and above.handlers and below in above.body:
                return True
            below = above
        return False

    # -- what is done ------------------------------------------------------------------------------------------------

    def _drop(self, node: ast.If | ast.IfExp, arm: Sequence[ast.AST], keep: str, fault: Fault) -> None:
        gone = [*arm, node.test]
        places = [E.Ref.of(part) for part in gone]
        edits: list[E.Edit]
        edit: E.Edit
        if isinstance(node, ast.If) and keep == "orelse" and not node.orelse:
            edit = E.ReplaceStatement(E.Ref.of(node), "")
        else:
            edit = E.Unwrap(E.Ref.of(node), keep)
        edits = [edit]
        if isinstance(node, ast.If) and keep == "body" and not node.orelse:  # what stood behind it was the other arm
            edits += [E.ReplaceStatement(place, "") for place in places[:-1]]
        where = ast.unparse(node.test)
        message = f"the branch for {where} goes: {fault.why}; the call that all devices share stays"
        self.plan.rewrite(RULE, node, message, edits)
        self.plan.removed += places
        self.plan.rewritten += places
        self._unwrappings(node)

    def _unwrappings(self, node: ast.If | ast.IfExp) -> None:
        """`if <the same test>: out = out[0]` behind the branch: what a device's own call gave back, taken apart."""
        test = node.test
        statement = self.file.statement(node)
        names = {
            target.id
            for step in ast.walk(statement)
            if isinstance(step, ast.Assign)
            for target in step.targets
            if isinstance(target, ast.Name)
        }
        block = _block(self.file, statement)
        for step in block[block.index(statement) + 1 :]:
            if isinstance(step, ast.If) and not step.orelse and same(step.test, test):
                if all(_takes_first(inner, names) for inner in step.body):
                    edit = E.ReplaceStatement(E.Ref.of(step), "")
                    self.plan.rewrite(RULE, step, "what the shared call returns is not taken apart", [edit])
                    return
            if names & {n.id for n in ast.walk(step) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}:
                return

    def _tell(self, fault: Fault, caught: bool) -> None:
        if fault.owner is None:
            return  # a name that is not defined is a fault, but not shown to be one of this kind
        reason = "a `try` around it may go on without it" if caught else "no arm makes the call that all devices share"
        self.plan.find(
            RULE,
            fault.call,
            Severity.ERROR,
            f"on this device the branch fails: {fault.why}; {reason}",
            "Call forward(query, key, value, attn_metadata) of the implementation on every device: it has each "
            "device's own code.",
        )

    def _ask(self, call: ast.Call, shared: ast.Call, argument: str) -> None:
        name = ast.unparse(call.func)
        self.plan.find(
            RULE,
            call,
            Severity.WARNING,
            f"this branch gives {argument}= to {name}, which is not shown to be a module, nor to be none",
            f"If it is an attention implementation and no module, drop the branch: {ast.unparse(shared.func)} serves "
            "every device.",
        )


def _arm(part: ast.expr | list[ast.stmt]) -> list[ast.AST]:
    return list(part) if isinstance(part, list) else [part]


def _leaves(body: Sequence[ast.AST]) -> bool:
    """Whether an arm never reaches what stands behind it."""
    last = body[-1]
    if isinstance(last, ast.If):
        return bool(last.orelse) and _leaves(last.body) and _leaves(last.orelse)
    if isinstance(last, (ast.With, ast.AsyncWith)):
        return _leaves(last.body)
    return isinstance(last, (ast.Return, ast.Raise))


def _is_elif(file: ParsedFile, node: ast.stmt) -> bool:
    above = file.parents[node]
    return isinstance(above, ast.If) and above.orelse == [node]


def _block(file: ParsedFile, statement: ast.stmt) -> list[ast.stmt]:
    """The block that a statement stands in."""
    above = file.parents[statement]
    for name in ("body", "orelse", "finalbody"):
        block = getattr(above, name, None)
        if isinstance(block, list) and statement in block:
            return block
    return [statement]


def _takes_first(step: ast.stmt, names: set[str]) -> bool:
    """`out = out[0]` or `out, _ = out` for one of the names."""
    if not isinstance(step, ast.Assign) or len(step.targets) != 1:
        return False
    target, value = step.targets[0], step.value
    if isinstance(target, ast.Tuple):
        first = target.elts[0]
        return (
            isinstance(first, ast.Name) and isinstance(value, ast.Name) and value.id == first.id and first.id in names
        )
    return (
        isinstance(target, ast.Name)
        and target.id in names
        and isinstance(value, ast.Subscript)
        and isinstance(value.value, ast.Name)
        and value.value.id == target.id
        and isinstance(value.slice, ast.Constant)
        and value.slice.value == 0
    )


def plan(run: Plan) -> None:
    kinds = Kinds(run.project, OmniApi.beside(run.target.version))
    for file in run.open_files:
        if may_name_device(file.file):
            _File(run, file, kinds).look()


RULE = Rule(
    code="VA801",
    name="device-branch",
    summary="A device's own branch that cannot run gives way to the call of `forward` that all devices share.",
    why=(
        "An attention implementation (`AttentionImpl` of vllm-omni, or a class like it) is no module: it has no "
        "`__call__`, and its `forward` chooses the code of each device by itself. A branch that calls the object, "
        "gives its `forward` the arguments of one device's kernel, or calls a name that is nowhere defined raises as "
        "soon as it runs on that device, and no test on another sees it. The branch goes where that is proven: the "
        "class of the object is found in the files of the run or in the index of vllm-omni, neither it nor a subclass "
        "can be called, nothing around the branch catches the error, and the other arm calls `forward` of the same "
        "object with arguments that it takes. Branches that can run, on modules or with a device's own mathematics, "
        "stay. Where nothing shows what the object is, a warning asks."
    ),
    follows="vllm-omni PR #597",
    names=frozenset(),
    words=frozenset({"npu", "is_npu", "xpu", "is_xpu", "hpu", "is_hpu", "musa", "is_musa", "vllm_omni"}),
    plan=plan,
    examples=(
        Example(before=_BEFORE, after=_AFTER),
        Example(before=_UNKNOWN, after=_UNKNOWN, refused=True),
        Example(before=_MODULE, after=_MODULE),
    ),
    unported=Severity.WARNING,
)

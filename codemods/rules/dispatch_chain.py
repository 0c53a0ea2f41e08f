"""VA201: a hand-written dispatch over attention kernels becomes one call of MMEncoderAttention."""

from __future__ import annotations

import ast

from codemods import edits as E
from codemods import emit
from codemods.findings import Severity
from codemods.parsed_file import keyword, self_attribute, spelled
from codemods.plan import FilePlan, Plan
from codemods.project import Class
from codemods.rule import Example, Rule
from codemods.vision_attention import device_kernels
from codemods.vision_attention import vocabulary as V
from codemods.vision_attention.attention_class import RETARGETED, AttentionClass, RefusedClass, is_op
from codemods.vision_attention.lengths import Kind, as_tensor, kind

_BEFORE = """\
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import nn
from vllm.attention.backends.registry import AttentionBackendEnum
from vllm.attention.layer import maybe_get_vit_flash_attn_backend
from vllm.distributed import get_tensor_model_parallel_world_size
from vllm.distributed.utils import divide
from vllm.model_executor.models.vision import get_vit_attn_backend


class PatchAttention(nn.Module):
    def __init__(self, width: int, heads: int, prefix: str = "") -> None:
        super().__init__()
        self.head_dim = width // heads
        self.heads_here = divide(heads, get_tensor_model_parallel_world_size())
        # Pick a kernel.
        self.attn_backend = get_vit_attn_backend(head_size=self.head_dim, dtype=torch.get_default_dtype())
        self.attn_backend, self.flash_attn_varlen_func = maybe_get_vit_flash_attn_backend(self.attn_backend)
        self.is_flash_attn_backend = self.attn_backend in {
            AttentionBackendEnum.FLASH_ATTN,
            AttentionBackendEnum.ROCM_AITER_FA,
        }

    def forward(self, q, k, v, cu_seqlens, max_seqlen):
        q, k, v = (x.view(1, -1, self.heads_here, self.head_dim) for x in (q, k, v))
        if self.is_flash_attn_backend:
            q, k, v = (rearrange(x, "b s ... -> (b s) ...") for x in (q, k, v))
            out = self.flash_attn_varlen_func(
                q, k, v,
                cu_seqlens_q=cu_seqlens, cu_seqlens_k=cu_seqlens,
                max_seqlen_q=max_seqlen, max_seqlen_k=max_seqlen,
                causal=False,
            )
            y = rearrange(out, "(b s) h d -> s b (h d)", b=1).contiguous()
        else:
            parts = []
            for first, last in zip(cu_seqlens[:-1], cu_seqlens[1:]):
                part = (x[:, first:last].transpose(1, 2) for x in (q, k, v))
                parts.append(F.scaled_dot_product_attention(*part).transpose(1, 2))
            y = rearrange(torch.cat(parts, dim=1), "b s h d -> s b (h d)").contiguous()
        return y
"""

_AFTER = """\
from einops import rearrange
from torch import nn
from vllm.distributed import get_tensor_model_parallel_world_size
from vllm.distributed.utils import divide
from vllm.model_executor.layers.attention import MMEncoderAttention


class PatchAttention(nn.Module):
    def __init__(self, width: int, heads: int, prefix: str = "") -> None:
        super().__init__()
        self.head_dim = width // heads
        self.heads_here = divide(heads, get_tensor_model_parallel_world_size())
        # Pick a kernel.
        self.attn = MMEncoderAttention(
            num_heads=self.heads_here,
            head_size=self.head_dim,
            scale=self.head_dim**-0.5,
            prefix=f"{prefix}.attn",
        )

    def forward(self, q, k, v, cu_seqlens, max_seqlen):
        q, k, v = (x.view(1, -1, self.heads_here, self.head_dim) for x in (q, k, v))
        y = self.attn(
            query=q,
            key=k,
            value=v,
            cu_seqlens=cu_seqlens,
            max_seqlen=max_seqlen,
        )
        y = rearrange(y, "b s h d -> s b (h d)").contiguous()
        return y
"""

_DEVICE_BEFORE = """\
import torch
import torch.nn.functional as F
import torch_npu
from torch import nn


class PatchAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.head_dim = width // heads
        self.scale = self.head_dim**-0.5

    def forward(self, q, k, v, cu_seqlens):
        q, k, v = (x.view(-1, self.heads, self.head_dim) for x in (q, k, v))
        q, k, v = (F.pad(x, (0, 128 - self.head_dim)) for x in (q, k, v))
        y = torch.empty_like(q)
        torch_npu._npu_flash_attention_unpad(
            query=q,
            key=k,
            value=v,
            seq_len=torch.diff(cu_seqlens).to("cpu"),
            scale_value=self.scale,
            num_heads=self.heads,
            num_kv_heads=self.heads,
            out=y,
        )
        y = y[..., : self.head_dim]
        return y.flatten(1)
"""

_DEVICE_AFTER = """\
from torch import nn
from vllm.model_executor.layers.attention import MMEncoderAttention


class PatchAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.head_dim = width // heads
        self.scale = self.head_dim**-0.5
        self.attn = MMEncoderAttention(
            num_heads=self.heads,
            head_size=self.head_dim,
            scale=self.scale,
        )

    def forward(self, q, k, v, cu_seqlens):
        q, k, v = (x.view(-1, self.heads, self.head_dim) for x in (q, k, v))
        y = self.attn(
            query=q.unsqueeze(0),
            key=k.unsqueeze(0),
            value=v.unsqueeze(0),
            cu_seqlens=cu_seqlens,
            max_seqlen=(cu_seqlens[1:] - cu_seqlens[:-1]).max(),
        ).squeeze(0)
        return y.flatten(1)
"""

_CAUSAL = _BEFORE.replace("causal=False", "causal=True")
_LEFT = _CAUSAL.replace("from vllm.attention.backends.registry import AttentionBackendEnum\n", "").replace(
    "\n\n\nclass", "\nfrom vllm.v1.attention.backends.registry import AttentionBackendEnum\n\n\nclass", 1
)


_BY_HAND = (
    "Build MMEncoderAttention in __init__ and call it with query, key, value, cu_seqlens and max_seqlen by hand, or "
    "keep this attention on torch SDPA if it needs what MMEncoderAttention has not. A device's own kernel belongs into "
    "an out-of-tree op registered for MMEncoderAttention."
)
_TO_AN_OP = (
    "Call MMEncoderAttention here, and the device's kernel in an out-of-tree op: a subclass of MMEncoderAttention with "
    "that kernel in its forward_oot, registered by @MMEncoderAttention.register_oot in the device's plugin."
)


def plan(run: Plan) -> None:
    for file in run.open_vision:
        for found in run.attention(file):
            if isinstance(found, RefusedClass):
                file.find(
                    RULE,
                    found.node,
                    Severity.WARNING if found.alone else Severity.ERROR,
                    f"{found.cls.node.name} is left as it is: {found.check}",
                    _TO_AN_OP if found.alone or device_kernels.calls([found.cls.node]) else _BY_HAND,
                    covers=found.cls.node,
                )
                continue
            chain = found.chain
            file.rewrite(
                RULE,
                chain.statement,
                f"{found.cls.node.name}: the kernel dispatch is one call of self.{found.op}",
                [
                    E.ReplaceStatement(E.Ref.of(chain.statement), _code(found)),
                    *(E.ReplaceStatement(E.Ref.of(step), "") for step in chain.rest),
                ],
                review=_review(found),
            )
            if _unproved(found):
                file.find(
                    RULE,
                    chain.statement,
                    Severity.WARNING,
                    f"{ast.unparse(chain.max_seqlen or chain.statement)} is given to MMEncoderAttention as "
                    f"max_seqlen, and cannot be shown to be a tensor",
                    "Its flash and Triton paths call max_seqlen.item(): pass a tensor of one number, on any device.",
                )
            _find_devices(file, found)
            _find_other_reads(run, found)
            if f"{chain.epilogue}{chain.entry.prologue}".count("rearrange(") and not _has_rearrange(run, found):
                file.add(E.AddImport("einops", "rearrange"))
        _find_bare_kernels(run, file)


def _review(found: AttentionClass) -> str:
    reasons = []
    if not found.chain.entry.packed:
        reasons.append("cu_seqlens counts along one row; more than one row was not supported before either")
    if found.chain.devices:
        reasons.append("cu_seqlens has to be an int32 tensor on the device, whatever the device's kernel took")
    return "; ".join(reasons)


def _find_devices(file: FilePlan, found: AttentionClass) -> None:
    """Where the kernels of other devices belong that are gone from here."""
    for told in found.chain.devices:
        file.find(
            RULE,
            found.chain.statement,
            Severity.NOTE,
            f"{told.spelled} is no longer called by {found.cls.node.name}: it belongs into an out-of-tree op for "
            f"{V.ENCODER_ATTENTION}, in its forward_oot",
            f"{told.kernel.op}. See that the device's plugin is as new as vLLM.",
        )


def _find_other_reads(run: Plan, found: AttentionClass) -> None:
    """Reads of what goes with the dispatch, on something that is named as an instance of the class is, and of which
    nothing else is known."""
    names = found.state.names
    doubtful = [
        (reader, node)
        for reader in run.open_files
        for node in reader.file.nodes[ast.Attribute]
        if isinstance(node, ast.Attribute)
        and node.attr in names
        and isinstance(node.ctx, ast.Load)
        and self_attribute(node) is None
        and not reader.gone(node)
        and not run.project.makers(reader.file, node.value)
    ]
    held = _held_as(run, found) if doubtful else set()
    for reader, node in doubtful:
        if spelled(node.value) in held:
            reader.find(
                RULE,
                node,
                Severity.WARNING,
                f"{ast.unparse(node)} may read an attribute of {found.cls.node.name} that goes with the dispatch",
                f"If it does: {ast.unparse(node.value)}.{found.op}.{node.attr} is the one of MMEncoderAttention."
                if node.attr in RETARGETED
                else "If it does, take it out.",
            )


def _held_as(run: Plan, found: AttentionClass) -> set[str]:
    """Attributes that hold an instance of the class somewhere in the project."""
    return {
        attribute
        for cls in run.project.classes.values()
        for attribute, values in run.project.assigned(cls).items()
        for value in values
        if any(made.qualified == found.cls.qualified for made in run.project.instances(cls.file, value))
    }


def _find_bare_kernels(run: Plan, file: FilePlan) -> None:
    """Calls of a flash kernel that are no part of a class with a choice of backends: a function of a table, say."""
    refused = [found.cls.node for found in run.attention(file) if isinstance(found, RefusedClass)]
    for call in file.file.nodes[ast.Call]:
        assert isinstance(call, ast.Call)
        name, cls = V.called(call), file.file.class_of(call)
        if name not in (V.FLASH_KERNEL, *V.DEVICE_KERNELS) or file.gone(call) or cls in refused:
            continue
        if _is_masked(call) or (cls is not None and is_op(run.project, Class(file.file, cls))):
            continue  # a decoder's attention, or where a kernel is at home
        if run.project.callee(file.file, call) is not None:
            continue
        if name in V.DEVICE_KERNELS:
            file.find(
                RULE,
                call,
                Severity.WARNING,
                f"{ast.unparse(call.func)} is called past MMEncoderAttention: this attention runs on one device alone",
                _TO_AN_OP,
            )
            continue
        if isinstance(file.file.parents[call], ast.Expr):
            continue  # nobody takes what it gives: the kernel is warmed up
        file.find(
            RULE,
            call,
            Severity.WARNING,
            f"{V.FLASH_KERNEL} is called past MMEncoderAttention: this attention runs only where that kernel does, and "
            f"no out-of-tree op can replace it",
            "Build MMEncoderAttention in the __init__ of the class that attends and call it here by hand.",
        )


def _is_masked(call: ast.Call) -> bool:
    causal = keyword(call, "causal")
    given = [keyword(call, name) for name in ("block_table", "atten_mask", "attn_mask", "mask")]
    masks = [node for node in given if node is not None and ast.unparse(node) != "None"]
    return bool(masks) or (causal is not None and ast.unparse(causal) != "False")


def _code(found: AttentionClass) -> str:
    chain = found.chain
    lines = [_hoisted(step, chain.max_seqlen) for step in chain.hoisted]
    tensors = [chain.query, chain.key, chain.value]
    if chain.entry.packed:
        tensors = [f"{name}.unsqueeze(0)" for name in tensors]
    if chain.entry.prologue:
        tensors = [f'rearrange({name}, "{chain.entry.prologue}")' for name in tensors]
    assert chain.max_seqlen is not None
    arguments = [f"{name}={value}" for name, value in zip(("query", "key", "value"), tensors)]
    arguments.append(f"cu_seqlens={ast.unparse(chain.cu_seqlens)}")
    arguments.append(f"max_seqlen={as_tensor(chain.max_seqlen)}")
    lines.append(emit.call(f"self.{found.op}", arguments, chain.result))
    tail = chain.epilogue
    if tail.startswith("{x}."):
        lines[-1] += tail.removeprefix("{x}")
    elif tail:
        lines.append(f"{chain.result} = {tail.format(x=chain.result)}")
    return "\n".join(lines) + "\n"


def _hoisted(step: ast.stmt, longest: ast.expr | None) -> str:
    """A statement of the arm that computes a length; max_seqlen itself is kept a tensor."""
    if (
        isinstance(step, ast.Assign)
        and len(step.targets) == 1
        and isinstance(longest, ast.Name)
        and ast.unparse(step.targets[0]) == longest.id
    ):
        return f"{longest.id} = {as_tensor(step.value)}"
    return ast.unparse(step)


def _unproved(found: AttentionClass) -> bool:
    """max_seqlen is neither a name, which VA303 follows, nor a tensor or number by its form."""
    longest = found.chain.max_seqlen
    return longest is not None and not isinstance(longest, ast.Name) and kind(longest) is Kind.UNKNOWN


def _has_rearrange(run: Plan, found: AttentionClass) -> bool:
    return any(
        i.qualified in ("einops", "einops.rearrange") and isinstance(i.scope, ast.Module)
        for i in found.cls.file.imports
    )


RULE = Rule(
    code="VA201",
    name="dispatch-chain",
    summary="A hand-written choice between flash attention, SDPA and xFormers becomes one call of MMEncoderAttention.",
    why=(
        "vLLM 0.13 gave vision encoders one attention op that picks the kernel itself and that a device plugin "
        "can replace as a whole. "
        "The helpers that hand-written dispatch is built on went in 0.14. The op takes and gives [batch, "
        "sequence, heads, head_dim]; "
        "what the old arms did to the layout afterwards is put back behind the call. A kernel of another device goes "
        "with the others where it is plain attention within cu_seqlens, and belongs into an out-of-tree op then; heads "
        "that were padded for it are taken out where padding and cut are shown to cancel."
    ),
    follows="vLLM 0.13.0, PR #30125 (MMEncoderAttention); helpers removed in 0.14.0",
    names=frozenset({V.FLASH_KERNEL, *V.WRAPPERS, *V.DEVICE_KERNELS, "cu_seqlens_q"}),
    plan=plan,
    examples=(
        Example(before=_BEFORE, after=_AFTER),
        Example(before=_DEVICE_BEFORE, after=_DEVICE_AFTER),
        Example(before=_CAUSAL, after=_LEFT, refused=True),
    ),
    requires=("VA202",),
    unported=Severity.WARNING,
)

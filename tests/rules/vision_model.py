"""A small vision model as it was written for vLLM 0.12, to be edited by tests; and what ports it and reads the result.

`edited(ATTENTION, old, new, ...)` is the model with other lines in it. `Ported` has what became of it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import TypeVar

import pytest

from codemods import vllm_api
from codemods.findings import Finding, Rewrite, Severity
from codemods.run import Options, migrate

IMPORTS = """\
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import nn
from vllm.attention.backends.registry import AttentionBackendEnum
from vllm.attention.layer import maybe_get_vit_flash_attn_backend
from vllm.distributed import get_tensor_model_parallel_world_size
from vllm.distributed.utils import divide
from vllm.model_executor.models.vision import get_vit_attn_backend
"""

CONSTRUCTOR = """

class VisionAttention(nn.Module):
    def __init__(self, hidden, heads, prefix="", attn_backend_override=None):
        super().__init__()
        self.head_dim = hidden // heads
        self.local_heads = divide(heads, get_tensor_model_parallel_world_size())
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)
        self.attn_backend = get_vit_attn_backend(
            head_size=self.head_dim,
            dtype=torch.get_default_dtype(),
            attn_backend_override=attn_backend_override,
        )
        self.attn_backend, self.flash_attn_varlen_func = maybe_get_vit_flash_attn_backend(
            self.attn_backend, attn_backend_override=attn_backend_override
        )
        self.is_flash_attn_backend = self.attn_backend in {
            AttentionBackendEnum.FLASH_ATTN,
            AttentionBackendEnum.ROCM_AITER_FA,
        }
"""

PROJECTION = """
    def forward(self, x, cu_seqlens, max_seqlen, other=None):
        length, batch, _ = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (t.view(length, batch, self.local_heads, self.head_dim).transpose(0, 1) for t in (q, k, v))
"""

FLASH = """\
        if self.is_flash_attn_backend:
            q, k, v = (rearrange(t, "b s ... -> (b s) ...") for t in (q, k, v))
            packed = self.flash_attn_varlen_func(
                q, k, v,
                cu_seqlens_q=cu_seqlens, cu_seqlens_k=cu_seqlens,
                max_seqlen_q=max_seqlen, max_seqlen_k=max_seqlen,
                dropout_p=0.0, causal=False,
            )
            context = rearrange(packed, "(b s) h d -> s b (h d)", b=batch)
"""

SDPA = """\
        elif self.attn_backend == AttentionBackendEnum.TORCH_SDPA:
            pieces = []
            for i in range(1, len(cu_seqlens)):
                start, end = cu_seqlens[i - 1], cu_seqlens[i]
                q_i, k_i, v_i = (t[:, start:end].transpose(1, 2) for t in (q, k, v))
                out_i = F.scaled_dot_product_attention(q_i, k_i, v_i, dropout_p=0.0)
                pieces.append(out_i.transpose(1, 2))
            context = rearrange(torch.cat(pieces, dim=1), "b s h d -> s b (h d)")
"""

RETURN = """\
        return self.out(context)
"""

XFORMERS = """\
        elif self.attn_backend == AttentionBackendEnum.XFORMERS:
            from xformers import ops as xops
            from xformers.ops.fmha.attn_bias import BlockDiagonalMask

            bias = BlockDiagonalMask.from_seqlens(q_seqlen=seqlens, kv_seqlen=None, device=q.device)
            context = xops.memory_efficient_attention_forward(q, k, v, attn_bias=bias, p=0, scale=None)
            context = rearrange(context, "b s h d -> s b (h d)")
"""

TOWER = """

class VisionTower(nn.Module):
    def __init__(self, hidden, heads, depth, prefix="", attn_backend_override=None):
        super().__init__()
        self.layers = nn.ModuleList(
            [VisionAttention(hidden, heads, f"{prefix}.{i}", attn_backend_override=attn_backend_override)
             for i in range(depth)]
        )
        self.attn_backend = get_vit_attn_backend(
            head_size=hidden // heads,
            dtype=torch.get_default_dtype(),
            attn_backend_override=attn_backend_override,
        )

    def longest(self, cu_seqlens):
        max_seqlen = None
        if self.attn_backend == AttentionBackendEnum.FLASH_ATTN:
            max_seqlen = (cu_seqlens[1:] - cu_seqlens[:-1]).max().item()
        return max_seqlen

    def forward(self, x, cu_seqlens):
        max_seqlen = self.longest(cu_seqlens)
        for layer in self.layers:
            x = x + layer(x, cu_seqlens=cu_seqlens, max_seqlen=max_seqlen)
        return x
"""


def edited(text: str, *edits: str) -> str:
    """A text with replacements: old, new, old, new, ... Each must find something to replace."""
    for old, new in zip(edits[::2], edits[1::2], strict=True):
        assert old in text, old
        text = text.replace(old, new)
    return text


ATTENTION = IMPORTS + CONSTRUCTOR + PROJECTION + FLASH + SDPA + RETURN
MODEL = ATTENTION + TOWER
WITH_XFORMERS = IMPORTS + CONSTRUCTOR + PROJECTION.replace("other=None", "seqlens=None, other=None")
WITH_XFORMERS += FLASH + SDPA + XFORMERS + RETURN

# a tower that computes lists of lengths for xFormers as well
WITH_LENGTHS = edited(
    WITH_XFORMERS + TOWER,
    *("        max_seqlen = None\n        if", "        max_seqlen, seqlens = None, None\n        if"),
    *(
        "        return max_seqlen\n",
        "        elif self.attn_backend == AttentionBackendEnum.XFORMERS:\n"
        "            seqlens = (cu_seqlens[1:] - cu_seqlens[:-1]).tolist()\n        return max_seqlen, seqlens\n",
    ),
    *("        max_seqlen = self.longest(", "        max_seqlen, seqlens = self.longest("),
    *("max_seqlen=max_seqlen)\n        return x", "max_seqlen=max_seqlen, seqlens=seqlens)\n        return x"),
)

# parts of it
VIEWS = "q, k, v = (t.view(length, batch, self.local_heads, self.head_dim).transpose(0, 1) for t in (q, k, v))"
LOOP = "for i in range(1, len(cu_seqlens)):"
BOUNDS = "start, end = cu_seqlens[i - 1], cu_seqlens[i]"
CUT = "(t[:, start:end].transpose(1, 2) for t in (q, k, v))"
AHEAD = f"{LOOP}\n                {BOUNDS}\n"
KERNEL = "F.scaled_dot_product_attention(q_i, k_i, v_i, dropout_p=0.0)"
OUT_I = f"                out_i = {KERNEL}\n"
FLASH_RESULT = 'context = rearrange(packed, "(b s) h d -> s b (h d)", b=batch)'
SDPA_RESULT = 'rearrange(torch.cat(pieces, dim=1), "b s h d -> s b (h d)")'
ARGUMENTS = FLASH[FLASH.index("                q, k, v,\n") : FLASH.index("            context =")]
# edits
SCALED_FLASH = ("causal=False,", "causal=False, softmax_scale=self.scale,")
SCALED_SDPA = ("dropout_p=0.0)", "dropout_p=0.0, scale=self.scale)")
KV_HEADS = (
    "        self.qkv =",
    "        self.local_kv_heads = heads // self.local_heads\n        self.qkv =",
    f"        {VIEWS}\n",
    "        q = q.view(batch, length, self.local_heads, self.head_dim)\n"
    "        k = k.view(batch, length, self.local_kv_heads, self.head_dim)\n"
    "        v = v.view(batch, length, self.local_kv_heads, self.head_dim)\n",
)


def scale(value: str) -> tuple[str, str]:
    return ("        self.qkv =", f"        self.scale = {value}\n        self.qkv =")


def before_kernel(line: str) -> tuple[str, str]:
    """A line more in the SDPA arm, ahead of its kernel."""
    return (OUT_I, f"                {line}\n{OUT_I}")


FLASH_BODY, SDPA_BODY = FLASH.partition("\n")[2], SDPA.partition("\n")[2]


Node = TypeVar("Node", ast.Call, ast.Assign)


@dataclass(frozen=True)
class Ported:
    """What a run made of some files."""

    texts: dict[str, str]
    findings: list[Finding]
    rewrites: list[Rewrite]

    @property
    def text(self) -> str:
        return next(iter(self.texts.values()))

    @property
    def to_review(self) -> list[str]:
        """Rules of the rewrites that a person should look at."""
        return [rewrite.code for rewrite in self.rewrites if "fall back" in rewrite.safety]

    def left(self, severity: Severity) -> list[tuple[str, str]]:
        """Rule and message of the findings of a severity."""
        return [(f.code, f.message) for f in self.findings if f.severity is severity]

    def calls(self, function: str) -> list[dict[str, str]]:
        """The arguments of every call of a function in the first file, as text; those without a keyword by number."""
        return [
            {
                **{str(i): ast.unparse(a) for i, a in enumerate(call.args)},
                **{k.arg or "**": ast.unparse(k.value) for k in call.keywords},
            }
            for call in self._of(ast.Call)
            if ast.unparse(call.func) == function
        ]

    def call(self, function: str) -> dict[str, str]:
        (arguments,) = self.calls(function)
        return arguments

    def assigned(self, target: str) -> list[str]:
        """What is assigned to a name or attribute in the first file, in order."""
        return [ast.unparse(s.value) for s in self._of(ast.Assign) if target in map(ast.unparse, s.targets)]

    def function(self, name: str) -> ast.FunctionDef:
        """A function of the first file; `Class.method` for a method."""
        where: ast.AST = ast.parse(self.text)
        for part in name.split("."):
            where = next(
                n for n in ast.walk(where) if isinstance(n, (ast.ClassDef, ast.FunctionDef)) and n.name == part
            )
        assert isinstance(where, ast.FunctionDef)
        return where

    def parameters(self, name: str) -> str:
        return ast.unparse(self.function(name).args)

    def body(self, name: str) -> str:
        return "\n".join(ast.unparse(s) for s in self.function(name).body)

    def _of(self, kind: type[Node]) -> list[Node]:
        found = [node for node in ast.walk(ast.parse(self.text)) if isinstance(node, kind)]
        return sorted(found, key=lambda node: (node.lineno, node.col_offset))


Port = Callable[..., Ported]
Row = tuple[str, ...]


def rows(*tables: dict[str, Row]) -> list[object]:
    """Parameters of a test, from tables of `name: (old, new, ..., message)`."""
    return [pytest.param(row[:-1], row[-1], id=name) for table in tables for name, row in table.items()]


def assert_refused(text: str, message: str, port: Port) -> None:
    """The run leaves the classes of a text as they are, and says why."""
    after = port(text)
    assert any(code == "VA201" and message in said for code, said in after.left(Severity.ERROR))
    assert after.text.partition("\nclass ")[2] == text.partition("\nclass ")[2]


def porter(folder: Path) -> Port:
    """Ports files (by name, or one text) in a folder; `given`: those that the run is told of, else all."""

    def run(files: str | dict[str, str], target: str = "0.28", given: Sequence[str] = ("",)) -> Ported:
        texts = {"model.py": files} if isinstance(files, str) else files
        for name, text in texts.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(dedent(text))
        done = migrate([folder / name for name in given], Options(target=vllm_api.resolve(target)))
        findings = [finding for report in done.files for finding in report.findings]
        rewrites = [rewrite for report in done.files for rewrite in report.rewrites]
        return Ported({name: (folder / name).read_text() for name in texts}, findings, rewrites)

    return run

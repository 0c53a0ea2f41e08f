"""VA403: MMEncoderAttention is built with the arguments the target has."""

from __future__ import annotations

import ast

from codemods import edits as E
from codemods.findings import Severity
from codemods.parsed_file import keyword
from codemods.plan import FilePlan, Plan
from codemods.project import Class
from codemods.rule import Example, Rule
from codemods.target import OLDEST, release_key, target
from codemods.vision_attention import sizes
from codemods.vision_attention import vocabulary as V
from codemods.vision_attention.heads import is_default_scale

_BEFORE = """\
from torch import nn
from vllm.attention.layers.mm_encoder_attention import MMEncoderAttention


class PatchAttention(nn.Module):
    def __init__(self, heads: int, head_dim: int, multimodal_config=None) -> None:
        super().__init__()
        self.attn = MMEncoderAttention(num_heads=heads, head_size=head_dim, multimodal_config=multimodal_config)

    def forward(self, q, k, v, cu_seqlens, max_seqlen):
        return self.attn(query=q, key=k, value=v, cu_seqlens=cu_seqlens, max_seqlen=max_seqlen)


def build(vllm_config) -> PatchAttention:
    return PatchAttention(16, 64, multimodal_config=vllm_config.model_config.multimodal_config)
"""

_AFTER = """\
from torch import nn
from vllm.model_executor.layers.attention import MMEncoderAttention


class PatchAttention(nn.Module):
    def __init__(self, heads: int, head_dim: int) -> None:
        super().__init__()
        self.attn = MMEncoderAttention(num_heads=heads, head_size=head_dim)

    def forward(self, q, k, v, cu_seqlens, max_seqlen):
        return self.attn(query=q, key=k, value=v, cu_seqlens=cu_seqlens, max_seqlen=max_seqlen)


def build(vllm_config) -> PatchAttention:
    return PatchAttention(16, 64)
"""


def plan(run: Plan) -> None:
    for file in run.open_vision:
        for call in file.file.nodes[ast.Call]:
            if isinstance(call, ast.Call) and V.vllm_call(run.project, file.file, call, V.ENCODER_ATTENTION):
                _find_scale(run, file, call)
                if not run.target.takes_multimodal_config:
                    _drop_config(file, call)


def _drop_config(file: FilePlan, call: ast.Call) -> None:
    message = "MMEncoderAttention reads the configuration itself"
    if keyword(call, "multimodal_config") is not None:
        file.rewrite(RULE, call, message, [])
        file.remove_argument(call, "multimodal_config")
    elif len(call.args) == _POSITION + 1 and not any(isinstance(a, ast.Starred) for a in call.args):
        file.rewrite(RULE, call, message, [E.RemoveArgument(E.Ref.of(call), _POSITION)])
        file.removed.append(E.Ref.of(call.args[_POSITION]))


def _find_scale(run: Plan, file: FilePlan, call: ast.Call) -> None:
    """A scale that 0.13 ignores and later releases use: one of the two computes something else than the other."""
    ignored = bool(file.source) and not any(target(release).honours_scale for release in _known(file.source))
    if run.target.honours_scale != ignored:
        return  # both use it, or both ignore it
    size, scale = (keyword(call, name) or (call.args[at] if len(call.args) > at else None) for name, at in _PLACES)
    if size is None or scale is None or ast.unparse(scale) == "None" or _is_default(run, file, call, scale, size):
        return
    file.find(
        RULE,
        scale,
        Severity.WARNING,
        f"scale={ast.unparse(scale)} is not shown to be head_size**-0.5, the scale that vLLM 0.13 always takes; "
        f"vLLM {run.target.version} {'uses what is given' if ignored else 'ignores it'}",
        "See which scale the model was trained with: give that one from 0.14 on, and at 0.13 scale q before the call.",
    )


def _known(source: tuple[str, ...]) -> list[str]:
    return [release for release in source if release_key(release) >= release_key(OLDEST)]


def _is_default(run: Plan, file: FilePlan, call: ast.Call, scale: ast.expr, size: ast.expr) -> bool:
    """Whether the scale is that of the head size, as both are where the attention is built."""
    if isinstance(scale, ast.Constant) and isinstance(size, ast.Constant):
        return isinstance(size.value, int) and size.value > 0 and scale.value == size.value**-0.5
    function, cls = file.file.function(call), file.file.class_of(call)
    if function is None:
        return is_default_scale(scale, ast.unparse(size).removeprefix("self."))
    reset = sizes.set_by_bases(run.project, Class(file.file, cls)) if cls is not None else ()
    at = call.lineno, call.col_offset
    return sizes.Constructor(function, reset).is_root(scale, at, size, at)


_PLACES = (("head_size", 1), ("scale", 2))
_POSITION = 5  # of multimodal_config among the constructor's arguments in 0.13 and 0.14


RULE = Rule(
    code="VA403",
    name="encoder-attention-call",
    summary="MMEncoderAttention is no longer given multimodal_config from 0.15 on.",
    why=(
        "The constructor took multimodal_config in 0.13 and 0.14 only. From 0.15 on it is a TypeError, "
        "and the configuration is read from vLLM's context. At 0.13 the op ignores its scale, so one that is not "
        "head_size**-0.5 is told where a file goes to or from 0.13."
    ),
    follows="vLLM 0.15.0, PR #31972",
    names=frozenset({V.ENCODER_ATTENTION}),
    plan=plan,
    examples=(Example(before=_BEFORE, after=_AFTER, source="0.13"),),
)

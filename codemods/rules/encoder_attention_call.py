"""VA403: MMEncoderAttention is built with the arguments the target has."""

from __future__ import annotations

import ast

from codemods import edits as E
from codemods.parsed_file import keyword
from codemods.plan import Plan
from codemods.rule import Example, Rule
from codemods.vision_attention import vocabulary as V

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
    if run.target.takes_multimodal_config:
        return
    for file in run.open_vision:
        for call in file.file.nodes[ast.Call]:
            if not isinstance(call, ast.Call) or not V.vllm_call(run.project, file.file, call, V.ENCODER_ATTENTION):
                continue
            if keyword(call, "multimodal_config") is not None:
                file.rewrite(RULE, call, "MMEncoderAttention reads the configuration itself", [])
                file.remove_argument(call, "multimodal_config")
            elif len(call.args) == _POSITION + 1 and not any(isinstance(a, ast.Starred) for a in call.args):
                file.rewrite(
                    RULE,
                    call,
                    "MMEncoderAttention reads the configuration itself",
                    [E.RemoveArgument(E.Ref.of(call), _POSITION)],
                )
                file.removed.append(E.Ref.of(call.args[_POSITION]))


_POSITION = 5  # of multimodal_config among the constructor's arguments in 0.13 and 0.14


RULE = Rule(
    code="VA403",
    name="encoder-attention-call",
    summary="MMEncoderAttention is no longer given multimodal_config from 0.15 on.",
    why=(
        "The constructor took multimodal_config in 0.13 and 0.14 only. From 0.15 on it is a TypeError, "
        "and the configuration is read from vLLM's context."
    ),
    follows="vLLM 0.15.0, PR #31972",
    names=frozenset({V.ENCODER_ATTENTION}),
    plan=plan,
    examples=(Example(before=_BEFORE, after=_AFTER, source="0.13"),),
)

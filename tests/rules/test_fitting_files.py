"""A file that fits its target is not modernised: each form beside the one that differs from it by a real fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.vision_model import Port, edited, porter

MODEL = """\
import torch
from torch import nn
from vllm.model_executor.layers.attention.mm_encoder_attention import MMEncoderAttention
from vllm.model_executor.layers.rotary_embedding.common import ApplyRotaryEmb
from vllm.model_executor.models.vision import get_vit_attn_backend
from vllm.v1.attention.backends.registry import AttentionBackendEnum


def rotated(q, k, cos, sin):
    return q * cos + k * sin


class VisionAttention(nn.Module):
    def __init__(self, hidden: int, heads: int, prefix: str = "") -> None:
        super().__init__()
        self.heads = heads
        self.rotary = ApplyRotaryEmb(enforce_enable=True)
        self.attn = MMEncoderAttention(heads, hidden // heads, scale=(hidden // heads) ** -0.5, prefix=prefix)

    def forward(self, x: torch.Tensor, cu_seqlens: torch.Tensor, max_seqlen: int | None = None) -> torch.Tensor:
        q, k, v = (t.unflatten(-1, (self.heads, -1)) for t in x.chunk(3, dim=-1))
        return self.attn(query=q, key=k, value=v, cu_seqlens=cu_seqlens, max_seqlen=max_seqlen)


class VisionTower(nn.Module):
    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.layer = VisionAttention(hidden, heads)
        self.attn_backend = get_vit_attn_backend(head_size=hidden // heads, dtype=torch.get_default_dtype())

    def longest(self, cu_seqlens: torch.Tensor) -> int | None:
        max_seqlen = None
        if self.attn_backend != AttentionBackendEnum.TORCH_SDPA:
            max_seqlen = (cu_seqlens[1:] - cu_seqlens[:-1]).max()
        return max_seqlen

    def forward(self, x: torch.Tensor, cu_seqlens: torch.Tensor) -> torch.Tensor:
        return self.layer(x, cu_seqlens, max_seqlen=self.longest(cu_seqlens))
"""

MODULE = "vllm.model_executor.layers.attention.mm_encoder_attention"
OLD_MODULE = "vllm.attention.layers.mm_encoder_attention"
OLD_ENUM = ("vllm.v1.attention.backends.registry", "vllm.attention.backends.registry")
LONGEST = "(cu_seqlens[1:] - cu_seqlens[:-1]).max()"
LOOKUP = (
    "        self.attn_backend = get_vit_attn_backend(head_size=hidden // heads, dtype=torch.get_default_dtype())\n"
)
PASSED = "max_seqlen=self.longest(cu_seqlens)"
HELPER = """\
def rotated(q, k, cos, sin):
    return q * cos + k * sin
"""
UNPACK = "        q, k, v = (t.unflatten"
ROTATE = "        q, k = rotated(q, k, *self.angles)\n        return self.attn"


def guard(*backends: str) -> tuple[str, str]:
    named = ", ".join(f"AttentionBackendEnum.{name}" for name in backends)
    refusal = 'raise RuntimeError(f"{self.attn_backend} does not run this tower")'
    return LOOKUP, f"{LOOKUP}        if self.attn_backend not in {{{named}}}:\n            {refusal}\n"


def rotary(helper: str, call: str) -> tuple[str, ...]:
    return (HELPER, helper, "        return self.attn", f"        {call}\n        return self.attn")


GIVEN_OP = rotary(
    "def rotated(q, k, cos, sin, apply: ApplyRotaryEmb):\n    return apply(q, cos, sin), apply(k, cos, sin)\n",
    "q, k = rotated(q, k, *self.angles, self.rotary)",
)
BUILT_OP = rotary(
    "def rotated(q, k, cos, sin):\n    apply = ApplyRotaryEmb(enforce_enable=True)\n"
    "    return apply(q, cos, sin), apply(k, cos, sin)\n",
    "q, k = rotated(q, k, *self.angles)",
)


def layer_of_vllm(module: str, name: str) -> tuple[str, ...]:
    """The tower runs a layer of vLLM's, and takes the number out of the tensor."""
    return (
        *("import get_vit_attn_backend\n", f"import get_vit_attn_backend\nfrom {module} import {name}\n"),
        *("self.layer = VisionAttention(hidden, heads)", f"self.layer = {name}(hidden, heads)"),
        *(MODEL[MODEL.index("class VisionAttention") : MODEL.index("class VisionTower")], ""),
        *(LONGEST, f"{LONGEST}.item()"),
    )


MODELS = "vllm.model_executor.models"
AT_0_13 = (MODULE, OLD_MODULE, *OLD_ENUM)
UNREAD_OVERRIDE = (
    "    def __init__(self, hidden: int, heads: int) -> None:",
    "    def __init__(self, hidden: int, heads: int, attn_backend_override=None) -> None:",
    "class VisionTower",
    "def build(config):\n    return VisionTower(64, 4, attn_backend_override=config.mm_encoder_attn_backend)\n\n\n"
    "class VisionTower",
)

# name: (target, edits); nothing is changed, and nothing is said
FITS: dict[str, tuple[str, tuple[str, ...]]] = {
    "a module that still has the class": ("0.32", ()),
    "annotations that are wrong, around tensors": ("0.18", ()),
    "a length that cannot be followed": ("0.32", (PASSED, "max_seqlen=self.lengths['most']")),
    "a length out of a helper of another package": ("0.32", (PASSED, "max_seqlen=lengths_of(cu_seqlens)[0]")),
    "a number of another function": (
        "0.32",
        (HELPER, "def padding(x):\n    max_seqlen = 7\n    return max(max_seqlen, x)\n"),
    ),
    "a number for a layer of vLLM's that calls a kernel itself": (
        "0.32",
        (
            *layer_of_vllm(f"{MODELS}.mimo_audio", "AudioEncoderTransformerLayer"),
            *("self.longest(cu_seqlens))", "self.longest(cu_seqlens), rope_position_embeddings=None)"),
        ),
    ),
    "a check for every backend of its release": ("0.15", guard("FLASH_ATTN", "ROCM_AITER_FA", "TORCH_SDPA")),
    "a check for every backend of a later release": (
        "0.20",
        guard("FLASH_ATTN", "ROCM_AITER_FA", "TRITON_ATTN", "TORCH_SDPA", "FLASHINFER"),
    ),
    "a tower for one kernel": ("0.32", guard("FLASH_ATTN")),
    "a rotary helper that is given the op": ("0.32", GIVEN_OP),
    "an op built in a forward, while that works": ("0.13", (*AT_0_13, *BUILT_OP)),
    "an override that nothing reads": ("0.14", UNREAD_OVERRIDE),
}

# name: (target, edits, rule); a fault of the target, which is mended or told of
BREAKS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "a module that went": ("0.32", AT_0_13, "VA601"),
    "a number taken out of the tensor": ("0.32", (LONGEST, f"{LONGEST}.item()"), "VA303"),
    "a number kept in a dictionary": (
        "0.32",
        (
            PASSED,
            "max_seqlen=self.made(cu_seqlens)['most']",
            "    def longest",
            f"    def made(self, cu_seqlens):\n        return {{'most': {LONGEST}.item()}}\n\n    def longest",
        ),
        "VA303",
    ),
    "a number for a layer of vLLM's that holds the op": (
        "0.32",
        layer_of_vllm(f"{MODELS}.glm4_1v", "Glm4vVisionBlock"),
        "VA303",
    ),
    "a check for every backend of an earlier release": (
        "0.20",
        guard("FLASH_ATTN", "ROCM_AITER_FA", "TORCH_SDPA"),
        "VA301",
    ),
    "a check that names a backend that went": ("0.15", guard("FLASH_ATTN", "XFORMERS", "TORCH_SDPA"), "VA301"),
    "an op built in a forward": ("0.14", BUILT_OP, "VA501"),
    "an override that nothing reads, in an older file": ("0.14", (*AT_0_13, *UNREAD_OVERRIDE), "VA401"),
}


@pytest.fixture
def port(tmp_path: Path) -> Port:
    return porter(tmp_path)


@pytest.mark.parametrize(("target", "edits"), FITS.values(), ids=FITS)
def test_what_fits_is_left_alone(target: str, edits: tuple[str, ...], port: Port) -> None:
    text = edited(MODEL, *edits)
    ported = port(text, target)
    assert (ported.rewrites, ported.findings) == ([], [])
    assert ported.text == text


@pytest.mark.parametrize(("target", "edits", "rule"), BREAKS.values(), ids=BREAKS)
def test_what_breaks_is_not(target: str, edits: tuple[str, ...], rule: str, port: Port) -> None:
    ported = port(edited(MODEL, *edits), target)
    assert rule in {line.code for line in [*ported.rewrites, *ported.findings]}


def test_only_what_carries_the_number_is_annotated_anew(port: Port) -> None:
    other = "\n\ndef other(layer: nn.Module, x, max_seqlen: int):\n    return layer(x, max_seqlen)\n"
    ported = port(edited(MODEL, LONGEST, f"{LONGEST}.item()") + other, "0.32")
    assert f"max_seqlen = {LONGEST}\n" in ported.text
    assert "def longest(self, cu_seqlens: torch.Tensor) -> torch.Tensor | None:" in ported.text
    assert "max_seqlen: torch.Tensor | None" in ported.parameters("VisionAttention.forward")
    assert ported.text.endswith(other)

"""The old API by name, as data. Names match only where they resolve to vLLM (or to the kernel's own library)."""

from __future__ import annotations

import ast
import re

from codemods.parsed_file import ParsedFile, spelled
from codemods.project import Project

MULTI_HEAD_ATTENTION = "MultiHeadAttention"
ENCODER_ATTENTION = "MMEncoderAttention"
GET_BACKEND = "get_vit_attn_backend"
GET_FLASH = "maybe_get_vit_flash_attn_backend"
UPSTREAM_FA = "check_upstream_fa_availability"
XFORMERS_AVAILABLE = "check_xformers_availability"
ENUMS = ("AttentionBackendEnum", "_Backend")

FLASH_KERNEL = "flash_attn_varlen_func"
FLASH_WRAPPER = "vit_flash_attn_wrapper"
SDPA_KERNEL = "scaled_dot_product_attention"
SDPA_WRAPPER = "vit_torch_sdpa_wrapper"
DEVICE_KERNELS = ("_npu_flash_attention_unpad", "npu_fusion_attention", "npu_fused_infer_attention_score")
XFORMERS_KERNELS = ("memory_efficient_attention", "memory_efficient_attention_forward")
XFORMERS_WRAPPER = "vit_xformers_attn_wrapper"
WRAPPERS = (FLASH_WRAPPER, SDPA_WRAPPER, XFORMERS_WRAPPER)

# What vision attention is made of: classes, choices of a backend, kernels.
ATTENTION = (
    MULTI_HEAD_ATTENTION,
    ENCODER_ATTENTION,
    GET_BACKEND,
    GET_FLASH,
    UPSTREAM_FA,
    XFORMERS_AVAILABLE,
    *WRAPPERS,
)

# vLLM's own rotary helpers up to 0.12, all gone in 0.13
ROTARY_HELPERS = (
    "apply_rotary_pos_emb_vision",
    "apply_rotary_emb_dispatch",
    "apply_rotary_emb_torch",
    "dispatch_rotary_emb_function",
)

# Constructor parameters that only ever carried the choice of a backend.
BACKEND_PARAMETERS = ("attn_backend", "use_upstream_fa", "attn_backend_override")
OVERRIDE = "attn_backend_override"
CONFIG_OVERRIDE = "mm_encoder_attn_backend"

# A file without any of these has no part in vision attention, unless it imports from one that has.
VISION = re.compile(
    r"\b(?:"
    + "|".join(
        [
            MULTI_HEAD_ATTENTION,
            ENCODER_ATTENTION,
            GET_BACKEND,
            GET_FLASH,
            UPSTREAM_FA,
            FLASH_KERNEL,
            *DEVICE_KERNELS,
            *XFORMERS_KERNELS,
            *WRAPPERS,
            *ENUMS,
            *ROTARY_HELPERS,
            *BACKEND_PARAMETERS,
        ]
    )
    + r")\b"
)


def last(name: str | None) -> str | None:
    return name.rpartition(".")[2] if name else None


def vllm_call(project: Project, file: ParsedFile, node: ast.AST, *names: str) -> bool:
    """Whether the node is a call of one of vLLM's functions or classes of these names."""
    if not isinstance(node, ast.Call) or not may_mean(project, file, node.func, names):
        return False
    return last(project.vllm(file, node.func)) in names


def is_backend_enum(project: Project, file: ParsedFile, node: ast.AST) -> bool:
    """Whether the node is a member of vLLM's backend enum, as `AttentionBackendEnum.FLASH_ATTN`."""
    if not isinstance(node, ast.Attribute) or not may_mean(project, file, node.value, ENUMS):
        return False
    return last(project.vllm(file, node.value)) in ENUMS


def may_mean(project: Project, file: ParsedFile, node: ast.AST, names: tuple[str, ...]) -> bool:
    """Whether an expression can stand for one of vLLM's names at all: a cheap look before the names are followed."""
    if isinstance(node, ast.Attribute):
        return node.attr in names
    if not isinstance(node, ast.Name) or node.id not in file.imported:
        return False
    return any(node.id in project.aliases(file).get(name, ()) for name in names)


def called(node: ast.Call) -> str | None:
    """The last name of what a call calls: `f`, `x.f` and `self.f` all give `f`."""
    return spelled(node.func) or None

"""Which backend vision attention takes, asked and answered as old releases did; the installed vLLM decides.

Sources: vLLM 0.10.2 to 0.14.0, `model_executor/models/vision.py`, `attention/layer.py`, `platforms/interface.py`.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch

from codemods.target import target
from porting.private_modules import Importer
from porting.shim.installed import installed_release

Kernel = Callable[..., Any]

FLASH = ("FLASH_ATTN", "ROCM_AITER_FA")
KNOWN = (*FLASH, "TORCH_SDPA")  # what both old releases and the installed one have for vision


class Gone(NamedTuple):
    """A backend that the installed vLLM no longer has: equal to itself alone."""

    name: str


def installed_enum() -> Any:
    """The enumeration of backends of the installed vLLM."""
    return importlib.import_module(target(installed_release()).backend_enum).AttentionBackendEnum


@cache
def old_enum(name: str, members: tuple[str, ...]) -> type:
    """The enumeration of an old release: its members are those of the installed one where that still has them."""
    now = installed_enum().__members__
    return type(name, (), {member: now.get(member, Gone(member)) for member in members})


def vision_backend(head_size: int, dtype: torch.dtype | None = None, override: Any = None) -> Any:
    """The backend for a head of that size, in the default dtype unless another is given.

    What an old release did not know for vision is TORCH_SDPA.
    """
    if override is not None:
        return override
    get = importlib.import_module("vllm.model_executor.models.vision").get_vit_attn_backend
    backend = get(head_size, dtype or torch.get_default_dtype())
    return backend if backend.name in KNOWN else installed_enum().TORCH_SDPA


def backend_getter(importer: Importer) -> Callable[..., Any]:
    """`get_vit_attn_backend` for one old file.

    Where its attention has no arm for TORCH_SDPA but one for XFORMERS, that is what it gets instead: xFormers was there
    in its release, and computes the same.
    """
    reads = {node.attr for node in ast.walk(importer.tree) if isinstance(node, ast.Attribute)}
    no_sdpa = "XFORMERS" in reads and "TORCH_SDPA" not in reads

    def get_vit_attn_backend(
        head_size: int = 64,  # 0.10.2 asked without a size or a dtype
        dtype: torch.dtype | None = None,
        support_fa: bool = True,
        attn_backend_override: Any = None,
    ) -> Any:
        backend = vision_backend(head_size, dtype, attn_backend_override)
        if backend.name in FLASH and not support_fa:
            backend = installed_enum().TORCH_SDPA
        return Gone("XFORMERS") if no_sdpa and backend.name == "TORCH_SDPA" else backend

    return get_vit_attn_backend


def flash_backend_0_11(kernel: Kernel) -> Callable[..., tuple[Any, Any]]:
    """`maybe_get_vit_flash_attn_backend` of 0.11.1 and 0.11.2: the backend, and the flash kernel where it is one."""

    def maybe_get_vit_flash_attn_backend(
        attn_backend: Any, use_upstream_fa: bool, attn_backend_override: Any = None
    ) -> tuple[Any, Any]:
        return attn_backend, kernel if attn_backend.name in FLASH else None

    return maybe_get_vit_flash_attn_backend


def flash_backend(kernel: Kernel) -> Callable[..., tuple[Any, Any]]:
    """The same of 0.12."""

    def maybe_get_vit_flash_attn_backend(attn_backend: Any, attn_backend_override: Any = None) -> tuple[Any, Any]:
        return attn_backend, kernel if attn_backend.name in FLASH else None

    return maybe_get_vit_flash_attn_backend


def flash_kernel(kernel: Kernel) -> Callable[..., Any]:
    """The same of 0.13, which gave the kernel alone."""
    return lambda attn_backend: kernel if attn_backend is not None and attn_backend.name in FLASH else None

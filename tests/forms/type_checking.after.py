from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:
    from vllm.v1.attention.backends.registry import AttentionBackendEnum


def backend_of(tower: nn.Module) -> AttentionBackendEnum | None:
    return getattr(tower, "attn_backend", None)

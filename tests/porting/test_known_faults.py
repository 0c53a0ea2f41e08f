"""Faults of vLLM's own files that the strict kernels find without being told."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from porting import host
from porting.reference import BACKENDS, ContractViolation, strict_kernels

pytestmark = [pytest.mark.vllm, pytest.mark.usefixtures("groups")]

SQUARES = 6


def molmo_pooling() -> Any:
    from vllm.model_executor.models.molmo import MultiHeadDotProductAttention

    config = SimpleNamespace(image_emb_dim=64, image_num_heads=2, image_num_key_value_heads=2)
    return host.build(lambda: MultiHeadDotProductAttention(config), torch.float32)


@pytest.mark.parametrize("backend", BACKENDS)
def test_molmo_pools_by_cross_attention(backend: str) -> None:
    """vLLM 0.32: one query to the four patches of a square, which packed kernels take for self-attention.

    The native path computes it rightly. A real flash kernel reads the keys of the first quarter of the squares.
    """
    query, patches = torch.randn(SQUARES, 1, 64), torch.randn(SQUARES, 4, 64)
    assert molmo_pooling()(query, patches).shape == (SQUARES, 1, 64)

    with strict_kernels(backend):
        pooling = molmo_pooling()
        with pytest.raises(ContractViolation, match=re.escape(f"must have the {SQUARES} tokens of q")):
            pooling(query, patches)

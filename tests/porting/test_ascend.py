"""Ascend's own encoder attention, from the wheels of vllm-ascend, calls the strict operators as they insist on.

Its classes are run as they are: `torch_npu` is three functions of ours, and what else they import is stood in for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch

from porting import host
from porting.reference import Kernels, npu_flash_attention_unpad, npu_fused_infer_attention_score, npu_fusion_attention
from porting.reference.ascend import ascend_like_attention
from tests.wheels import ascend_files

pytestmark = pytest.mark.vllm

# The releases that fit vLLM 0.32's `MMEncoderAttention`, where each keeps its class, and the operator that it calls.
CLASSES = {
    "0.18.0": ("ops/mm_encoder_attention.py", "AscendMMEncoderAttention", "npu_fusion_attention"),
    "0.18.0 for the 310P": (
        "_310p/ops/mm_encoder_attention.py",
        "AscendMMEncoderAttention310",
        "npu_flash_attention_unpad",
    ),
    "0.23.0": ("ops/mm_encoder_attention.py", "AscendMMEncoderAttention", "npu_fused_infer_attention_score"),
}


def ascend_class(name: str, kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The class of that release. Skips where its wheel cannot be had."""
    path, class_name, _ = CLASSES[name]
    files = ascend_files(name.split()[0])
    operators = {
        "_npu_flash_attention_unpad": kernels.recording(npu_flash_attention_unpad),
        "npu_fusion_attention": kernels.recording(npu_fusion_attention),
        "npu_fused_infer_attention_score": kernels.recording(npu_fused_infer_attention_score),
    }
    utilities = {"vllm_version_is": lambda version: False, "weak_ref_tensors": lambda tensors: tensors}
    for stood_in, names in (("torch_npu", operators), ("vllm_ascend", {}), ("vllm_ascend.utils", utilities)):
        monkeypatch.setitem(sys.modules, stood_in, SimpleNamespace(**names))
    graphs = files / "worker" / "encoder_acl_graph.py"
    if graphs.is_file():
        monkeypatch.setitem(sys.modules, "vllm_ascend.worker", SimpleNamespace())
        monkeypatch.setitem(sys.modules, "vllm_ascend.worker.encoder_acl_graph", module(graphs, monkeypatch))
    return getattr(module(files / path, monkeypatch), class_name)


def module(path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = ModuleType(path.stem)
    monkeypatch.setitem(sys.modules, made.__name__, made)  # dataclasses look there
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), made.__dict__)
    return made


@pytest.fixture(params=CLASSES)
def built(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Kernels, Callable[..., Any], str]:
    """A release's attention, ready to be built as it is on an NPU, and the operator that it is to call."""
    kernels = Kernels("npu")
    cls = ascend_class(request.param, kernels, monkeypatch)

    def build(*args: Any, **kwargs: Any) -> Any:
        with host.vllm_config(), patch.object(cls, "forward_cpu", cls.forward_oot):
            return cls(*args, **kwargs)

    return kernels, build, CLASSES[request.param][2]


@pytest.fixture(scope="module", autouse=True)
def vllm() -> None:
    """Imported before torch_npu is stood in for, since it looks whether there is one."""
    host.prepare_process()
    with host.vllm_config():
        import vllm.model_executor.layers.attention.mm_encoder_attention
        import vllm.v1.worker.encoder_cudagraph  # noqa: F401


def qkv(kv_heads: int, head_dim: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Two pictures of 4 and 7 tokens, with 4 heads of query."""
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(1, 11, heads * head_dim, generator=generator) for heads in (4, kv_heads, kv_heads))


CU_SEQLENS = torch.tensor([0, 4, 11], dtype=torch.int32)


@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize("head_dim", [64, 72, 80, 128])
def test_its_operator_is_called_and_computes_attention(
    built: tuple[Kernels, Callable[..., Any], str], head_dim: int, kv_heads: int
) -> None:
    from vllm.model_executor.layers.attention.mm_encoder_attention import MMEncoderAttention

    kernels, build, operator = built
    arguments = (*qkv(kv_heads, head_dim), CU_SEQLENS)
    with host.vllm_config():
        native = MMEncoderAttention(4, head_dim, num_kv_heads=kv_heads)(*arguments)

    output = build(4, head_dim, num_kv_heads=kv_heads)(*arguments)

    assert [(call.kernel, call.shape) for call in kernels.calls] == [
        (operator, (11, 4, 128 if 64 < head_dim < 128 else head_dim))
    ]
    torch.testing.assert_close(output, native, rtol=0, atol=1e-6)

    ours = ascend_like_attention(MMEncoderAttention, npu_flash_attention_unpad)
    with host.vllm_config():
        like = ours(4, head_dim, num_kv_heads=kv_heads)(*arguments)
    torch.testing.assert_close(output, like, rtol=0, atol=1e-6)


def test_a_scale_of_its_own_is_honoured_since_0_23(built: tuple[Kernels, Callable[..., Any], str]) -> None:
    _, build, operator = built
    arguments = (*qkv(4, 64), CU_SEQLENS)

    usual, sharper = (build(4, 64, scale=scale)(*arguments) for scale in (64**-0.5, 1.0))

    assert torch.equal(usual, sharper) == (operator != "npu_fused_infer_attention_score")

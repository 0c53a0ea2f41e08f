"""Strict kernels in the place of a real vLLM's, and everything as it was afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from porting import host
from porting.reference import BACKENDS, Call, ContractViolation, strict_kernels
from porting.reference.watch import watch

pytestmark = pytest.mark.vllm

HEADS, HEAD_DIM = 2, 80
KERNELS = {
    "flash": ("flash_attn_varlen_func", HEAD_DIM),
    "triton": ("context_attention_fwd", HEAD_DIM),
    "npu": ("npu_flash_attention_unpad", 128),
}


@pytest.fixture(scope="module")
def attention_class() -> Any:
    host.prepare_process()
    from vllm.model_executor.layers.attention.mm_encoder_attention import MMEncoderAttention

    return MMEncoderAttention


@pytest.fixture(autouse=True)
def configured() -> Iterator[None]:
    with host.vllm_config():
        yield


def qkv() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of `(1, 11, heads * head_dim)`: two pictures of 4 and 7 tokens."""
    return torch.randn(3, 1, 11, HEADS * HEAD_DIM, generator=torch.Generator().manual_seed(0)).unbind(0)


CU_SEQLENS = torch.tensor([0, 4, 11], dtype=torch.int32)
MAX_SEQLEN = torch.tensor(7)


@pytest.mark.parametrize("backend", BACKENDS)
def test_attention_calls_the_strict_kernel_and_gives_the_same_numbers(attention_class: Any, backend: str) -> None:
    native = attention_class(HEADS, HEAD_DIM, scale=0.2)(*qkv(), CU_SEQLENS, MAX_SEQLEN)

    with strict_kernels(backend) as kernels:
        output = attention_class(HEADS, HEAD_DIM, scale=0.2)(*qkv(), CU_SEQLENS, MAX_SEQLEN)

    kernel, padded = KERNELS[backend]
    assert kernels.calls == [Call(kernel, (11, HEADS, padded))]
    assert kernels.problems == []
    torch.testing.assert_close(output, native, rtol=0, atol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_batches_of_equal_pictures_need_no_lengths(attention_class: Any, backend: str) -> None:
    query, key, value = (tensor.view(1, 11, HEADS, HEAD_DIM).expand(3, -1, -1, -1) * 1 for tensor in qkv())
    native = attention_class(HEADS, HEAD_DIM)(query, key, value)

    with strict_kernels(backend) as kernels:
        output = attention_class(HEADS, HEAD_DIM)(query, key, value)

    assert [call.shape[0] for call in kernels.calls] == [33]
    torch.testing.assert_close(output, native, rtol=0, atol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_broken_rule_is_raised_and_kept(attention_class: Any, backend: str) -> None:
    with strict_kernels(backend) as kernels:
        attention = attention_class(HEADS, HEAD_DIM)
        with pytest.raises(ContractViolation, match=r"must (cover the 11 tokens|begin with 0)"):
            attention(*qkv(), CU_SEQLENS[1:], MAX_SEQLEN)

    assert len(kernels.problems) == len(kernels.calls) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_everything_is_put_back(attention_class: Any, backend: str) -> None:
    def state() -> dict[str, object]:
        from vllm.model_executor import custom_op
        from vllm.platforms import current_platform
        from vllm.v1.attention.backends import fa_utils
        from vllm.v1.attention.ops import triton_prefill_attention

        return {
            "attention": {name: value for name, value in vars(attention_class).items() if name != "__doc__"},
            "platform": dict(vars(type(current_platform))),
            "flash": getattr(fa_utils, "flash_attn_varlen_func", None),
            "triton": triton_prefill_attention.context_attention_fwd,
            "registry": dict(custom_op.op_registry_oot),
        }

    before = state()
    with pytest.raises(KeyError), strict_kernels(backend):
        assert state() != before
        raise KeyError
    assert state() == before

    attention = attention_class(HEADS, HEAD_DIM)
    with strict_kernels(backend) as kernels:
        pass
    attention(*qkv(), CU_SEQLENS, MAX_SEQLEN)
    assert kernels.calls == []


def test_a_subclass_is_not_replaced_on_an_npu(attention_class: Any) -> None:
    class Own(attention_class):  # type: ignore[misc]
        pass

    with strict_kernels("npu") as kernels:
        Own(HEADS, HEAD_DIM)(*qkv(), CU_SEQLENS, MAX_SEQLEN)

    assert kernels.calls == []


def test_grouped_keys_are_repeated_for_an_npu(attention_class: Any) -> None:
    query, key, value = qkv()
    grouped = (query, key[..., :HEAD_DIM].contiguous(), value[..., :HEAD_DIM].contiguous())
    native = attention_class(HEADS, HEAD_DIM, num_kv_heads=1)(*grouped, CU_SEQLENS, MAX_SEQLEN)

    for backend in BACKENDS:
        with strict_kernels(backend) as kernels:
            output = attention_class(HEADS, HEAD_DIM, num_kv_heads=1)(*grouped, CU_SEQLENS, MAX_SEQLEN)
        assert len(kernels.calls) == 1
        torch.testing.assert_close(output, native, rtol=0, atol=1e-6)


def test_an_integer_max_seqlen_does_not_reach_the_kernel(attention_class: Any) -> None:
    """vLLM's own wrappers refuse it: they call `.item()` on it, and are declared to take a tensor."""
    for backend in ("flash", "triton"):
        with strict_kernels(backend) as kernels, pytest.raises(RuntimeError, match="max_seqlen"):
            attention_class(HEADS, HEAD_DIM)(*qkv(), CU_SEQLENS, 7)
        assert kernels.calls == []


class Layers(torch.nn.Module):
    """A tower: the layers of attention that it is given, one after the other."""

    def __init__(self, *layers: torch.nn.Module) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(layers)

    def forward(self) -> None:
        for layer in self.layers:
            layer(*qkv(), CU_SEQLENS, MAX_SEQLEN)


class ByHand(torch.nn.Module):
    """Attention as it was before: PyTorch's."""

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        heads = (tensor.view(1, 11, HEADS, HEAD_DIM).transpose(1, 2) for tensor in (query, key, value))
        return torch.nn.functional.scaled_dot_product_attention(*heads)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_layers_that_called_a_kernel_are_seen(attention_class: Any, backend: str) -> None:
    with strict_kernels(backend) as kernels:
        tower = Layers(attention_class(HEADS, HEAD_DIM), attention_class(HEADS, HEAD_DIM))
        with watch(tower, kernels) as seen:
            tower()

    assert set(seen.layers) == {"layers.0", "layers.1"}
    assert (seen.idle, seen.unlayered, seen.around) == ({}, 0, [])


@pytest.mark.parametrize("backend", BACKENDS)
def test_attention_around_the_kernels_is_seen(attention_class: Any, backend: str) -> None:
    with strict_kernels(backend) as kernels:
        tower = Layers(attention_class(HEADS, HEAD_DIM), ByHand())
        with watch(tower, kernels) as seen:
            tower()

    (place,) = seen.around
    assert place.startswith("ByHand (test_strict_kernels.py:")


def test_a_subclass_that_an_npu_leaves_alone_is_seen(attention_class: Any) -> None:
    class Own(attention_class):  # type: ignore[misc]
        pass

    with strict_kernels("npu") as kernels:
        tower = Layers(Own(HEADS, HEAD_DIM))
        with watch(tower, kernels) as seen:
            tower()

    assert seen.idle == {"layers.0": "Own"}


def test_attention_that_is_built_in_a_forward_is_seen(attention_class: Any) -> None:
    class Late(torch.nn.Module):
        def forward(self, *args: torch.Tensor) -> torch.Tensor:
            return attention_class(HEADS, HEAD_DIM)(*args)

    with strict_kernels("flash") as kernels:
        tower = Layers(Late())
        with watch(tower, kernels) as seen:
            tower()

    assert (seen.layers, seen.unlayered) == ({}, 1)

"""The strict kernels in the place of vLLM's, in this process, for as long as a `with` block lasts.

Imports vLLM when the block is entered. What is replaced is named by module path and name, and is the same in every
release from 0.13 to 0.32 but for where it lies.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from unittest.mock import patch

import torch

from porting.reference.ascend import ascend_like_attention
from porting.reference.contract import ContractViolation
from porting.reference.flash import flash_attn_varlen_func
from porting.reference.npu import npu_flash_attention_unpad
from porting.reference.triton import context_attention_fwd

# Where vLLM keeps things: the first path that exists is that of the release at hand. 0.14 moved them all.
ATTENTION = (
    "vllm.model_executor.layers.attention.mm_encoder_attention",
    "vllm.attention.layers.mm_encoder_attention",
)
WRAPPERS = ("vllm.v1.attention.ops.vit_attn_wrappers", "vllm.attention.ops.vit_attn_wrappers")
FLASH = ("vllm.v1.attention.backends.fa_utils", "vllm.attention.utils.fa_utils")
REGISTRY = ("vllm.v1.attention.backends.registry", "vllm.attention.backends.registry")
TRITON = "vllm.v1.attention.ops.triton_prefill_attention"


@dataclass(frozen=True)
class Call:
    """A kernel that was called: its name, and the shape of its query, `(tokens, heads, head_dim)`."""

    kernel: str
    shape: tuple[int, ...]


@dataclass
class Kernels:
    """What happened inside `strict_kernels`: every call in its order, and every call that broke a rule."""

    backend: str
    calls: list[Call] = field(default_factory=list)
    problems: list[ContractViolation] = field(default_factory=list)

    def recording(self, kernel: Callable[..., Any]) -> Callable[..., Any]:
        """`kernel`, with its calls and what they break noted here."""

        def recorded(*args: Any, **kwargs: Any) -> Any:
            query = next(value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor))
            self.calls.append(Call(kernel.__name__, tuple(query.shape)))
            try:
                return kernel(*args, **kwargs)
            except ContractViolation as problem:
                self.problems.append(problem)
                raise

        return recorded


@contextmanager
def strict_kernels(backend: str) -> Iterator[Kernels]:
    """Let encoder attention that is built and run in this block call strict kernels; count what it calls.

    `backend` is one of BACKENDS: "flash" and "triton" make vLLM's own code for CUDA run, up to the kernel, on whatever
    device there is; "npu" registers an out-of-tree `MMEncoderAttention` by name as vllm-ascend does, so that subclasses
    are not replaced there and here. A call that breaks a rule raises ContractViolation out of the model's forward.
    Everything is put back at the end; attention that was built inside stays as it is. Not for several threads at once.

    Raises LookupError if the installed vLLM has no such path: no `MMEncoderAttention` before 0.13, no Triton path for
    encoders before 0.17.
    """
    kernels = Kernels(backend)
    with ExitStack() as stack:
        BACKENDS[backend](stack, kernels)
        yield kernels


def encoder_attention() -> Any:
    """vLLM's `MMEncoderAttention`. Raises LookupError before 0.13."""
    return _module(ATTENTION).MMEncoderAttention


def _flash(stack: ExitStack, kernels: Kernels) -> None:
    strict = kernels.recording(flash_attn_varlen_func)
    stack.enter_context(patch.object(_module(FLASH), "flash_attn_varlen_func", strict, create=True))
    _as_on_cuda(stack, "FLASH_ATTN")


def _triton(stack: ExitStack, kernels: Kernels) -> None:
    if not hasattr(_module(WRAPPERS), "vit_triton_attn_wrapper"):
        raise LookupError("this vLLM has no Triton path for encoder attention: it came with 0.17")
    strict = kernels.recording(context_attention_fwd)
    stack.enter_context(patch.object(import_module(TRITON), "context_attention_fwd", strict))
    _as_on_cuda(stack, "TRITON_ATTN")


def _npu(stack: ExitStack, kernels: Kernels) -> None:
    attention = encoder_attention()
    replacement = ascend_like_attention(attention, kernels.recording(npu_flash_attention_unpad))
    custom_op = next(base for base in attention.__mro__ if base.__name__ == "CustomOp")
    # A table of the class up to 0.14, of its module since.
    table = getattr(sys.modules[custom_op.__module__], "op_registry_oot", None)
    if table is None:
        table = custom_op.op_registry_oot
    stack.enter_context(patch.dict(table, {"MMEncoderAttention": replacement}))


def _as_on_cuda(stack: ExitStack, backend: str) -> None:
    """Attention takes `backend` when it is built, and its code for CUDA when it runs."""
    chosen = _module(REGISTRY).AttentionBackendEnum[backend]
    platform = type(import_module("vllm.platforms").current_platform)
    choose = classmethod(lambda cls, *args, **kwargs: chosen)
    stack.enter_context(patch.object(platform, "get_vit_attn_backend", choose))
    attention = encoder_attention()
    # Which method runs is decided when an op is built, by the platform.
    for method in ("forward_cpu", "forward_native", "forward_xpu", "forward_hip", "forward_oot"):
        stack.enter_context(patch.object(attention, method, attention.forward_cuda))


def _module(paths: tuple[str, ...]) -> Any:
    """The first of these modules that the installed vLLM has."""
    for path in paths:
        try:
            found = find_spec(path)
        except ModuleNotFoundError:  # not even its package
            continue
        if found:
            return import_module(path)
    raise LookupError(f"this vLLM has none of {', '.join(paths)}: encoder attention came with 0.13")


BACKENDS: dict[str, Callable[[ExitStack, Kernels], None]] = {"flash": _flash, "triton": _triton, "npu": _npu}

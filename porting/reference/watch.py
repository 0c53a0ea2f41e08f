"""Which attention of a tower calls kernels, and which is computed around them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from porting.reference import attention
from porting.reference.replace import Kernels, encoder_attention

SDPA = torch.nn.functional.scaled_dot_product_attention

# What attention looks like to PyTorch where no kernel of vLLM computes it.
BY_TORCH = {SDPA, torch.nn.functional.softmax, torch.softmax, torch.Tensor.softmax}


@dataclass
class Watch:
    """`layers` are the encoder attention layers that ran, by name and class; `idle` those of them that called nothing.

    `unlayered` counts kernel calls that came from no such layer: attention that was built inside a forward, or a file
    that dispatches by itself. `around` says where softmax attention was computed without a kernel, each place once;
    `masked` are those of them that give a mask or bias, which no encoder attention of vLLM takes.
    """

    layers: dict[str, str] = field(default_factory=dict)
    idle: dict[str, str] = field(default_factory=dict)
    unlayered: int = 0
    around: list[str] = field(default_factory=list)
    masked: list[str] = field(default_factory=list)

    @property
    def unserved(self) -> str:
        """Why none of a tower's attention can be encoder attention; empty where it can."""
        if self.layers or not self.masked or self.masked != self.around:
            return ""
        return f"attention takes a mask in {', '.join(self.masked)}: no encoder attention of vLLM has one"


@contextmanager
def watch(tower: nn.Module, kernels: Kernels) -> Iterator[Watch]:
    """Watch `tower` run inside `strict_kernels`, which gave `kernels`."""
    seen = Watch()
    before = len(kernels.calls)
    layered = 0

    def entering(name: str) -> Callable[..., None]:
        def enter(layer: nn.Module, *_: object) -> None:
            started[name] = len(kernels.calls)
            seen.layers[name] = type(layer).__name__

        return enter

    def leaving(name: str) -> Callable[..., None]:
        def leave(layer: nn.Module, *_: object) -> None:
            nonlocal layered
            called = len(kernels.calls) - started[name]
            layered += called
            if not called:
                seen.idle[name] = type(layer).__name__

        return leave

    started: dict[str, int] = {}
    with ExitStack() as stack:
        for name, layer in tower.named_modules():
            if isinstance(layer, encoder_attention()):
                stack.callback(layer.register_forward_pre_hook(entering(name)).remove)
                stack.callback(layer.register_forward_hook(leaving(name)).remove)
        stack.enter_context(AroundKernels(seen))
        yield seen
    seen.unlayered = len(kernels.calls) - before - layered


class AroundKernels(TorchFunctionMode):
    """Notes the places that call BY_TORCH, but for the strict kernels themselves."""

    def __init__(self, seen: Watch) -> None:
        super().__init__()
        self.seen = seen

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in BY_TORCH:
            place = _place()
            if place and place not in self.seen.around:
                self.seen.around.append(place)
                if func is SDPA and _mask(*args, **(kwargs or {})) is not None:
                    self.seen.masked.append(place)
        return func(*args, **(kwargs or {}))


def _mask(query: object, key: object, value: object, attn_mask: object = None, *_: object, **__: object) -> object:
    """The mask that `scaled_dot_product_attention` was called with."""
    return attn_mask


def _place() -> str:
    """The innermost module that is running, in words; empty inside a strict kernel."""
    frame: FrameType | None = sys._getframe()
    while frame:
        if frame.f_code is attention.attend.__code__:
            return ""
        module = frame.f_locals.get("self")
        if isinstance(module, nn.Module) and not type(module).__module__.startswith("torch."):
            return f"{type(module).__name__} ({Path(frame.f_code.co_filename).name}:{frame.f_lineno})"
        frame = frame.f_back
    return ""

"""Run by a Python that has vLLM: whether rotary modules give the same numbers before and after they were ported.

`python rotary_numbers.py FOLDER`, with pairs `NAME.AXES.before.py` and `NAME.AXES.after.py` in it (3 axes or 4), prints
a line for each pair whose results differ in any bit, in shape or in dtype. The functions that older vLLM had are stood
in for by ones that do what they are documented to do off CUDA; ApplyRotaryEmb is the real one.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

HEAD, HEADS, LENGTH = 64, 3, 7
DTYPES = (torch.float32, torch.bfloat16)


def neighbours_or_halves(x: torch.Tensor, neox: bool) -> tuple[torch.Tensor, torch.Tensor]:
    return x.chunk(2, dim=-1) if neox else (x[..., ::2], x[..., 1::2])


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, is_neox_style: bool = True) -> torch.Tensor:
    """One head turned: cos and sin are half as wide as a head and are brought to the dtype of x."""
    cos, sin = (angle.unsqueeze(-2).to(x.dtype) for angle in (cos, sin))
    one, two = neighbours_or_halves(x, is_neox_style)
    turned = (one * cos - two * sin, two * cos + one * sin)
    return torch.cat(turned, dim=-1) if is_neox_style else torch.stack(turned, dim=-1).flatten(-2)


def rotate_for_vision(t: torch.Tensor, *angles: torch.Tensor) -> torch.Tensor:
    """vLLM's own helper: until 0.11 given the angles and computing in float32, in 0.12 given cos and sin."""
    if len(angles) == 1:
        return rotate(t.float(), angles[0].cos(), angles[0].sin()).type_as(t)
    return rotate(t, *angles)


OLD = {
    "vllm.model_executor.layers.rotary_embedding.common": {
        "apply_rotary_emb_torch": rotate,
        "apply_rotary_emb_dispatch": rotate,
        "dispatch_rotary_emb_function": lambda default=None: default or partial(rotate, is_neox_style=True),
    },
    "vllm.model_executor.models.qwen2_vl": {"apply_rotary_pos_emb_vision": rotate_for_vision},
    "vllm.platforms": {"current_platform": types.SimpleNamespace(is_cuda=lambda: False, is_rocm=lambda: False)},
}


@contextlib.contextmanager
def modules(contents: dict[str, dict[str, Any]]) -> Iterator[None]:
    """`vllm`, for as long as this lasts, is these modules and nothing else."""
    kept = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "vllm"}
    for name in kept:
        del sys.modules[name]
    for name, members in contents.items():
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            module = sys.modules.setdefault(".".join(parts[:end]), types.ModuleType(".".join(parts[:end])))
            module.__path__ = []
        vars(module).update(members)
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
            del sys.modules[name]
        sys.modules.update(kept)


def built(path: Path) -> nn.Module:
    found: dict[str, Any] = {"__name__": "ported"}
    exec(compile(path.read_text(), path, "exec"), found)
    return found["Attention"]()


def results(attention: Callable[..., Any], dtype: torch.dtype, axes: int) -> list[torch.Tensor]:
    torch.manual_seed(0)
    shape = (LENGTH, HEADS, HEAD) if axes == 3 else (2, LENGTH, HEADS, HEAD)
    q, k = (torch.randn(shape).to(dtype) for _ in range(2))
    angles = torch.randn(LENGTH, HEAD // 2) * 40
    return [*attention(q, k, angles)]


def difference(wanted: list[torch.Tensor], found: list[torch.Tensor]) -> str | None:
    for a, b in zip(wanted, found, strict=True):
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            return f"{a.dtype} {tuple(a.shape)} became {b.dtype} {tuple(b.shape)}"
        if not torch.equal(a, b):
            return f"{a.dtype} differs by up to {(a.float() - b.float()).abs().max()}"
    return None


def main(folder: str) -> None:
    befores = sorted(Path(folder).glob("*.before.py"))
    wanted = {}
    with modules(OLD):
        for path in befores:
            attention, axes = built(path), int(path.name.split(".")[-3])
            wanted[path] = [results(attention, dtype, axes) for dtype in DTYPES]
    from vllm.config import VllmConfig, set_current_vllm_config

    with set_current_vllm_config(VllmConfig()):
        for path in befores:
            attention, axes = (
                built(path.with_name(path.name.replace(".before.", ".after."))),
                int(path.name.split(".")[-3]),
            )
            for dtype, before in zip(DTYPES, wanted[path], strict=True):
                problem = difference(before, results(attention, dtype, axes))
                if problem is not None:
                    print(f"{path.name}: {problem}")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Rotary embedding of vision towers as releases up to 0.12 had it, by plain tensor arithmetic.

Sources: vLLM 0.10.2 to 0.13.0, `model_executor/layers/rotary_embedding`, `model_executor/models/qwen2_vl.py`.
Tensors are `(..., tokens, heads, head_dim)`, cosines and sines `(tokens, rotary_dim / 2)`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

Rotate = Callable[..., torch.Tensor]


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, is_neox_style: bool = True) -> torch.Tensor:
    """Rotate all of `x`, in its own dtype: halves are pairs (Neox), or neighbours are (GPT-J)."""
    cos, sin = (angle.unsqueeze(-2).to(x.dtype) for angle in (cos, sin))
    one, two = x.chunk(2, dim=-1) if is_neox_style else (x[..., ::2], x[..., 1::2])
    turned = (one * cos - two * sin, two * cos + one * sin)
    return torch.cat(turned, dim=-1) if is_neox_style else torch.stack(turned, dim=-1).flatten(-2)


def flash_rotary(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool = False, **_: Any
) -> torch.Tensor:
    """The rotary kernel that came with flash attention: rotates the first `rotary_dim` features, keeps the rest."""
    size = 2 * cos.shape[-1]
    turned = rotate(x[..., :size], cos, sin, not interleaved)
    return turned if size == x.shape[-1] else torch.cat((turned, x[..., size:]), dim=-1)


def dispatch(default: Rotate | None = None) -> Rotate:
    """`dispatch_rotary_emb_function`: the default where one is given, as on a device without a rotary kernel."""
    return default or rotate


def apply_rotary_emb_anywhere(*args: Any, **kwargs: Any) -> Any:
    """The op `ApplyRotaryEmb` of the installed vLLM, which up to 0.14 could also be built while a model runs.

    Now ops ask for the current configuration, which is there only while a model is built. Where the kernel of its path
    for CUDA is not installed, that path is the plain one.
    """
    config = importlib.import_module("vllm.config")
    make = importlib.import_module("vllm.model_executor.layers.rotary_embedding.common").ApplyRotaryEmb
    if config.get_current_vllm_config_or_none() is not None:
        op = make(*args, **kwargs)
    else:
        with config.set_current_vllm_config(config.VllmConfig()):
            op = make(*args, **kwargs)
    try:
        importlib.import_module("vllm.vllm_flash_attn.layers.rotary")
    except ImportError:
        op.forward_cuda = op.forward_native
    return op


def rotate_by_angle(t: torch.Tensor, freqs: torch.Tensor) -> torch.Tensor:
    """`apply_rotary_pos_emb_vision` of qwen2_vl up to 0.11: by angles `(tokens, rotary_dim / 2)`, in fp32."""
    return flash_rotary(t.float(), freqs.cos(), freqs.sin()).type_as(t)


def rotate_in_own_dtype(t: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """The same in 0.12: by cosines and sines, in the tensor's dtype."""
    return rotate(t, cos, sin).type_as(t)


def get_rope_0_11(
    head_size: int,
    rotary_dim: int,
    max_position: int,
    base: float,
    is_neox_style: bool = True,
    rope_scaling: dict[str, Any] | None = None,
    dtype: torch.dtype | None = None,
    partial_rotary_factor: float = 1.0,
    dual_chunk_attention_config: dict[str, Any] | None = None,
) -> Any:
    """`get_rope` up to 0.11.2, which took the base by itself."""
    parameters = {**(rope_scaling or {}), "rope_theta": base}
    return get_rope_0_12(
        head_size,
        rotary_dim,
        max_position,
        is_neox_style,
        parameters,
        dtype,
        partial_rotary_factor,
        dual_chunk_attention_config,
    )


def get_rope_0_12(
    head_size: int,
    rotary_dim: int,
    max_position: int,
    is_neox_style: bool = True,
    rope_parameters: dict[str, Any] | None = None,
    dtype: torch.dtype | None = None,
    partial_rotary_factor: float = 1.0,
    dual_chunk_attention_config: dict[str, Any] | None = None,
) -> Any:
    """`get_rope` of 0.12, which took the number of rotated features; since 0.13 their share is a parameter."""
    if partial_rotary_factor < 1:
        rotary_dim = int(rotary_dim * partial_rotary_factor)
    share = rotary_dim / head_size
    if int(head_size * share) != rotary_dim:  # rounding must not lose a feature
        share = (rotary_dim + 0.5) / head_size
    make = importlib.import_module("vllm.model_executor.layers.rotary_embedding").get_rope
    return make(
        head_size,
        max_position,
        is_neox_style=is_neox_style,
        rope_parameters={**(rope_parameters or {}), "partial_rotary_factor": share},
        dtype=dtype,
        dual_chunk_attention_config=dual_chunk_attention_config,
    )

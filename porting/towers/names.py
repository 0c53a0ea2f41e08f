"""The two ways in which configurations name the same sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from porting.towers.tower import Shape

TinyConfig = Callable[[Shape], dict[str, Any]]


def transformers_names(**more: Any) -> TinyConfig:
    """`num_hidden_layers`, `num_attention_heads` ...; pictures of 32 by 32 pixels are 8 by 8 patches."""

    def config(shape: Shape) -> dict[str, Any]:
        return {
            "num_hidden_layers": shape.depth,
            "hidden_size": shape.hidden_size,
            "intermediate_size": 2 * shape.hidden_size,
            "num_attention_heads": shape.heads,
            "hidden_act": "gelu",
            "layer_norm_eps": 1e-6,
            "attention_dropout": 0.0,
            "image_size": 32,
            "num_channels": 3,
            "patch_size": 4,
            **more,
        }

    return config


def qwen_names(**more: Any) -> TinyConfig:
    """`depth`, `num_heads`, `in_channels` ...; two by two patches are merged, into vectors of 48."""

    def config(shape: Shape) -> dict[str, Any]:
        return {
            "depth": shape.depth,
            "hidden_size": shape.hidden_size,
            "intermediate_size": 2 * shape.hidden_size,
            "out_hidden_size": 48,
            "num_heads": shape.heads,
            "hidden_act": "silu",
            "in_channels": 3,
            "patch_size": 4,
            "temporal_patch_size": 2,
            "spatial_merge_size": 2,
            **more,
        }

    return config

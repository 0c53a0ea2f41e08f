"""A configuration for a tower of no known family: the names that the field uses, and values that fit together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from porting.towers.tower import Shape


def config(shape: Shape) -> dict[str, Any]:
    """Every width that may be the tower's own has the same value: it does not matter which one a class takes."""
    width, heads, depth = shape.hidden_size, shape.heads, shape.depth
    values: dict[tuple[str, ...], Any] = {
        ("hidden_size", "embed_dim", "d_model", "width", "hidden_dim"): width,
        ("intermediate_size", "mlp_dim", "ffn_dim", "encoder_ffn_dim", "mlp_hidden_dim"): 2 * width,
        ("num_heads", "num_attention_heads", "encoder_attention_heads", "n_heads"): heads,
        ("num_key_value_heads", "num_kv_heads"): shape.kv_heads or heads,
        ("head_dim", "head_size"): shape.head_dim,
        ("depth", "num_hidden_layers", "encoder_layers", "num_layers", "n_layers"): depth,
        ("out_hidden_size", "output_dim", "projection_dim", "text_hidden_size"): width,
        ("mlp_ratio",): 2,
        ("in_channels", "num_channels", "in_chans"): 3,
        ("image_size", "img_size"): 32,
        ("patch_size",): 4,
        ("temporal_patch_size",): 1,
        ("spatial_merge_size", "merge_size", "hidden_stride"): 2,
        ("merge_kernel_size",): (2, 2),
        ("window_size",): 16,
        ("fullatt_block_indexes", "full_attention_layers"): [depth - 1],
        ("deepstack_visual_indexes",): [0],
        ("num_position_embeddings", "num_patches"): 64,
        ("init_pos_emb_height", "init_pos_emb_width"): 8,
        ("num_mel_bins",): 8,
        ("max_source_positions",): 16,
        ("scale_embedding",): False,
        ("hidden_act", "activation_function"): "gelu",
        ("layer_norm_eps", "rms_norm_eps", "norm_eps", "layer_norm_epsilon"): 1e-5,
        ("attention_dropout", "dropout", "hidden_dropout", "drop_path_rate", "dropout_prob"): 0.0,
        ("qkv_bias", "use_bias", "attention_bias", "mlp_bias", "bias"): True,
        ("qk_normalization", "use_qk_norm"): False,
        ("use_rope", "post_norm"): True,
        ("rope_theta",): 10000.0,
        ("rope_parameters",): {"rope_type": "default", "rope_theta": 10000.0},
        ("initializer_factor", "initializer_range"): 1.0,
    }
    return {name: value for names, value in values.items() for name in names}


# Values that another tower of the field may insist on instead.
VARIANTS: tuple[Mapping[str, Any], ...] = (
    {},
    {"hidden_act": "silu"},
    {"patch_size": (4, 4), "image_size": (32, 32)},
)


# What a name says of its value where nothing else is known of it: the first of these endings or beginnings that fits.
# The values that are guessed are named in the result.
GUESSES: Mapping[str, Any] = {
    "_eps": 1e-5,
    "_epsilon": 1e-5,
    "_dropout": 0.0,
    "_bias": True,
    "_act": "gelu",
    "_activation": "gelu",
    "_theta": 10000.0,
    "_ratio": 2,
    "_scale": 1.0,
    "_factor": 1.0,
    "use_": False,
    "is_": False,
    "has_": False,
    "add_": False,
    "apply_": False,
    "enable_": False,
}


def guess(name: str) -> Any:
    """A value for an attribute by its name, None where nothing can be said."""
    fits = (value for part, value in GUESSES.items() if (name.endswith if part[0] == "_" else name.startswith)(part))
    return next(fits, None)

"""What the shim gives old files in place of what the installed vLLM has, or no longer has: by place and by release.

A place is where the old release defined the name; re-exports lead there. What merely moved is not here: the index of
releases in `codemods.vllm_api` knows where it went. Sources: vLLM 0.10.2 to 0.14.1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from codemods.target import release_key
from codemods.vllm_api import Api
from porting.private_modules import Importer
from porting.shim import attention, backends, decorators, encoder_outputs, rotary, transformers_rotary, xformers_ops

Make = Callable[[Api, Importer], Any]


@dataclass(frozen=True)
class Supply:
    """One place, in the releases from `since` until before `before` (empty: without limit)."""

    place: str
    make: Make
    since: str = ""
    before: str = ""

    def serves(self, release: str) -> bool:
        key = release_key(release)
        return (not self.since or key >= release_key(self.since)) and (
            not self.before or key < release_key(self.before)
        )


def _as_is(value: Any) -> Make:
    return lambda release, importer: value


def _enum(place: str) -> Make:
    name = place.rpartition(".")[2]
    return lambda release, importer: backends.old_enum(name, release.enum_members(place))


_LAYER = "vllm.attention.layer"
_WRAPPERS = "vllm.attention.ops.vit_attn_wrappers"
_ROTARY = "vllm.model_executor.layers.rotary_embedding"
_PIXTRAL = "transformers.models.pixtral.modeling_pixtral"
_KERNEL = _as_is(attention.flash_attn_varlen_func)

SUPPLIES = (
    # Attention
    Supply(f"{_LAYER}.MultiHeadAttention", _as_is(attention.MultiHeadAttention)),
    Supply(
        "vllm.attention.layers.mm_encoder_attention.MMEncoderAttention", _as_is(attention.EncoderAttentionIgnoringScale)
    ),
    Supply(
        "vllm.model_executor.layers.attention.mm_encoder_attention.MMEncoderAttention",
        _as_is(attention.EncoderAttention),
        before="0.15",
    ),
    Supply(f"{_WRAPPERS}.vit_torch_sdpa_wrapper", _as_is(attention.sdpa_wrapper), before="0.13"),
    Supply(f"{_WRAPPERS}.vit_torch_sdpa_wrapper", _as_is(attention.sdpa_wrapper_0_13), since="0.13"),
    Supply(f"{_WRAPPERS}.vit_flash_attn_wrapper", _as_is(attention.flash_wrapper), before="0.13"),
    Supply(f"{_WRAPPERS}.vit_flash_attn_wrapper", _as_is(attention.flash_wrapper_0_13), since="0.13"),
    Supply(f"{_WRAPPERS}.vit_xformers_attn_wrapper", _as_is(attention.xformers_wrapper)),
    # The choice of a backend
    Supply("vllm.platforms.interface._Backend", _enum("vllm.platforms.interface._Backend")),
    Supply(
        "vllm.attention.backends.registry.AttentionBackendEnum",
        _enum("vllm.attention.backends.registry.AttentionBackendEnum"),
    ),
    Supply(
        "vllm.model_executor.models.vision.get_vit_attn_backend",
        lambda release, importer: backends.backend_getter(importer),
        before="0.15",
    ),
    Supply(
        f"{_LAYER}.maybe_get_vit_flash_attn_backend",
        _as_is(backends.flash_backend_0_11(attention.flash_attn_varlen_func)),
        before="0.12",
    ),
    Supply(
        f"{_LAYER}.maybe_get_vit_flash_attn_backend",
        _as_is(backends.flash_backend(attention.flash_attn_varlen_func)),
        since="0.12",
    ),
    Supply(
        "vllm.attention.layers.mm_encoder_attention.maybe_get_vit_flash_attn_backend",
        _as_is(backends.flash_kernel(attention.flash_attn_varlen_func)),
    ),
    Supply(f"{_LAYER}.check_upstream_fa_availability", _as_is(lambda dtype: False)),
    Supply(f"{_LAYER}.check_xformers_availability", _as_is(lambda: True)),
    # Kernels, of vLLM and of the libraries that it took them from
    Supply("vllm.attention.utils.fa_utils.flash_attn_varlen_func", _KERNEL),
    Supply("vllm.v1.attention.backends.fa_utils.flash_attn_varlen_func", _KERNEL),
    Supply("vllm.vllm_flash_attn.flash_attn_varlen_func", _KERNEL),
    Supply("flash_attn.flash_attn_varlen_func", _as_is(attention.upstream_flash_attn_varlen_func)),
    Supply("vllm.vllm_flash_attn.layers.rotary.apply_rotary_emb", _as_is(rotary.flash_rotary)),
    Supply("flash_attn.layers.rotary.apply_rotary_emb", _as_is(rotary.flash_rotary)),
    Supply("flash_attn.ops.triton.rotary.apply_rotary", _as_is(rotary.flash_rotary)),
    Supply("xformers.ops", _as_is(xformers_ops.XFORMERS_OPS)),
    Supply("xformers.ops.fmha.attn_bias.BlockDiagonalMask", _as_is(xformers_ops.BlockDiagonalMask)),
    # Rotary embedding
    Supply(f"{_ROTARY}.get_rope", _as_is(rotary.get_rope_0_11), before="0.12"),
    Supply(f"{_ROTARY}.get_rope", _as_is(rotary.get_rope_0_12), since="0.12", before="0.13"),
    Supply(f"{_ROTARY}.common.apply_rotary_emb_torch", _as_is(rotary.rotate)),
    Supply(f"{_ROTARY}.common.apply_rotary_emb_dispatch", _as_is(rotary.rotate)),
    Supply(f"{_ROTARY}.common.ApplyRotaryEmb", _as_is(rotary.apply_rotary_emb_anywhere), before="0.15"),
    Supply(f"{_ROTARY}.common.dispatch_rotary_emb_function", _as_is(rotary.dispatch)),
    Supply(
        "vllm.model_executor.models.qwen2_vl.apply_rotary_pos_emb_vision",
        _as_is(rotary.rotate_by_angle),
        before="0.12",
    ),
    Supply(
        "vllm.model_executor.models.qwen2_vl.apply_rotary_pos_emb_vision",
        _as_is(rotary.rotate_in_own_dtype),
        since="0.12",
    ),
    Supply(f"{_PIXTRAL}.PixtralRotaryEmbedding", _as_is(transformers_rotary.PixtralRotaryEmbedding)),
    Supply(f"{_PIXTRAL}.position_ids_in_meshgrid", _as_is(transformers_rotary.position_ids_in_meshgrid)),
    # Outputs
    Supply(
        "vllm.model_executor.models.vision.resolve_visual_encoder_outputs",
        _as_is(encoder_outputs.resolve_visual_encoder_outputs),
        before="0.11.1",
    ),
    # Decorators
    Supply(
        "vllm.model_executor.models.interfaces_base.default_pooling_type",
        _as_is(decorators.default_pooling_type),
        before="0.14",
    ),
    Supply("vllm.compilation.decorators.support_torch_compile", _as_is(decorators.support_torch_compile)),
)

# Tops of packages that old files import their kernels from; what is not supplied of them is as installed.
KERNEL_PACKAGES = tuple({supply.place.partition(".")[0] for supply in SUPPLIES} - {"vllm"})


def supplied(place: str, release: str) -> Supply | None:
    """What the shim gives a file of that release for what its vLLM defined at that place."""
    return next((supply for supply in SUPPLIES if supply.place == place and supply.serves(release)), None)

"""How the vision attention API may be called in each vLLM release."""

from __future__ import annotations

import pytest

from codemods.vllm_api import Api, Kind, Signature, releases
from codemods.vllm_api.releases import version_key

LAYERS = "vllm.model_executor.layers"
MODELS = "vllm.model_executor.models"
OLD_ENCODER = "vllm.attention.layers.mm_encoder_attention.MMEncoderAttention"
ENCODER = f"{LAYERS}.attention.mm_encoder_attention.MMEncoderAttention"
ENCODER_CALL = "query key value cu_seqlens= max_seqlen="


def shown(signature: Signature | None) -> str | None:
    """A signature in the index's own text."""
    if signature is None:
        return None
    parts: list[str] = []
    for parameter in signature.parameters:
        stars = {Kind.ARGS: "*", Kind.KWARGS: "**"}.get(parameter.kind, "")
        if parameter.kind is Kind.KEYWORD_ONLY and not any(part.startswith("*") for part in parts):
            parts.append("*")
        parts.append(stars + parameter.name + "=" * parameter.has_default)
    return " ".join(parts)


# qualified name, then (first release of a shape, the shape or None); a shape holds until the next one
SHAPES: list[tuple[str, dict[str, str | None]]] = [
    (
        "vllm.attention.layer.MultiHeadAttention",
        {
            "0.10.2": "num_heads head_size scale num_kv_heads=",
            "0.11.1": "num_heads head_size scale num_kv_heads= prefix= multimodal_config=",
            "0.14.0": None,
        },
    ),
    ("vllm.attention.layer.MultiHeadAttention.forward", {"0.10.2": "query key value", "0.14.0": None}),
    (
        OLD_ENCODER,
        {
            "0.10.2": None,
            "0.13.0": "num_heads head_size scale= num_kv_heads= prefix= multimodal_config=",
            "0.14.0": None,
        },
    ),
    (
        ENCODER,
        {
            "0.10.2": None,
            "0.14.0": "num_heads head_size scale= num_kv_heads= prefix= multimodal_config=",
            "0.15.0": "num_heads head_size scale= num_kv_heads= prefix=",
        },
    ),
    (
        f"{LAYERS}.attention.MMEncoderAttention",  # re-exported by the package from 0.16 on
        {"0.10.2": None, "0.16.0": "num_heads head_size scale= num_kv_heads= prefix="},
    ),
    (
        f"{ENCODER}.forward_native",
        {"0.10.2": None, "0.14.0": ENCODER_CALL, "0.17.0": f"{ENCODER_CALL} sequence_lengths="},
    ),
    (f"{ENCODER}.compute_max_seqlen", {"0.10.2": None, "0.17.0": "attn_backend cu_seqlens"}),
    (
        f"{ENCODER}.maybe_compute_sequence_lengths",
        {"0.10.2": None, "0.17.0": "attn_backend cu_seqlens", "0.18.0": None},
    ),
    (f"{ENCODER}.maybe_compute_seq_lens", {"0.10.2": None, "0.18.0": "attn_backend cu_seqlens device"}),
    (
        f"{ENCODER}.maybe_recompute_cu_seqlens",
        {
            "0.10.2": None,
            "0.17.0": "attn_backend cu_seqlens hidden_size tp_size",
            "0.18.0": "attn_backend cu_seqlens hidden_size tp_size device",
            "0.21.0": "attn_backend cu_seqlens hidden_size tp_size device fp8_padded_hidden_size=",
        },
    ),
    (
        "vllm.attention.layer.maybe_get_vit_flash_attn_backend",  # at 0.13 a re-import of another function
        {
            "0.10.2": None,
            "0.11.1": "attn_backend use_upstream_fa attn_backend_override=",
            "0.12.0": "attn_backend attn_backend_override=",
            "0.13.0": "attn_backend",
            "0.14.0": None,
        },
    ),
    ("vllm.attention.layer.check_upstream_fa_availability", {"0.10.2": None, "0.11.0": "dtype", "0.12.0": None}),
    (
        f"{MODELS}.vision.get_vit_attn_backend",
        {
            "0.10.2": "support_fa=",
            "0.11.0": "head_size dtype",
            "0.11.1": "head_size dtype * attn_backend_override=",
            "0.15.0": "head_size dtype",
        },
    ),
    (f"{MODELS}.vision.is_vit_use_data_parallel", {"0.10.2": None, "0.15.0": "", "0.26.0": "num_heads="}),
    (
        "vllm.platforms.interface.Platform.get_vit_attn_backend",
        {"0.10.2": "support_fa=", "0.11.0": "head_size dtype", "0.13.0": "head_size dtype backend="},
    ),
    ("vllm.platforms.interface.Platform.get_supported_vit_attn_backends", {"0.10.2": None, "0.13.0": ""}),
    (
        "vllm.attention.ops.vit_attn_wrappers.vit_torch_sdpa_wrapper",
        {"0.10.2": None, "0.11.1": "q k v cu_seqlens", "0.14.0": None},
    ),
    (
        "vllm.v1.attention.ops.vit_attn_wrappers.vit_torch_sdpa_wrapper",
        {"0.10.2": None, "0.14.0": "q k v scale= cu_seqlens=", "0.16.0": "q k v scale= cu_seqlens= enable_gqa="},
    ),
    (
        f"{MODELS}.qwen2_vl.apply_rotary_pos_emb_vision",
        {"0.10.2": "t freqs", "0.12.0": "t cos sin", "0.13.0": None},
    ),
    (
        f"{LAYERS}.rotary_embedding.common.ApplyRotaryEmb",
        {"0.10.2": None, "0.13.0": "enforce_enable= is_neox_style= enable_fp32_compute="},
    ),
    (
        f"{LAYERS}.rotary_embedding.common.ApplyRotaryEmb.forward_static",
        {"0.10.2": None, "0.13.0": "x cos sin is_neox_style= enable_fp32_compute="},
    ),
    (
        f"{LAYERS}.rotary_embedding.get_rope",
        {
            "0.10.2": "head_size rotary_dim max_position base is_neox_style= rope_scaling= dtype= "
            "partial_rotary_factor= dual_chunk_attention_config=",
            "0.12.0": "head_size rotary_dim max_position is_neox_style= rope_parameters= dtype= "
            "partial_rotary_factor= dual_chunk_attention_config=",
            "0.13.0": "head_size max_position is_neox_style= rope_parameters= dtype= dual_chunk_attention_config=",
            "0.32.0": "head_size max_position is_neox_style= rope_parameters= dtype= dual_chunk_attention_config= "
            "mrope_positions_factor=",
        },
    ),
    (
        f"{MODELS}.interfaces_base.default_pooling_type",
        {"0.10.2": "pooling_type", "0.14.0": "* seq_pooling_type= tok_pooling_type="},
    ),
    (
        f"{MODELS}.qwen2_vl.Qwen2VisionAttention",
        {
            "0.10.2": "embed_dim num_heads projection_size quant_config= prefix=",
            "0.11.0": "embed_dim num_heads projection_size quant_config= prefix= use_data_parallel=",
            "0.11.1": "embed_dim num_heads projection_size quant_config= prefix= use_data_parallel= "
            "attn_backend_override=",
            "0.13.0": "embed_dim num_heads projection_size quant_config= multimodal_config= prefix=",
            "0.15.0": "embed_dim num_heads projection_size quant_config= prefix=",
        },
    ),
]


@pytest.mark.parametrize(("qualified", "eras"), SHAPES, ids=[qualified for qualified, _ in SHAPES])
def test_the_shape_of_a_callable_in_every_release(qualified: str, eras: dict[str, str | None]) -> None:
    for release in releases():
        since = max((start for start in eras if version_key(start) <= version_key(release)), key=version_key)
        assert shown(Api.of(release).signature(qualified)) == eras[since], release


def test_multimodal_config_is_an_argument_of_the_encoder_attention_in_two_series_only() -> None:
    takes = []
    for release in releases():
        for qualified in (OLD_ENCODER, ENCODER):
            signature = Api.of(release).signature(qualified)
            if signature is not None and "multimodal_config" in signature:
                takes.append(release)
    assert takes == ["0.13.0", "0.14.0", "0.14.1"]


@pytest.mark.parametrize(
    ("release", "qualified", "call"),
    [
        ("0.12.0", "vllm.attention.layer.MultiHeadAttention", "query key value"),
        ("0.13.0", OLD_ENCODER, ENCODER_CALL),
        ("0.16.0", ENCODER, ENCODER_CALL),
        ("0.32.0", ENCODER, f"{ENCODER_CALL} sequence_lengths="),
        ("0.32.0", f"{LAYERS}.rotary_embedding.common.ApplyRotaryEmb", "x cos sin"),
        ("0.32.0", f"{LAYERS}.linear.ColumnParallelLinear", "input_"),
        ("0.32.0", "vllm.config.MultiModalConfig", None),
        ("0.32.0", "vllm.no_such.Thing", None),
    ],
)
def test_how_an_instance_is_called(release: str, qualified: str, call: str | None) -> None:
    assert shown(Api.of(release).call_signature(qualified)) == call


def test_a_constructor_is_inherited_from_a_base_in_vllm() -> None:
    api = Api.of("0.32.0")
    merged = api.signature(f"{LAYERS}.linear.MergedColumnParallelLinear")
    assert merged is not None and "output_sizes" in merged
    own = api.signature(f"{MODELS}.qwen2_5_vl.Qwen2_5_VLMultiModalProcessor")
    base = api.signature("vllm.multimodal.processing.BaseMultiModalProcessor")
    assert own == base == Signature.parse("info dummy_inputs")


def test_a_constructor_made_from_fields() -> None:
    mapper = Api.of("0.16.0").signature(f"{MODELS}.utils.WeightsMapper")
    assert shown(mapper) == "orig_to_new_substr= orig_to_new_prefix= orig_to_new_suffix="
    config = Api.of("0.11.1").signature("vllm.config.MultiModalConfig")
    assert config is not None and "mm_encoder_attn_backend" in config
    before = Api.of("0.11.0").signature("vllm.config.MultiModalConfig")
    assert before is not None and "mm_encoder_attn_backend" not in before


def test_a_constructor_inherited_from_elsewhere_is_not_known() -> None:
    qualified = f"{MODELS}.whisper.WhisperPosEmbedType"
    assert Api.of("0.32.0").bases(qualified) == ("enum.Enum",)
    assert Api.of("0.32.0").signature(qualified) is None


@pytest.mark.parametrize(
    ("release", "qualified", "bases"),
    [
        ("0.12.0", "vllm.attention.layer.MultiHeadAttention", ("torch.nn.Module",)),
        ("0.32.0", ENCODER, ("vllm.model_executor.custom_op.CustomOp",)),
        ("0.14.0", f"{MODELS}.whisper.WhisperEncoderAttention", (ENCODER,)),
        ("0.14.0", "vllm.no_such.Class", ()),
    ],
)
def test_the_bases_of_a_class(release: str, qualified: str, bases: tuple[str, ...]) -> None:
    assert Api.of(release).bases(qualified) == bases


def test_a_class_and_all_its_bases() -> None:
    processor = f"{MODELS}.qwen2_5_vl.Qwen2_5_VLMultiModalProcessor"
    ancestry = Api.of("0.32.0").ancestry(processor)
    assert ancestry[:2] == (processor, f"{MODELS}.qwen2_vl.Qwen2VLMultiModalProcessor")
    assert "vllm.multimodal.processing.processor.BaseMultiModalProcessor" in ancestry
    assert Api.of("0.32.0").ancestry(f"{MODELS}.qwen2_5_vl.Qwen2_5_VisionBlock")[-1] == "torch.nn.Module"
    assert Api.of("0.32.0").ancestry(f"{MODELS}.vision.get_vit_attn_backend") == ()


def test_the_class_that_a_member_comes_from() -> None:
    api = Api.of("0.32.0")
    flag, interface = "supports_mm_device_do_normalize", f"{MODELS}.interfaces.SupportsMultiModal"
    qwen = f"{MODELS}.qwen2_5_vl.Qwen2_5_VLForConditionalGeneration"
    assert api.definer(f"{MODELS}.opencua.OpenCUAForConditionalGeneration", flag) == qwen
    assert api.definer(f"{MODELS}.llava.LlavaForConditionalGeneration", flag) == interface
    assert Api.of("0.20.2").definer(qwen, flag) is None


def test_members_are_own_inherited_and_set_on_self() -> None:
    members = Api.of("0.32.0").members(ENCODER)
    assert {"forward_native", "compute_max_seqlen"} <= members  # its own methods
    assert {"forward_oot", "enabled", "register_oot"} <= members  # of CustomOp
    assert {"attn_backend", "is_flash_attn_backend", "scale", "num_kv_heads"} <= members  # set in __init__
    assert "flash_attn_varlen_func" not in members
    assert "flash_attn_varlen_func" in Api.of("0.13.0").members(OLD_ENCODER)


def test_what_towers_hold() -> None:
    api = Api.of("0.12.0")
    assert api.held(f"{MODELS}.qwen2_5_vl.Qwen2_5_VisionTransformer", "blocks") == (
        f"{MODELS}.qwen2_5_vl.Qwen2_5_VisionBlock"
    )
    assert api.held(f"{MODELS}.opencua.OpenCUAForConditionalGeneration", "visual") == (
        f"{MODELS}.qwen2_5_vl.Qwen2_5_VisionTransformer"  # as its base sets it
    )


def test_members_of_an_interface_follow_its_renames() -> None:
    interface = f"{MODELS}.interfaces.SupportsMultiModal"
    assert "get_multimodal_embeddings" in Api.of("0.11.0").members(interface)
    assert "embed_multimodal" in Api.of("0.13.0").members(interface)
    assert "embed_multimodal" not in Api.of("0.11.0").members(interface)


@pytest.mark.parametrize(
    ("release", "enum", "present", "absent"),
    [
        ("0.10.2", "vllm.platforms._Backend", {"XFORMERS", "ROCM_FLASH", "TRITON_ATTN_VLLM_V1"}, {"TRITON_ATTN"}),
        ("0.11.0", "vllm.platforms._Backend", {"TRITON_ATTN", "ROCM_FLASH"}, {"TRITON_ATTN_VLLM_V1"}),
        ("0.11.1", "vllm.attention.backends.registry.AttentionBackendEnum", {"XFORMERS", "CUSTOM"}, {"ROCM_FLASH"}),
        ("0.12.0", "vllm.attention.backends.registry.AttentionBackendEnum", {"PALLAS"}, {"XFORMERS"}),
        ("0.14.0", "vllm.v1.attention.backends.registry.AttentionBackendEnum", {"TORCH_SDPA"}, {"PALLAS"}),
        ("0.32.0", "vllm.platforms.interface.AttentionBackendEnum", {"FLASH_ATTN", "FLASHINFER"}, {"XFORMERS"}),
    ],
)
def test_the_members_of_the_backend_enum(release: str, enum: str, present: set[str], absent: set[str]) -> None:
    members = set(Api.of(release).enum_members(enum))
    assert present <= members
    assert not absent & members


def test_what_is_no_enumeration_has_no_members() -> None:
    assert Api.of("0.32.0").enum_members(ENCODER) == ()
    assert Api.of("0.32.0").enum_members("vllm.no_such.Enum") == ()

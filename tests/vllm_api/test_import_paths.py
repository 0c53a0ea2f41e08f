"""What could be imported from where in each vLLM release: the moves and removals that a port has to follow."""

from __future__ import annotations

import pytest

from codemods.vllm_api import Api, introduced, releases, removed
from codemods.vllm_api.releases import version_key

LAYERS = "vllm.model_executor.layers"
MODELS = "vllm.model_executor.models"

# module, name, first release, last release (None: still there)
IMPORTS = [
    ("vllm.attention.layer", "MultiHeadAttention", "0.10.2", "0.13.0"),
    ("vllm.attention.layers.mm_encoder_attention", "MMEncoderAttention", "0.13.0", "0.13.0"),
    (f"{LAYERS}.attention.mm_encoder_attention", "MMEncoderAttention", "0.14.0", None),
    (f"{LAYERS}.attention", "MMEncoderAttention", "0.16.0", None),
    ("vllm.attention.layer", "maybe_get_vit_flash_attn_backend", "0.11.1", "0.13.0"),
    ("vllm.attention.layers.mm_encoder_attention", "maybe_get_vit_flash_attn_backend", "0.13.0", "0.13.0"),
    ("vllm.attention.layer", "check_upstream_fa_availability", "0.11.0", "0.11.2"),
    ("vllm.attention.layer", "check_xformers_availability", "0.10.2", "0.11.2"),
    ("vllm.attention.selector", "get_env_variable_attn_backend", "0.10.2", "0.12.0"),
    ("vllm.attention.selector", "backend_name_to_enum", "0.10.2", "0.11.0"),
    (f"{MODELS}.vision", "get_vit_attn_backend", "0.10.2", None),
    (f"{MODELS}.vision", "is_vit_use_data_parallel", "0.15.0", None),
    (f"{MODELS}.vision", "get_multimodal_config", "0.21.0", None),
    (f"{MODELS}.vision", "get_fp8_padded_hidden_size", "0.21.0", None),
    (f"{MODELS}.vision", "run_dp_sharded_vision_model", "0.11.0", None),
    ("vllm.multimodal.utils", "run_dp_sharded_vision_model", "0.10.2", "0.10.2"),
    ("vllm.platforms", "_Backend", "0.10.2", "0.11.0"),
    ("vllm.platforms.interface", "_Backend", "0.10.2", "0.11.0"),
    ("vllm.attention.selector", "_Backend", "0.10.2", "0.11.0"),
    ("vllm.attention.backends.registry", "_Backend", "0.11.1", "0.12.0"),
    ("vllm.attention.backends.registry", "AttentionBackendEnum", "0.11.1", "0.13.0"),
    ("vllm.v1.attention.backends.registry", "AttentionBackendEnum", "0.14.0", None),
    ("vllm.platforms.interface", "AttentionBackendEnum", "0.12.0", None),
    ("vllm.attention.ops.vit_attn_wrappers", "vit_torch_sdpa_wrapper", "0.11.1", "0.13.0"),
    ("vllm.v1.attention.ops.vit_attn_wrappers", "vit_torch_sdpa_wrapper", "0.14.0", None),
    ("vllm.attention.ops.vit_attn_wrappers", "vit_xformers_attn_wrapper", "0.11.1", "0.11.2"),
    ("vllm.v1.attention.ops.vit_attn_wrappers", "vit_triton_attn_wrapper", "0.17.0", None),
    ("vllm.v1.attention.ops.vit_attn_wrappers", "vit_aiter_fp8_attn_wrapper", "0.27.0", None),
    (f"{LAYERS}.rotary_embedding.common", "ApplyRotaryEmb", "0.13.0", None),
    (f"{LAYERS}.rotary_embedding.common", "apply_rotary_emb_dispatch", "0.10.2", "0.12.0"),
    (f"{LAYERS}.rotary_embedding.common", "apply_rotary_emb_torch", "0.10.2", "0.12.0"),
    (f"{LAYERS}.rotary_embedding.common", "dispatch_rotary_emb_function", "0.11.1", "0.12.0"),
    (f"{MODELS}.qwen2_vl", "apply_rotary_pos_emb_vision", "0.10.2", "0.12.0"),
    ("vllm.config", "MultiModalConfig", "0.10.2", None),
    ("vllm.config.multimodal", "MultiModalConfig", "0.11.0", None),
    ("vllm.config", "get_current_vllm_config", "0.10.2", None),
    ("vllm.config", "get_current_vllm_config_or_none", "0.14.0", None),
    ("vllm.attention", "Attention", "0.10.2", "0.11.2"),
    ("vllm.attention.layer", "Attention", "0.10.2", "0.15.1"),
    (f"{LAYERS}.attention", "Attention", "0.16.0", None),
    ("vllm.attention.backends.abstract", "AttentionType", "0.10.2", "0.13.0"),
    ("vllm.v1.attention.backend", "AttentionType", "0.14.0", None),
    ("vllm.inputs", "PromptType", "0.10.2", None),
    ("vllm.inputs.data", "PromptType", "0.10.2", "0.18.1"),
    ("vllm.multimodal.inputs", "MultiModalDataDict", "0.10.2", "0.18.1"),
    ("vllm.inputs", "MultiModalDataDict", "0.19.0", None),
    ("vllm.multimodal.profiling", "BaseDummyInputsBuilder", "0.10.2", "0.14.1"),
    ("vllm.multimodal.processing", "_seq2text", "0.10.2", "0.14.1"),
    ("vllm.transformers_utils.tokenizer", "AnyTokenizer", "0.10.2", "0.13.0"),
]


@pytest.mark.parametrize(("module", "name", "first", "last"), IMPORTS, ids=lambda value: str(value))
def test_an_import_works_from_its_first_release_to_its_last(
    module: str, name: str, first: str, last: str | None
) -> None:
    end = version_key(last or releases()[-1])
    expected = [release for release in releases() if version_key(first) <= version_key(release) <= end]
    assert [release for release in releases() if Api.of(release).has(module, name)] == expected
    assert introduced(module, name) == first
    gone = releases()[releases().index(last) + 1] if last else None
    assert removed(module, name) == gone


def test_a_name_that_never_was() -> None:
    assert introduced("vllm.config", "NoSuchConfig") is None
    assert removed("vllm.config", "NoSuchConfig") is None


@pytest.mark.parametrize(
    ("name", "release", "modules"),
    [
        ("MultiHeadAttention", "0.12.0", ("vllm.attention.layer",)),
        ("MultiHeadAttention", "0.14.0", ()),
        ("MMEncoderAttention", "0.13.0", ("vllm.attention.layers.mm_encoder_attention",)),
        ("MMEncoderAttention", "0.32.0", (f"{LAYERS}.attention.mm_encoder_attention",)),
        ("MultiModalDataDict", "0.18.0", ("vllm.multimodal.inputs",)),
        ("MultiModalDataDict", "0.19.0", ("vllm.inputs.llm",)),
        ("AttentionBackendEnum", "0.11.1", ("vllm.attention.backends.registry",)),
        ("LLM", "0.33.0", ("vllm.entrypoints.llm",)),
    ],
)
def test_where_a_name_is_defined(name: str, release: str, modules: tuple[str, ...]) -> None:
    assert Api.of(release).where(name) == modules


def test_exported_from_lists_the_homes_of_a_name_first_and_the_shortest_of_them_before_others() -> None:
    paths = Api.of("0.20.0").exported_from("BaseDummyInputsBuilder")
    assert paths[:3] == (
        "vllm.multimodal.processing",  # re-exports it for all
        "vllm.multimodal.processing.dummy_inputs",  # defines it
        "vllm.multimodal.registry",  # only uses it
    )
    assert f"{MODELS}.qwen2_vl" in paths


@pytest.mark.parametrize(
    ("module", "first", "last"),
    [
        ("vllm.attention", "0.10.2", "0.15.1"),
        ("vllm.attention.layer", "0.10.2", "0.15.1"),
        (f"{LAYERS}.attention", "0.14.0", None),
        ("vllm.config.multimodal", "0.11.0", None),
    ],
)
def test_a_module_exists_from_its_first_release_to_its_last(module: str, first: str, last: str | None) -> None:
    found = [release for release in releases() if Api.of(release).has_module(module)]
    assert found[0] == first
    assert found[-1] == (last or releases()[-1])


@pytest.mark.parametrize("release", ["0.12.0", "0.13.0", "0.15.0"])
def test_the_old_attention_package_outlived_its_names(release: str) -> None:
    api = Api.of(release)
    assert api.names("vllm.attention") == {}
    assert api.has("vllm.attention", "layer") is True  # a submodule is importable like a name
    assert api.has("vllm.attention", "Attention") is False


def test_names_loaded_on_first_use_are_known() -> None:
    api = Api.of("0.32.0")
    assert api.has("vllm", "LLM") is True
    assert api.has("vllm.envs", "VLLM_LOGGING_LEVEL") is True
    assert api.has("vllm.platforms", "current_platform") is True
    assert api.has("vllm.envs", "VLLM_NO_SUCH_VARIABLE") is False


def test_what_differs_by_device_is_not_known() -> None:
    for release in ("0.10.2", "0.33.0"):
        api = Api.of(release)
        assert api.has("vllm.vllm_flash_attn", "flash_attn_varlen_func") is None
        assert api.has("vllm.vllm_flash_attn.layers.rotary", "apply_rotary_emb") is None
        assert api.has("vllm._C", "anything") is None
        assert api.has_module("vllm.vllm_flash_attn")
        assert api.has("vllm._custom_ops", "no_such_op") is False  # only looks like one of them


def test_other_projects_are_not_known() -> None:
    assert Api.of("0.13.0").has("torch.nn", "Module") is None


def test_a_module_that_does_not_exist_has_no_names() -> None:
    api = Api.of("0.13.0")
    assert api.has("vllm.no_such_module", "anything") is False
    assert api.names("vllm.no_such_module") is None
    assert not api.has_module("vllm.no_such_module")


def test_every_release_knows_its_modules() -> None:
    counts = [len(Api.of(release).modules()) for release in ("0.10.2", "0.33.0")]
    assert counts == [936, 2931]

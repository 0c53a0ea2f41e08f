"""Originals of older vLLM inside the installed one: what they see, what they compute, and what they may not do."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from porting import host, releases
from porting.model_file import ModelFileError
from porting.reference import strict_kernels
from porting.shim import Original, UnknownRelease, load_original
from porting.shim.stubs import StubUsed

pytestmark = pytest.mark.vllm
host.prepare_process()

HEADS, HEAD_DIM = 4, 8
Write = Callable[..., Path]
_folders = itertools.count()


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A file of this text, in a folder of its own; other files by keyword."""

    def write(text: str, package: bool = False, **others: str) -> Path:
        folder = tmp_path / f"pear_vl_{next(_folders)}"
        folder.mkdir()
        if package:
            (folder / "__init__.py").write_text("")
        for name, other in {"pear": text, **others}.items():
            (folder / f"{name}.py").write_text(dedent(other))
        return folder / "pear.py"

    return write


def load(path: Path, release: str) -> Original:
    with host.vllm_config():
        return load_original(path, release)


def packed(heads: int = HEADS, kv_heads: int = HEADS) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Query, key and value of two pictures of 3 and 5 tokens, `(1, 8, heads, head_dim)`."""
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(1, 8, n, HEAD_DIM, generator=generator) for n in (heads, kv_heads, kv_heads))  # type: ignore[return-value]


def expected(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, ends: tuple[int, ...], scale: float) -> torch.Tensor:
    """Softmax attention within each picture, by its definition, in fp64. `(1, tokens, heads, head_dim)`."""
    parts = []
    for begin, end in itertools.pairwise((0, *ends)):
        a, b, c = (x[:, begin:end].double().transpose(1, 2) for x in (q, k, v))
        parts.append((torch.softmax(a @ b.transpose(-1, -2) * scale, dim=-1) @ c).transpose(1, 2))
    return torch.cat(parts, dim=1)


# -- what an old file computes ---------------------------------------------------------------------------------------

CU_SEQLENS = torch.tensor([0, 3, 8], dtype=torch.int32)


@pytest.mark.parametrize("release", ["0.10.2", "0.11.0", "0.11.2", "0.12.0", "0.13.0"])
def test_multi_head_attention_lets_rows_of_a_batch_attend_with_the_given_scale(write: Write, release: str) -> None:
    original = load(write("from vllm.attention.layer import MultiHeadAttention\n"), release)
    with host.vllm_config():
        attention = original.module.MultiHeadAttention(HEADS, HEAD_DIM, scale=0.7, num_kv_heads=2)
    q, k, v = packed(HEADS, 2)
    output = attention(q.flatten(2), k.flatten(2), v.flatten(2))
    repeated = (x.repeat_interleave(2, dim=2) for x in (k, v))
    assert output.shape == (1, 8, HEADS * HEAD_DIM)
    torch.testing.assert_close(
        output.double(), expected(q, *repeated, ends=(8,), scale=0.7).flatten(2), atol=1e-6, rtol=0
    )


@pytest.mark.parametrize(
    ("release", "layout"), [("0.11.2", "s b (h d)"), ("0.12.0", "s b (h d)"), ("0.13.0", "b s h d")]
)
def test_the_wrappers_give_the_layout_of_their_release(write: Write, release: str, layout: str) -> None:
    original = load(write("from vllm.attention.ops import vit_attn_wrappers\n"), release)
    q, k, v = packed()
    output = original.module.vit_attn_wrappers.vit_torch_sdpa_wrapper(q=q, k=k, v=v, cu_seqlens=CU_SEQLENS)
    right = expected(q, k, v, (3, 8), HEAD_DIM**-0.5)
    right = right if layout == "b s h d" else right.flatten(2).transpose(0, 1)
    assert output.shape == right.shape
    torch.testing.assert_close(output.double(), right, atol=1e-6, rtol=0)


def test_encoder_attention_of_0_13_does_not_use_its_scale(write: Write) -> None:
    text = "from vllm.attention.layers.mm_encoder_attention import MMEncoderAttention\n"
    with host.vllm_config():
        attention = load_original(write(text), "0.13.0").module.MMEncoderAttention(HEADS, HEAD_DIM, scale=0.7)
    q, k, v = packed()
    output = attention(q, k, v, cu_seqlens=CU_SEQLENS)
    torch.testing.assert_close(output.double(), expected(q, k, v, (3, 8), HEAD_DIM**-0.5), atol=1e-6, rtol=0)


def test_encoder_attention_of_0_14_takes_the_configuration_that_is_gone(write: Write) -> None:
    text = "from vllm.model_executor.layers.attention.mm_encoder_attention import MMEncoderAttention\n"
    with host.vllm_config():
        cls = load_original(write(text), "0.14.0").module.MMEncoderAttention
        attention = cls(HEADS, HEAD_DIM, scale=0.7, multimodal_config=None)
    q, k, v = packed()
    output = attention(q, k, v, cu_seqlens=CU_SEQLENS)
    torch.testing.assert_close(output.double(), expected(q, k, v, (3, 8), 0.7), atol=1e-6, rtol=0)


XFORMERS = """
    from vllm.platforms import _Backend
    from vllm.model_executor.models.vision import get_vit_attn_backend

    def attend(q, k, v, seqlens):
        assert get_vit_attn_backend(support_fa=True) == _Backend.XFORMERS
        from xformers import ops as xops
        from xformers.ops.fmha.attn_bias import BlockDiagonalMask

        mask = BlockDiagonalMask.from_seqlens(q_seqlen=seqlens, kv_seqlen=None, device=q.device)
        return xops.memory_efficient_attention_forward(q, k, v, attn_bias=mask, p=0, scale=None)
"""


def test_a_file_that_knows_xformers_and_no_sdpa_gets_xformers(write: Write) -> None:
    original = load(write(XFORMERS), "0.10.2")
    q, k, v = packed()
    with host.vllm_config():
        output = original.module.attend(q, k, v, [3, 5])
    torch.testing.assert_close(output.double(), expected(q, k, v, (3, 8), HEAD_DIM**-0.5), atol=1e-6, rtol=0)


FLASH = """
    import torch
    from vllm.attention.backends.registry import AttentionBackendEnum
    from vllm.attention.layer import maybe_get_vit_flash_attn_backend
    from vllm.model_executor.models.vision import get_vit_attn_backend

    backend = get_vit_attn_backend(head_size=8, dtype=torch.float32, attn_backend_override=None)
    backend, kernel = maybe_get_vit_flash_attn_backend(backend, attn_backend_override=None)
    is_flash = backend in {AttentionBackendEnum.FLASH_ATTN, AttentionBackendEnum.ROCM_AITER_FA}
    is_sdpa = backend == AttentionBackendEnum.TORCH_SDPA
    gone = AttentionBackendEnum.PALLAS
"""


def test_the_backend_is_what_the_installed_vllm_takes(write: Write) -> None:
    native = load(write(FLASH), "0.12.0").module
    assert (native.is_flash, native.is_sdpa, native.kernel) == (False, True, None)
    assert native.gone not in (native.backend, None)

    with strict_kernels("flash") as kernels:
        flash = load(write(FLASH), "0.12.0").module
        q, k, v = (x.squeeze(0) for x in packed())
        output = flash.kernel(
            q, k, v, cu_seqlens_q=CU_SEQLENS, cu_seqlens_k=CU_SEQLENS, max_seqlen_q=5, max_seqlen_k=5, causal=False
        )
    assert (flash.is_flash, flash.is_sdpa) == (True, False)
    assert [call.kernel for call in kernels.calls] == ["flash_attn_varlen_func"]
    right = expected(*packed(), ends=(3, 8), scale=HEAD_DIM**-0.5).squeeze(0)
    torch.testing.assert_close(output.double(), right, atol=1e-6, rtol=0)


@pytest.mark.parametrize(("release", "arguments"), [("0.11.2", "8, 4, 16, 100.0"), ("0.12.0", "8, 4, 16")])
def test_get_rope_takes_the_number_of_rotated_features(write: Write, release: str, arguments: str) -> None:
    text = f"from vllm.model_executor.layers.rotary_embedding import get_rope\nrope = get_rope({arguments})\n"
    rope = load(write(text), release).module.rope
    base = 100.0 if release == "0.11.2" else 10000.0
    angles = torch.arange(16)[:, None] * base ** -(torch.arange(0, 4, 2) / 4)
    assert rope.rotary_dim == 4
    torch.testing.assert_close(rope.cos_sin_cache, torch.cat([angles.cos(), angles.sin()], dim=-1))


ROTARY = "from vllm.model_executor.models.qwen2_vl import apply_rotary_pos_emb_vision\n"


def test_rotary_embedding_by_angles_and_by_cosines(write: Write) -> None:
    x, angles = torch.randn(1, 5, 2, 6), torch.randn(5, 3)
    turn = torch.polar(torch.ones(5, 1, 3, dtype=torch.float64), angles[:, None].double())
    turned = torch.complex(*x.double().chunk(2, dim=-1)) * turn
    right = torch.cat([turned.real, turned.imag], dim=-1)
    by_angle = load(write(ROTARY), "0.11.2").module.apply_rotary_pos_emb_vision
    by_cosine = load(write(ROTARY), "0.12.0").module.apply_rotary_pos_emb_vision
    torch.testing.assert_close(by_angle(x, angles).double(), right, atol=1e-6, rtol=0)
    torch.testing.assert_close(by_cosine(x, angles.cos(), angles.sin()).double(), right, atol=1e-6, rtol=0)


# -- what an old file sees -------------------------------------------------------------------------------------------


def test_what_moved_is_found_where_it_went(write: Write) -> None:
    text = "from vllm.multimodal.profiling import BaseDummyInputsBuilder\nfrom vllm.utils import is_list_of\n"
    original = load(write(text), "0.11.0")
    assert original.module.BaseDummyInputsBuilder.__module__.startswith("vllm.multimodal.processing")
    assert original.module.is_list_of([1], int)
    assert original.stubbed == ()


def test_nothing_in_vllm_is_changed(write: Write) -> None:
    before = set(sys.modules)
    load(write("import vllm.attention.layer as layer\nlayer.extra = 1\nhas = layer.MultiHeadAttention\n"), "0.12.0")
    assert not any(name.startswith("vllm.attention") for name in set(sys.modules) - before)
    with pytest.raises(ImportError):
        import vllm.attention.layer  # noqa: F401


def test_a_module_is_reached_by_any_form_of_import(write: Write) -> None:
    text = """
        import vllm.attention.layer
        import vllm.attention.layer as layer
        from vllm.attention import layer as again
        from vllm import envs

        found = {vllm.attention.layer.MultiHeadAttention, layer.MultiHeadAttention, again.MultiHeadAttention}
        root = envs.VLLM_LOGGING_LEVEL
    """
    module = load(write(text), "0.12.0").module
    assert len(module.found) == 1
    assert module.root


def test_imports_that_may_fail_go_as_they_went_in_their_release(write: Write) -> None:
    text = """
        try:
            from vllm.attention.layer import MultiHeadAttention as attention
        except ImportError:
            from vllm.model_executor.layers.attention import MMEncoderAttention as attention
        try:
            from vllm.model_executor.models.vision import is_vit_use_data_parallel
        except ImportError:
            is_vit_use_data_parallel = None
        try:
            from no_such_library import thing
        except ModuleNotFoundError:
            thing = None
        try:
            from transformers import NoSuchConfig
        except (ImportError, RuntimeError):
            NoSuchConfig = None
    """
    original = load(write(text), "0.12.0")
    module = original.module
    assert module.attention.__name__ == "MultiHeadAttention"
    assert (module.is_vit_use_data_parallel, module.thing, module.NoSuchConfig) == (None, None, None)
    assert original.stubbed == ()


def test_a_name_that_the_release_did_not_have_is_told(write: Write) -> None:
    path = write("import torch\nfrom vllm.attention.layer import NoSuchAttention\n")
    with pytest.raises(ModelFileError, match=r"pear.py:2: cannot import name 'NoSuchAttention' .*--before-release"):
        load(path, "0.12.0")


# -- files beside it -------------------------------------------------------------------------------------------------


def test_old_siblings_are_taken_from_beside_under_the_same_shim(write: Write) -> None:
    path = write(
        "from .plum import PlumAttention\nfrom .utils import maybe_prefix\n"
        "from vllm.model_executor.models.plum import PlumAttention as again\n",
        plum="from vllm.attention.layer import MultiHeadAttention\nclass PlumAttention(MultiHeadAttention): pass\n",
    )
    module = load(path, "0.12.0").module
    assert module.PlumAttention is module.again
    assert module.PlumAttention.__bases__[0].__module__ == "porting.shim.attention"
    assert module.maybe_prefix.__module__ == "vllm.model_executor.models.utils"


def test_two_editions_of_a_package_live_in_one_process(write: Write) -> None:
    text = "from .sizes import PATCH\nfrom . import sizes\nimport {0}.sizes\nsame = {0}.sizes is sizes\n"
    old, new = write("", package=True, sizes="PATCH = 14\n"), write("", package=True, sizes="PATCH = 16\n")
    for path in (old, new):
        path.write_text(text.format(path.parent.name))
        (path.parent / "__init__.py").write_text("raise RuntimeError('not needed')\n")
    first, second = load(old, "0.12.0").module, load(new, "0.12.0").module
    assert (first.PATCH, second.PATCH) == (14, 16)
    assert first.same and second.same


def test_the_init_of_an_old_package_runs_when_a_name_of_it_is_wanted(write: Write) -> None:
    path = write("from . import SIZE\n", package=True)
    (path.parent / "__init__.py").write_text("SIZE = 3\n")
    assert load(path, "0.12.0").module.SIZE == 3


SUBCLASS = """
    from vllm.model_executor.models.qwen2_5_vl import Qwen2_5_VisionAttention
    class Pear(Qwen2_5_VisionAttention): pass
"""


def test_a_class_of_an_old_vision_model_is_the_old_one_where_its_files_are_at_hand(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "CACHE", tmp_path)
    models = tmp_path / "vllm-files" / "0.12.0" / "vllm" / "model_executor" / "models"
    models.mkdir(parents=True)
    (models / "qwen2_5_vl.py").write_text(
        "from vllm.attention.layer import MultiHeadAttention\nclass Qwen2_5_VisionAttention(MultiHeadAttention): pass\n"
    )
    original = load(write(SUBCLASS, package=True), "0.12.0")
    assert original.module.Pear.__mro__[2].__module__ == "porting.shim.attention"
    assert original.notes == ("original of vLLM 0.12.0",)


def test_a_class_of_a_newer_vision_model_in_an_old_one_s_place_is_told(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "CACHE", tmp_path)
    original = load(write(SUBCLASS, package=True), "0.12.0")
    assert original.module.Pear.__bases__[0].__module__ == "vllm.model_executor.models.qwen2_5_vl"
    assert original.notes[1].startswith(
        "vllm.model_executor.models.qwen2_5_vl.Qwen2_5_VisionAttention: as in this vLLM, for the files of 0.12.0"
    )


# -- which release ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("from vllm.platforms import _Backend\n", "0.11.0"),
        (
            "from vllm.attention.layer import check_upstream_fa_availability, maybe_get_vit_flash_attn_backend\n",
            "0.11.2",
        ),
        ("from vllm.attention.layers.mm_encoder_attention import MMEncoderAttention\n", "0.13.0"),
    ],
)
def test_the_release_is_read_from_the_text(write: Write, text: str, release: str) -> None:
    assert load(write(text), "").release == release


def test_neighbours_have_a_say_in_the_release(write: Write) -> None:
    text = "from .plum import attention\nfrom vllm.attention.layer import MultiHeadAttention\n"
    path = write(text, plum="from vllm.attention.layer import check_upstream_fa_availability as attention\n")
    assert load(path, "").release == "0.11.2"


def test_a_file_in_a_copy_of_vllm_is_of_that_vllm(tmp_path: Path) -> None:
    models = tmp_path / "vllm" / "model_executor" / "models"
    models.mkdir(parents=True)
    (tmp_path / "vllm" / "_version.py").write_text("__version__ = version = '0.11.1'\n")
    (models / "pear.py").write_text("from vllm.attention.layer import MultiHeadAttention\n")
    assert load(models / "pear.py", "").release == "0.11.1"


def test_a_release_that_no_text_tells_has_to_be_given(write: Write) -> None:
    path = write("from vllm.config import NoSuchConfig\n")
    with pytest.raises(UnknownRelease, match="say which it is for"):
        load(path, "")


def test_a_release_that_is_not_indexed_is_refused(write: Write) -> None:
    with pytest.raises(ValueError, match=r"vLLM 0\.9\.0 is not in the index"):
        load(write(""), "0.9.0")


# -- stubs -----------------------------------------------------------------------------------------------------------

STUBS = """
    from typing import Optional, Union
    from torch import nn
    from transformers import NoSuchConfig
    from vllm.model_executor import SamplingMetadata
    from vllm.multimodal.inputs import MultiModalKwargs, MultiModalEncDecInputs

    @MultiModalKwargs.register(NoSuchConfig)
    class Decorated(nn.Module):
        pass

    class Pear(nn.Module, MultiModalKwargs):
        pass

    class Plum(MultiModalEncDecInputs[SamplingMetadata]):
        pass

    def sample(hidden, metadata: Optional[SamplingMetadata] = None, other: Union[NoSuchConfig, int] = 0) -> "dict":
        return hidden

    def called(): return SamplingMetadata()
    def read(): return SamplingMetadata.all_greedy
    def compared(): return SamplingMetadata == 3
    def in_a_set(): return SamplingMetadata in {1, 2}
    def true(): return 1 if SamplingMetadata else 2
    def computed(x): return x + SamplingMetadata
    def computed_by_torch(x):
        import torch
        return torch.add(x, SamplingMetadata)
    def asked(config): return isinstance(config, (NoSuchConfig, int))
    def iterated(): return list(SamplingMetadata)
    def late():
        from vllm.multimodal.inputs import MultiModalEncDecInputs as inputs
        return inputs.x
"""


@pytest.fixture
def stubs(write: Write) -> Original:
    return load(write(STUBS), "0.10.2")


def test_stubs_are_named_and_harmless_where_they_are_only_named(stubs: Original) -> None:
    assert stubs.stubbed == (
        "transformers.NoSuchConfig",
        "vllm.model_executor.SamplingMetadata",
        "vllm.multimodal.inputs.MultiModalKwargs",
        "vllm.multimodal.inputs.MultiModalEncDecInputs",
    )
    assert stubs.module.sample(3) == 3
    assert stubs.module.asked(None) is False
    assert stubs.module.asked(torch.ones(1)) is False


@pytest.mark.parametrize(
    "use",
    ["called", "read", "compared", "in_a_set", "true", "computed", "computed_by_torch", "iterated", "late"],
)
def test_a_stub_cannot_have_a_part_in_a_number(stubs: Original, use: str) -> None:
    arguments = [torch.ones(2)] if use.startswith("computed") else []
    with pytest.raises(StubUsed, match=r"vllm\.[\w.]+ of the old vLLM is needed to compute"):
        getattr(stubs.module, use)(*arguments)


@pytest.mark.parametrize("name", ["Pear", "Plum", "Decorated"])
def test_what_is_made_of_a_stub_cannot_be_built(stubs: Original, name: str) -> None:
    with pytest.raises(StubUsed, match="MultiModal"):
        getattr(stubs.module, name)()


def test_whether_an_object_of_transformers_is_of_a_stubbed_class_is_not_guessed(stubs: Original) -> None:
    from transformers import PretrainedConfig

    with pytest.raises(StubUsed, match=r"transformers\.NoSuchConfig"):
        stubs.module.asked(PretrainedConfig())


def test_plain_attention_is_the_same_to_the_last_bit(write: Write) -> None:
    """Not only close: a right port on the CPU computes the very same operations."""
    original = load(write("from vllm.attention.layer import MultiHeadAttention\n"), "0.12.0")
    with host.vllm_config():
        attention = original.module.MultiHeadAttention(HEADS, HEAD_DIM, scale=0.7)
    q, k, v = packed()
    right = scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)), scale=0.7).transpose(1, 2)
    assert torch.equal(attention(q, k, v), right.flatten(2))

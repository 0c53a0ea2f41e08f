"""Files on MMEncoderAttention of 0.13 or 0.14: taken to later releases, and left as they are where they fit (VA403,
VA650, and the rules that clean up)."""

from __future__ import annotations

from pathlib import Path

import pytest

from codemods.findings import Severity
from tests.rules.vision_model import Port, edited, porter

IMPORTS = """\
import torch
from torch import nn
from vllm.attention.backends.registry import AttentionBackendEnum
from vllm.attention.layers.mm_encoder_attention import MMEncoderAttention
from vllm.config import MultiModalConfig, VllmConfig
from vllm.distributed import get_tensor_model_parallel_world_size
from vllm.model_executor.models.vision import get_vit_attn_backend
"""
ATTENTION = """

class VisionAttention(nn.Module):
    def __init__(self, heads: int, head_dim: int, multimodal_config: MultiModalConfig | None = None) -> None:
        super().__init__()
        use_data_parallel = multimodal_config.mm_encoder_tp_mode == "data" if multimodal_config else False
        ranks = 1 if use_data_parallel else get_tensor_model_parallel_world_size()
        self.attn = MMEncoderAttention(heads // ranks, head_dim, multimodal_config=multimodal_config)

    def forward(self, q, k, v, cu_seqlens: torch.Tensor, max_seqlen: int | None = None):
        return self.attn(query=q, key=k, value=v, cu_seqlens=cu_seqlens, max_seqlen=max_seqlen)
"""
TOWER = """

class VisionTower(nn.Module):
    def __init__(
        self,
        heads: int,
        head_dim: int,
        multimodal_config: MultiModalConfig | None = None,
        attn_backend_override: AttentionBackendEnum | None = None,
    ) -> None:
        super().__init__()
        assert multimodal_config is not None
        self.layer = VisionAttention(heads, head_dim, multimodal_config)
        override = multimodal_config.mm_encoder_attn_backend if multimodal_config is not None else None
        self.attn_backend = get_vit_attn_backend(
            head_size=head_dim, dtype=torch.get_default_dtype(), attn_backend_override=override
        )
        if self.attn_backend not in {
            AttentionBackendEnum.FLASH_ATTN,
            AttentionBackendEnum.TORCH_SDPA,
            AttentionBackendEnum.ROCM_AITER_FA,
        }:
            raise RuntimeError(f"this tower does not support {self.attn_backend}")

    def forward(self, q, k, v, cu_seqlens):
        max_seqlen = None
        if self.attn_backend in {AttentionBackendEnum.FLASH_ATTN, AttentionBackendEnum.ROCM_AITER_FA}:
            max_seqlen = (cu_seqlens[1:] - cu_seqlens[:-1]).max()
        return self.layer(q, k, v, cu_seqlens, max_seqlen)
"""
MODEL = """

class VisionModel(nn.Module):
    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__()
        multimodal_config = vllm_config.model_config.multimodal_config
        self.use_data_parallel = multimodal_config.mm_encoder_tp_mode == "data"
        self.visual = VisionTower(16, 64, multimodal_config=multimodal_config)
"""
FILE = IMPORTS + ATTENTION + TOWER + MODEL
FILE_14 = edited(
    FILE,
    *("vllm.attention.backends.registry", "vllm.v1.attention.backends.registry"),
    *("vllm.attention.layers.mm", "vllm.model_executor.layers.attention.mm"),
)
ASKED = "is_vit_use_data_parallel()"
MODE = 'multimodal_config.mm_encoder_tp_mode == "data" if multimodal_config else False'
BUILT = "VisionTower(16, 64, multimodal_config=multimodal_config)"


@pytest.fixture
def port(tmp_path: Path) -> Port:
    return porter(tmp_path)


# name: (old, new): what keeps a mode where it is
STAYS = {
    "another mode": (f"= {MODE}", '= multimodal_config.mm_encoder_tp_mode == "weights"'),
    "another default": (f"= {MODE}", f"= {MODE.replace('False', 'True')}"),
    "read for more": ("ranks =", "self.limit = multimodal_config.limit_per_prompt\n        ranks ="),
    "built without it": (BUILT, "VisionTower(16, 64)"),
    "built with None": (BUILT, "VisionTower(16, 64, None)"),
    "built with another": (BUILT, "VisionTower(16, 64, prefix.config)"),
    "nobody builds it": (MODEL, ""),
    "the name is taken": ("import torch\n", "import torch\nfrom mine import is_vit_use_data_parallel\n"),
}


class TestWhereItFits:
    """At its own release nothing changes: no stale annotation, dead parameter or complete guard is touched."""

    @pytest.mark.parametrize(("text", "target"), [(FILE, "0.13"), (FILE_14, "0.14")])
    def test_a_file_is_untouched(self, text: str, target: str, port: Port) -> None:
        after = port(text, target)
        assert after.text == text
        assert after.findings == []

    def test_from_0_13_to_0_14_only_modules_move(self, port: Port) -> None:
        after = port(FILE, "0.14")
        assert "multimodal_config=multimodal_config)" in after.text
        assert after.call("get_vit_attn_backend")["attn_backend_override"] == "override"
        assert "mm_encoder_attention import MMEncoderAttention" in after.text
        assert after.findings == []

    def test_a_length_that_is_a_number_is_a_fault_there_too(self, port: Port) -> None:
        after = port(edited(FILE, "[:-1]).max()", "[:-1]).max().item()"), "0.13")
        assert after.assigned("max_seqlen")[1:] == ["(cu_seqlens[1:] - cu_seqlens[:-1]).max()"]
        assert "max_seqlen: torch.Tensor | None=None" in after.parameters("VisionAttention.forward")

    def test_an_annotation_that_allows_a_tensor_is_right(self, port: Port) -> None:
        text = edited(FILE, "max_seqlen: int | None", "max_seqlen: int | torch.Tensor | None")
        assert "max_seqlen: int | torch.Tensor | None=None" in port(text).parameters("VisionAttention.forward")


class TestFrom015On:
    @pytest.mark.parametrize("text", [FILE, FILE_14], ids=["from 0.13", "from 0.14"])
    @pytest.mark.parametrize("target", ["0.15", "0.16", "0.20", "0.32"])
    def test_the_configuration_is_no_longer_handed_down(self, text: str, target: str, port: Port) -> None:
        after = port(text, target)
        assert after.findings == []
        assert after.parameters("VisionAttention.__init__") == "self, heads: int, head_dim: int"
        assert after.parameters("VisionTower.__init__") == "self, heads: int, head_dim: int"
        assert after.assigned("use_data_parallel") == [ASKED]
        assert after.call("VisionTower") == {"0": "16", "1": "64"}
        assert list(after.call("get_vit_attn_backend")) == ["head_size", "dtype"]
        assert "import VllmConfig\n" in after.text and "assert" not in after.text

    def test_the_model_itself_still_reads_it(self, port: Port) -> None:
        assert port(FILE).assigned("self.use_data_parallel") == ["multimodal_config.mm_encoder_tp_mode == 'data'"]

    @pytest.mark.parametrize("target", ["0.16", "0.17"])
    def test_the_set_of_backends_grows_with_triton(self, target: str, port: Port) -> None:
        assert ("AttentionBackendEnum.TRITON_ATTN" in port(FILE, target).text) == (target == "0.17")

    @pytest.mark.parametrize(
        "mode",
        [
            'multimodal_config.mm_encoder_tp_mode == "data" if multimodal_config is not None else False',
            'multimodal_config is not None and multimodal_config.mm_encoder_tp_mode == "data"',
            'multimodal_config and "data" == multimodal_config.mm_encoder_tp_mode',
            'multimodal_config.mm_encoder_tp_mode == "data"',
        ],
    )
    def test_the_mode_however_it_is_written(self, mode: str, port: Port) -> None:
        assert port(edited(FILE, f"= {MODE}", f"= {mode}")).assigned("use_data_parallel") == [ASKED]

    @pytest.mark.parametrize(
        "config",
        ["vllm_config.model_config.multimodal_config", "vllm_config.model_config.get_multimodal_config()"],
    )
    def test_the_configuration_however_it_is_passed(self, config: str, port: Port) -> None:
        text = edited(FILE, BUILT, f"VisionTower(16, 64, {config})")
        assert port(text).assigned("use_data_parallel") == [ASKED]

    @pytest.mark.parametrize("edit", STAYS.values(), ids=STAYS)
    def test_the_mode_stays_where_something_else_is_meant(self, edit: tuple[str, str], port: Port) -> None:
        text = edited(FILE, *edit)
        after = port(text)
        assert after.assigned("use_data_parallel") != [ASKED]
        assert "multimodal_config" in after.parameters("VisionAttention.__init__")
        assert not [rewrite for rewrite in after.rewrites if rewrite.code == "VA650"]


class TestScale:
    """0.13 ignores what it is given."""

    def text(self, scale: str) -> str:
        return edited(FILE, "ranks, head_dim, multi", f"ranks, head_dim, scale={scale}, multi")

    @pytest.mark.parametrize("scale", ["head_dim**-0.5", "None", "1 / math.sqrt(head_dim)"])
    def test_that_is_the_default_is_the_same_everywhere(self, scale: str, port: Port) -> None:
        assert port(self.text(scale)).findings == []

    def test_that_is_the_default_in_figures(self, port: Port) -> None:
        text = edited(FILE, "ranks, head_dim, multi", "ranks, 64, scale=0.125, multi")
        assert port(text).findings == []
        assert port(text.replace("0.125", "0.25"), "0.14").left(Severity.WARNING) != []
        assert port(text.replace("ranks, 64", "ranks, 0"), "0.14").left(Severity.WARNING) != []  # no size, and no crash

    @pytest.mark.parametrize(("behind", "left"), [("", 0), ("head_dim += 8", 1), ("self.scale = self.scale * 2", 1)])
    def test_that_is_held_is_that_of_the_size_it_is_given_with(self, behind: str, left: int, port: Port) -> None:
        built = "        self.attn = MMEncoderAttention("
        text = edited(FILE, built, f"        self.scale = head_dim**-0.5\n        {behind}\n{built}")
        text = edited(text, "ranks, head_dim, multi", "ranks, head_dim, scale=self.scale, multi")
        said = port(text, "0.14").left(Severity.WARNING)
        assert [code for code, message in said if "scale=self.scale is not shown" in message] == ["VA403"] * left

    def test_of_its_own_begins_to_count(self, port: Port) -> None:
        ((code, message),) = port(self.text("0.1"), "0.14").left(Severity.WARNING)
        assert code == "VA403" and "scale=0.1 is not shown to be head_size**-0.5" in message and "uses" in message

    def test_of_its_own_no_longer_counts_at_0_13(self, port: Port) -> None:
        text = edited(FILE_14, "head_dim, multimodal_config=", "head_dim, 0.1, multimodal_config=")
        ((code, message),) = port(text, "0.13").left(Severity.WARNING)
        assert code == "VA403" and "ignores it" in message

    def test_of_its_own_stays_what_it_is_between_later_releases(self, port: Port) -> None:
        text = edited(FILE_14, "head_dim, multimodal_config=", "head_dim, 0.1, multimodal_config=")
        assert port(text).findings == []

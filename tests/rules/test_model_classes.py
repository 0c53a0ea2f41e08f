"""VA640 to VA644: what a plugin does with vLLM's own blocks, towers and models follows the target, or is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from codemods.findings import Severity
from tests.rules.vision_model import Port, Ported, edited, porter

IMPORTS = """\
import torch
from torch import nn
from vllm.attention.backends.registry import AttentionBackendEnum
from vllm.config import MultiModalConfig, VllmConfig
from vllm.model_executor.models.qwen2_5_vl import Qwen2_5_VisionBlock
from vllm.model_executor.models.vision import get_vit_attn_backend
"""

TOWER = """

class Tower(nn.Module):
    def __init__(self, width, use_data_parallel=False, attn_backend_override=None):
        super().__init__()
        self.block = Qwen2_5_VisionBlock(width, 16, 64, use_data_parallel=use_data_parallel)
"""
CALL = "Qwen2_5_VisionBlock(width, 16, 64, use_data_parallel=use_data_parallel)"


@pytest.fixture
def port(tmp_path: Path) -> Port:
    return porter(tmp_path)


def calling(call: str, tower: str = TOWER) -> str:
    """The tower with another call of vLLM's class."""
    return IMPORTS + edited(tower, CALL, call)


def said(ported: Ported, code: str) -> list[str]:
    return [finding.message for finding in ported.findings if finding.code == code]


class TestArguments:
    """VA640"""

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ("(width, 16, 64, use_data_parallel=use_data_parallel)", "(width, 16, 64)"),
            ("(width, 16, 64, attn_backend_override=attn_backend_override, prefix='b')", "(width, 16, 64, prefix='b')"),
            ("(width, 16, 64, None, None, None, 'b', use_data_parallel)", "(width, 16, 64, None, None, None, 'b')"),
            ("(width, num_heads=16, **more, use_data_parallel=False)", "(width, num_heads=16, **more)"),
        ],
        ids=["by keyword", "between others", "by position", "beside **"],
    )
    def test_that_only_carried_what_vllm_reads_itself_go(self, before: str, after: str, port: Port) -> None:
        ported = port(calling(f"Qwen2_5_VisionBlock{before}"), "0.32")
        assert ported.findings == []
        assert f"self.block = Qwen2_5_VisionBlock{after}" in ported.text

    def test_go_from_an_alias_a_module_and_the_package_s_own_re_export(self, port: Port) -> None:
        files = {
            "pack/__init__.py": "",
            "pack/parts.py": "from vllm.model_executor.models.qwen2_5_vl import Qwen2_5_VisionBlock as Block\n",
            "pack/tower.py": "import vllm.model_executor.models.qwen2_5_vl as upstream\n\n"
            "from .parts import Block\n\n\n"
            "def build(backend):\n"
            "    return [Block(64, 4, 128, attn_backend=backend), "
            "upstream.Qwen2_5_VisionBlock(64, 4, 128, attn_backend=backend)]\n",
        }
        ported = port(files, "0.32", given=("pack",))
        assert "[Block(64, 4, 128), upstream.Qwen2_5_VisionBlock(64, 4, 128)]" in ported.texts["pack/tower.py"]
        assert ported.findings == []

    def test_go_where_a_subclass_builds_itself(self, port: Port) -> None:
        ported = port(
            "from vllm.model_executor.models.qwen2_5_vl import Qwen2_5_VisionTransformer\n\n\n"
            "class Tower(Qwen2_5_VisionTransformer):\n"
            "    def __init__(self, config, use_data_parallel=False):\n"
            '        super().__init__(config, 1e-6, None, "visual", use_data_parallel)\n',
            "0.28",
        )
        assert 'super().__init__(config, 1e-6, None, "visual")' in ported.text
        assert ported.findings == []

    def test_keep_reaching_their_parameter(self, port: Port) -> None:
        """Where vLLM 0.32 has input_norm, vLLM 0.12 had the prefix."""
        ported = port(
            "from vllm.attention.backends.registry import AttentionBackendEnum\n"
            "from vllm.attention.layer import maybe_get_vit_flash_attn_backend\n"
            "from vllm.model_executor.models.qwen2_vl import Qwen2VisionTransformer\n\n\n"
            "def build(config, prefix):\n"
            "    backend, _ = maybe_get_vit_flash_attn_backend(AttentionBackendEnum.FLASH_ATTN, None)\n"
            "    return Qwen2VisionTransformer(config, 1e-6, None, prefix, False), backend\n",
            "0.32",
        )
        assert "Qwen2VisionTransformer(config, 1e-6, None, prefix=prefix)" in ported.text

    @pytest.mark.parametrize("target", ["0.13", "0.14"])
    @pytest.mark.parametrize(
        ("parameters", "config"),
        [
            ("multimodal_config", "multimodal_config"),
            ("vllm_config", "vllm_config.model_config.multimodal_config"),
        ],
    )
    def test_give_way_to_the_configuration_in_two_releases(
        self, parameters: str, config: str, target: str, port: Port
    ) -> None:
        tower = edited(TOWER, "use_data_parallel=False", f"{parameters}, use_data_parallel=False")
        ported = port(IMPORTS + tower, target)
        assert ported.findings == []
        assert ported.call("Qwen2_5_VisionBlock")["multimodal_config"] == config
        assert "use_data_parallel" not in ported.call("Qwen2_5_VisionBlock")

    def test_give_way_to_what_becomes_the_configuration(self, port: Port) -> None:
        call = "Qwen2_5_VisionBlock(width, 16, 64, attn_backend_override=attn_backend_override)"
        ported = port(calling(call), "0.14")
        assert ported.findings == []
        assert ported.call("Qwen2_5_VisionBlock")["multimodal_config"] == "multimodal_config"
        assert "multimodal_config: MultiModalConfig | None=None" in ported.parameters("Tower.__init__")

    def test_without_a_configuration_in_reach_stay_and_are_reported(self, port: Port) -> None:
        ported = port(IMPORTS + TOWER, "0.14")
        assert ported.left(Severity.ERROR) == [
            (
                "VA640",
                "this call of Qwen2_5_VisionBlock does not fit vLLM 0.14.1: it takes multimodal_config instead of "
                "use_data_parallel, and no configuration is in reach here",
            )
        ]
        assert TOWER in ported.text

    def test_of_0_14_go_at_0_15(self, port: Port) -> None:
        call = "Qwen2_5_VisionBlock(width, 16, 64, nn.SiLU(), None, None, multimodal_config, 'b')"
        tower = edited(TOWER, "attn_backend_override=None", "multimodal_config=None")
        ported = port(calling(call, tower), "0.15")
        assert "Qwen2_5_VisionBlock(width, 16, 64, nn.SiLU(), None, None, 'b')" in ported.text
        assert ported.findings == []

    def test_of_0_14_go_with_the_chain_that_handed_them_down(self, port: Port) -> None:
        ported = port(
            "from torch import nn\nfrom vllm.config import MultiModalConfig\n"
            "from vllm.model_executor.layers.attention.mm_encoder_attention import MMEncoderAttention\n"
            "from vllm.model_executor.models.qwen2_5_vl import Qwen2_5_VisionAttention\n\n\n"
            "class Block(nn.Module):\n"
            "    def __init__(self, width, multimodal_config: MultiModalConfig | None = None):\n"
            "        super().__init__()\n"
            '        self.shared = not (multimodal_config and multimodal_config.mm_encoder_tp_mode == "data")\n'
            "        self.attn = Qwen2_5_VisionAttention(width, 4, width, multimodal_config=multimodal_config)\n\n\n"
            "class Model(nn.Module):\n    def __init__(self, *, vllm_config, prefix=''):\n        super().__init__()\n"
            "        self.visual = Block(64, multimodal_config=vllm_config.model_config.multimodal_config)\n",
            "0.32",
        )
        assert ported.findings == []
        assert "multimodal_config" not in ported.text
        assert ported.assigned("self.shared") == ["not is_vit_use_data_parallel()"]

    def test_of_a_function_that_builds_a_tower_come_and_go(self, port: Port) -> None:
        build = (
            "from vllm.model_executor.models.llava import init_vision_tower_for_llava\n\n\n"
            "def tower(vllm_config, quant):\n"
            "    return init_vision_tower_for_llava(vllm_config.model_config.hf_config, quant{})\n"
        )
        config = ", multimodal_config=vllm_config.model_config.multimodal_config"
        assert port(build.format(""), "0.14").text == build.format(config)
        assert port(build.format(config), "0.32").text == build.format("")

    @pytest.mark.parametrize(
        ("call", "why"),
        [
            ("(width, 16, 64, use_data_parallel=True)", "goes by --mm-encoder-tp-mode alone"),
            ("(width, 16, 64, use_data_parallel=width > 64)", "not by use_data_parallel=width > 64"),
            ("(width, 16, 64, attn_backend=choose(width))", "choose(width) may do more than fill it"),
            ("(width, 16, 64, flavour=1, use_data_parallel=False)", "it has no parameter 'flavour'"),
        ],
    )
    def test_that_say_more_are_reported_with_the_signature(self, call: str, why: str, port: Port) -> None:
        text = calling(f"Qwen2_5_VisionBlock{call}")
        ported = port(text, "0.32")
        (message,) = said(ported, "VA640")
        assert why in message
        assert f"Qwen2_5_VisionBlock{call}" in ported.text
        remedy = next(f.remedy for f in ported.findings if f.code == "VA640")
        assert remedy == (
            "Its parameters are (dim, num_heads, mlp_hidden_dim, act_fn=..., norm_layer=..., quant_config=..., "
            "prefix=...) now."
        )

    def test_that_fix_a_backend_go_and_are_to_be_looked_at(self, port: Port) -> None:
        call = "Qwen2_5_VisionBlock(width, 16, 64, attn_backend=AttentionBackendEnum.TORCH_SDPA)"
        ported = port(calling(call), "0.32")
        (rewrite,) = [r for r in ported.rewrites if r.code == "VA640"]
        assert rewrite.safety == "review: AttentionBackendEnum.TORCH_SDPA was asked for here; vLLM now chooses"

    def test_leave_a_look_up_without_a_reader_which_goes_too(self, port: Port) -> None:
        tower = edited(
            TOWER,
            "        self.block",
            "        backend = get_vit_attn_backend(head_size=4, dtype=torch.get_default_dtype())\n        self.block",
        )
        ported = port(calling("Qwen2_5_VisionBlock(width, 16, 64, attn_backend=backend)", tower), "0.32")
        assert "get_vit_attn_backend" not in ported.text

    @pytest.mark.parametrize(
        "define",
        [
            "class Qwen2_5_VisionBlock(nn.Module):\n    def __init__(self, *a, attn_backend=None): ...\n",
            "from elsewhere import Qwen2_5_VisionBlock\n",
        ],
    )
    def test_of_others_stay(self, define: str, port: Port) -> None:
        text = f"import vllm\nfrom torch import nn\n\n{define}\n\nblock = Qwen2_5_VisionBlock(1, 2, attn_backend=nn)\n"
        assert "Qwen2_5_VisionBlock(1, 2, attn_backend=nn)" in port(text, "0.32").text

    def test_of_super_that_passes_a_base_over_stay(self, port: Port) -> None:
        text = (
            "from vllm.model_executor.models.qwen3 import Qwen3ForCausalLM\n\n\n"
            "class Model(Qwen3ForCausalLM):\n    def __init__(self, *, vllm_config, prefix=''):\n"
            "        super(Qwen3ForCausalLM, self).__init__()\n"
        )
        ported = port(text, "0.32")
        assert (ported.text, ported.findings) == (text, [])

    def test_of_the_target_stay(self, port: Port) -> None:
        text = (
            "from vllm.model_executor.models.qwen2_5_vl import Qwen2_5_VisionTransformer\n\n"
            "tower = Qwen2_5_VisionTransformer({}, 1e-6, None, object(), 'visual')\n"
        )
        ported = port(text, "0.32")
        assert (ported.text, ported.findings) == (text, [])


QWEN = "from vllm.model_executor.models.qwen2_5_vl import Qwen2_5_VisionTransformer\n"
PLAIN = "class Tower(Qwen2_5_VisionTransformer):\n    def forward(self, x, grid_thw, *, encoder_metadata=None): ...\n"
PASSING = """\
class Tower(Qwen2_5_VisionTransformer):
    def __init__(self, *args, taps=(), **kwargs):
        super().__init__(*args, **kwargs)
        self.taps = taps
"""
BUILD = "\n\ndef build(config, backend):\n    return "


class TestInheritedConstructor:
    """VA640"""

    @pytest.mark.parametrize(
        ("classes", "before", "after"),
        [
            (PLAIN, "Tower(config, attn_backend_override=backend)", "Tower(config)"),
            (f"{PLAIN}\n\nclass Leaf(Tower):\n    pass\n", "Leaf(config, use_data_parallel=False)", "Leaf(config)"),
            (
                PASSING,
                "Tower(config, 1e-6, None, 'v', attn_backend_override=backend, taps=(1,))",
                "Tower(config, 1e-6, None, prefix='v', taps=(1,))",
            ),
        ],
        ids=["none of its own", "nor of its base", "one that hands all on"],
    )
    def test_is_told_what_vllm_s_is(self, classes: str, before: str, after: str, port: Port) -> None:
        ported = port(f"{QWEN}\n\n{classes}{BUILD}{before}\n", "0.32")
        assert ported.text == f"{QWEN}\n\n{classes}{BUILD}{after}\n"
        assert ported.findings == []

    def test_of_super_goes_through_a_base_that_hands_all_on(self, port: Port) -> None:
        leaf = "\n\nclass Leaf(Tower):\n    def __init__(self, config):\n        super().__init__(config{})\n"
        ported = port(f"{QWEN}\n\n{PASSING}{leaf.format(', use_data_parallel=False, taps=(1,))')[:-2]}\n", "0.32")
        assert "super().__init__(config, taps=(1,))" in ported.text

    def test_is_told_the_configuration_where_one_is_in_reach(self, port: Port) -> None:
        ported = port(f"{QWEN}\n\n{PLAIN}{BUILD}Tower(config, attn_backend_override=backend)\n", "0.14")
        assert "Tower(config, multimodal_config=multimodal_config)" in ported.text
        assert ported.findings == []

    @pytest.mark.parametrize(
        "classes",
        [
            edited(
                PASSING, "super().__init__(*args", "kwargs.pop('attn_backend_override')\n        super().__init__(*args"
            ),
            edited(PASSING, "(*args, **kwargs)\n        self", "(*args)\n        self"),
            edited(PLAIN, "class", "@wrapped\nclass"),
            f"from elsewhere import Mixin\n\n\n{edited(PLAIN, '(Qwen', '(Mixin, Qwen')}",
            f"{PLAIN}\n\nTower.__init__ = None\n",
        ],
        ids=["looks into it", "hands on a part", "decorated", "another base", "set from outside"],
    )
    def test_that_may_be_another_stays(self, classes: str, port: Port) -> None:
        ported = port(f"{QWEN}\n\n{classes}{BUILD}Tower(config, attn_backend_override=backend)\n", "0.32")
        assert "Tower(config, attn_backend_override=backend)" in ported.text
        assert said(ported, "VA640") == []


class TestArgumentsElsewhere:
    """VA640"""

    def test_of_a_partial_go_where_a_keyword_passes_them(self, port: Port) -> None:
        text = f"from functools import partial\n\n{QWEN}\nmake = partial(Qwen2_5_VisionTransformer{{}})\n"
        assert port(text.format(", 1, use_data_parallel=False"), "0.32").text == text.format(", 1")
        placed = text.format(", 1, 1e-6, None, 'v', attn_backend_override=None")
        ported = port(placed, "0.32")
        assert ported.text == placed
        assert "more may be passed by position later" in said(ported, "VA640")[0]

    @pytest.mark.parametrize("value", ["dict(use_data_parallel=False)", "{'use_data_parallel': False}"])
    def test_of_a_local_dict_are_reported(self, value: str, port: Port) -> None:
        text = (
            f"{QWEN}\n\ndef build(config):\n    more = {value}\n    return Qwen2_5_VisionTransformer(config, **more)\n"
        )
        ported = port(text, "0.32")
        assert "it has no parameter 'use_data_parallel', which ** brings" in said(ported, "VA640")[0]
        assert ported.text == text
        read = edited(text, "    return", "    more.clear()\n    return")
        assert said(port(read, "0.32"), "VA640") == []

    @pytest.mark.parametrize(
        "build",
        [
            "Name = Qwen2_5_VisionTransformer\ntower = Name(1{})\n",
            "class Model:\n    kind = Qwen2_5_VisionTransformer\n\n    def build(self):\n"
            "        return self.kind(1{})\n",
        ],
    )
    def test_of_another_name_of_the_class_go(self, build: str, port: Port) -> None:
        ported = port(f"{QWEN}\n\n{build.format(', use_data_parallel=False')}", "0.32")
        assert ported.text == f"{QWEN}\n\n{build.format('')}"

    def test_of_a_name_that_may_stand_for_another_stay(self, port: Port) -> None:
        text = (
            f"{QWEN}\n\nclass Model:\n    kind = Qwen2_5_VisionTransformer\n\n    def build(self):\n"
            "        return self.kind(1, use_data_parallel=False)\n\n\nModel.kind = int\n"
        )
        assert port(text, "0.32").text == text


BLOCKS = """\
import torch
from torch import nn
from vllm.model_executor.models.qwen2_5_vl import Qwen2_5_VisionAttention
from vllm.model_executor.models.qwen2_vl import Qwen2VisionBlock


class Tower(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attn = Qwen2_5_VisionAttention(width, 4, width)
        self.blocks = nn.ModuleList([Qwen2VisionBlock(width, 4, 4.0) for _ in range(2)])

    def forward(self, x, cu_seqlens, cos, sin, max_seqlen, seqlens=None):
        return x
"""


INHERITED = """\
from torch import nn
from vllm.model_executor.models.ernie45_vl import Ernie4_5_VisionTransformer


class Tower(Ernie4_5_VisionTransformer):
    def forward(self, x, cu_seqlens, angles, seqlens):
        for block in self.blocks:
            x = block(x, cu_seqlens=cu_seqlens, rotary_pos_emb=angles, seqlens=seqlens)
        return x
"""


KNOWN = "x, cu_seqlens=cu_seqlens, rotary_pos_emb_cos=cos, rotary_pos_emb_sin=sin, max_seqlen=max_seqlen"


def running_blocks(loop: str, call: str) -> str:
    """A tower of vLLM's whose blocks a subclass runs."""
    return (
        "from itertools import islice\n\nfrom torch import nn\nfrom vllm.model_executor.models.qwen3_vl import (\n"
        "    Qwen3_VisionBlock,\n    Qwen3_VisionTransformer,\n    Qwen3VLForConditionalGeneration,\n)\n\n\n"
        "class Tower(Qwen3_VisionTransformer):\n    def run(self, x, cu_seqlens, cos, sin, max_seqlen):\n"
        f"        {loop}\n            x = {call}\n        return x\n"
    )


def running(line: str) -> str:
    return edited(BLOCKS, "        return x\n", f"{line}\n        return x\n")


class TestCalls:
    """VA641"""

    def test_pass_no_lists_of_lengths(self, port: Port) -> None:
        text = (
            "from torch import nn\nfrom vllm.model_executor.models.ernie45_vl import Ernie4_5_VisionBlock\n\n\n"
            "class Tower(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            "        self.blocks = nn.ModuleList([Ernie4_5_VisionBlock(64, 4, 4.0)])\n\n"
            "    def forward(self, x, cu_seqlens, angles, max_seqlen=None, seqlens=None):\n"
            "        for i, block in enumerate(self.blocks):\n"
            "            x = block(x, cu_seqlens, angles{})\n        return x\n"
        )
        assert "block(x, cu_seqlens, angles, max_seqlen)" in port(text.format(", max_seqlen, seqlens"), "0.32").text
        assert "block(x, cu_seqlens, angles)" in port(text.format(", seqlens=seqlens"), "0.32").text

    def test_pass_no_lengths_where_the_target_needs_them(self, port: Port) -> None:
        line = "        x = self.attn(x, cu_seqlens, cos, sin, max_seqlen)"
        ported = port(running(line), "0.32")
        assert "self.attn(x, cu_seqlens, cos, sin, max_seqlen, sequence_lengths=None)" in ported.text
        (rewrite,) = [r for r in ported.rewrites if r.code == "VA641"]
        assert rewrite.safety.startswith("review: sequence_lengths is None")
        assert port(running(line), "0.14").text == running(line)

    def test_by_the_name_that_a_parameter_has_now(self, port: Port) -> None:
        text = (
            "from vllm.model_executor.models.siglip import SiglipVisionModel\n\n\n"
            "def features(config, pixels, layers):\n    tower = SiglipVisionModel(config)\n"
            "    return tower(pixels, False, layers), tower.forward(pixels, feature_sample_layers=layers)\n"
        )
        ported = port(text, "0.32")
        assert "tower(pixels, False, layers), tower.forward(pixels, select_layers=layers)" in ported.text

    def test_by_super(self, port: Port) -> None:
        text = (
            "from vllm.model_executor.models.qwen3_vl import Qwen3_VisionBlock\n\n\n"
            "class Block(Qwen3_VisionBlock):\n"
            "    def forward(self, x, cu_seqlens, cos, sin, max_seqlen, sequence_lengths=None):\n"
            "        return super().forward(x, cu_seqlens, cos, sin, max_seqlen)\n"
        )
        ported = port(text, "0.32")
        assert "super().forward(x, cu_seqlens, cos, sin, max_seqlen, sequence_lengths=None)" in ported.text
        assert ported.findings == []

    def test_of_angles_are_reported(self, port: Port) -> None:
        line = "        x = self.blocks[0](x, cu_seqlens=cu_seqlens, rotary_pos_emb=cos, max_seqlen=max_seqlen)"
        ported = port(running(line), "0.32")
        (message,) = said(ported, "VA641")
        assert message == "this call of Qwen2VisionBlock does not fit vLLM 0.32.0: it has no parameter 'rotary_pos_emb'"
        assert line in ported.text

    def test_of_what_may_be_something_else_stay(self, port: Port) -> None:
        text = edited(
            running("        x = self.attn(x, cu_seqlens, cos, sin, max_seqlen)"),
            "        self.blocks",
            "        if width > 64:\n            self.attn = nn.Identity()\n        self.blocks",
        )
        ported = port(text, "0.32")
        assert (ported.text, said(ported, "VA641")) == (text, [])

    def test_of_a_method_that_the_plugin_replaces_are_its_own(self, port: Port) -> None:
        text = edited(
            running("        x = self.attn(x, cu_seqlens, cos, sin, max_seqlen)"),
            "\n\nclass Tower",
            "\n\ndef attend(self, x, cu_seqlens, cos, sin, max_seqlen):\n    return x\n"
            "\n\nQwen2_5_VisionAttention.forward = attend\n\n\nclass Tower",
        )
        ported = port(text, "0.32")
        assert (ported.text, said(ported, "VA641")) == (text, [])

    @pytest.mark.parametrize(
        ("loop", "call"),
        [
            ("for block in self.blocks:", "block"),
            ("for number, block in enumerate(self.blocks[2:]):", "block"),
            ("for _ in range(2):", "self.blocks[0]"),
        ],
    )
    def test_of_blocks_that_vllm_s_constructor_made(self, loop: str, call: str, port: Port) -> None:
        text = edited(edited(INHERITED, "for block in self.blocks:", loop), "block(x", f"{call}(x")
        ported = port(text, "0.32")
        assert f"x = {call}(x, cu_seqlens=cu_seqlens, rotary_pos_emb=angles)" in ported.text
        assert ported.findings == []

    @pytest.mark.parametrize(("overrides", "changes"), [("forward", False), ("other", True)])
    def test_of_a_parameter_reach_the_plugins_own_subclasses_too(
        self, overrides: str, changes: bool, port: Port
    ) -> None:
        text = (
            "from vllm.model_executor.models.qwen3_vl import Qwen3_VisionBlock\n\n\n"
            f"class Block(Qwen3_VisionBlock):\n    def {overrides}(self, x, cu_seqlens, cos, sin, max_seqlen):\n"
            "        return x\n\n\n"
            "def run(block: Qwen3_VisionBlock, x, cu_seqlens, cos, sin, max_seqlen):\n"
            "    return block(x, cu_seqlens, cos, sin, max_seqlen)\n"
        )
        ported = port(text, "0.32")
        assert ("sequence_lengths=None" in ported.text) is changes
        assert said(ported, "VA641") == []

    def test_of_blocks_of_the_class_whose_method_is_replaced(self, port: Port) -> None:
        text = edited(INHERITED, "Tower(Ernie4_5_VisionTransformer)", "Tower(nn.Module)")
        patched = port(f"{text}\n\nErnie4_5_VisionTransformer.forward = Tower.forward\n", "0.32")
        assert "block(x, cu_seqlens=cu_seqlens, rotary_pos_emb=angles)" in patched.text
        assert port(text, "0.32").text == text

    @pytest.mark.parametrize(
        "more",
        [
            "    def __init__(self, *more):\n        super().__init__(*more)\n        self.blocks = other(self)\n",
            "\n\nclass Wider(Tower):\n    def grow(self, blocks):\n        self.blocks = blocks\n",
            "\n\ndef widen(tower, blocks):\n    tower.blocks = blocks\n",
        ],
        ids=["of its own", "of a subclass", "from outside"],
    )
    def test_of_blocks_that_the_plugin_may_have_put_there_stay(self, more: str, port: Port) -> None:
        ported = port(INHERITED + more, "0.32")
        assert "rotary_pos_emb=angles, seqlens=seqlens)" in ported.text
        assert said(ported, "VA641") == []

    @pytest.mark.parametrize(
        ("before", "call"),
        [
            ("for block in islice(self.blocks, 4):", "block"),
            ("first, *rest = self.blocks\n        for block in rest:", "block"),
            ("for block in self.blocks:", "block.attn"),
        ],
    )
    def test_of_what_such_blocks_lead_to_take_all_that_it_needs(self, before: str, call: str, port: Port) -> None:
        text = running_blocks(before, f"{call}({KNOWN})")
        ported = port(text, "0.32")
        assert ported.text == running_blocks(before, f"{call}({KNOWN}, sequence_lengths=None)")
        assert ported.findings == []

    @pytest.mark.parametrize(
        "use",
        [
            "class Model(Qwen3VLForConditionalGeneration):\n    def probe(self, x, {0}):\n"
            "        for block in self.visual.blocks:\n            x = block({1})\n",
            "def probe(tower: Tower, x, {0}):\n    for block in tower.blocks:\n        x = block({1})\n",
            "def probe(tower: Qwen3_VisionTransformer, x, {0}):\n    return tower.blocks[0].attn({1})\n",
            "class Other(Tower):\n    def probe(self, x, {0}):\n        return self._one(self.blocks[0], x, {0})\n\n"
            "    def _one(self, block, x, {0}):\n        return block({1})\n",
        ],
        ids=["of a model", "of a parameter", "of vLLM's class", "in a helper"],
    )
    def test_of_blocks_of_a_tower_elsewhere(self, use: str, port: Port) -> None:
        names = "cu_seqlens, cos, sin, max_seqlen"
        text = running_blocks("for block in self.blocks:", f"block({KNOWN}, sequence_lengths=None)") + "\n\n"
        ported = port(text + use.format(names, KNOWN), "0.32")
        assert ported.text == text + use.format(names, f"{KNOWN}, sequence_lengths=None")

    @pytest.mark.parametrize(
        "more",
        [
            "\n\ndef swap(block, attn):\n    block.attn = attn\n",
            "\n\nclass Block(Qwen3_VisionBlock):\n    def swap(self, attn):\n        self.attn = attn\n",
            "\n\nqwen3_vl.Qwen3_VisionBlock = object\n",
        ],
        ids=["from outside", "by a subclass", "another block"],
    )
    def test_of_parts_of_blocks_that_the_plugin_may_have_put_there_stay(self, more: str, port: Port) -> None:
        text = running_blocks("for block in self.blocks:", f"block.attn({KNOWN})") + more
        text = f"from vllm.model_executor.models import qwen3_vl\n{text}"
        assert f"block.attn({KNOWN})" in port(text, "0.32").text
        unrelated = text.partition("\n\nqwen3_vl.")[0].replace("block.attn = attn", "pass")
        unrelated = unrelated.replace("(Qwen3_VisionBlock)", "(nn.Module)")
        if unrelated != text:
            assert f"block.attn({KNOWN}, sequence_lengths=None)" in port(unrelated, "0.32").text

    def test_that_fit_in_no_reading_are_reported(self, port: Port) -> None:
        """Five positions are the angles and two more up to 0.11, cosines and sines from 0.12 on."""
        text = running_blocks("for block in self.blocks:", "block(x, cu, c, s, m)")
        ported = port(text, "0.32")
        assert ported.text == text
        assert said(ported, "VA641") == [
            "this call of Qwen3_VisionBlock does not fit vLLM 0.32.0: it needs 'sequence_lengths'"
        ]

    def test_of_a_local_dict_are_seen(self, port: Port) -> None:
        loop = "more = dict(rotary_pos_emb_cos=cos, rotary_pos_emb_sin=sin)\n        for block in self.blocks:"
        call = "block(x, cu_seqlens, max_seqlen=max_seqlen{}, **more)"
        ported = port(running_blocks(loop, call.format("")), "0.32")
        assert ported.text == running_blocks(loop, call.format(", sequence_lengths=None"))
        old = running_blocks(
            "more = {'rotary_pos_emb': cos}\n        for block in self.blocks:", "block(x, cu, **more)"
        )
        assert "it has no parameter 'rotary_pos_emb'" in said(port(old, "0.32"), "VA641")[0]

    def test_that_are_newer_than_the_rest_of_the_file_follow_where_they_are(self, port: Port) -> None:
        """The import says 0.11, of which no attention took the cosines and sines of its angles."""
        call = "self.attn(x, cu_seqlens, rotary_pos_emb_cos=cos, rotary_pos_emb_sin=sin, max_seqlen=max_seqlen"
        line = f"        x = {call})"
        old = (
            "from vllm.attention.layer import check_upstream_fa_availability\n\nHAS = check_upstream_fa_availability\n"
        )
        ported = port(edited(running(line), "\n\nclass", f"{old}\n\nclass"), "0.32")
        assert f"{call}, sequence_lengths=None)" in ported.text


PAIR = """\
from torch import nn
from vllm.attention.layer import check_upstream_fa_availability as has
from vllm.model_executor.models.qwen2_vl import Qwen2VisionTransformer


class Tower({base}):
    def forward(self, x, cu_seqlens):
        max_seqlen, seqlens = self.compute_attn_mask_seqlen(cu_seqlens)
        return self.blocks(x, cu_seqlens, max_seqlen, seqlens, has)
"""


class TestPair:
    """VA642: a method of vLLM's towers that gave two values up to 0.11."""

    PATCH = "\n\nQwen2VisionTransformer.forward = Tower.forward\n"
    OWN = "\n    def compute_attn_mask_seqlen(self, cu_seqlens):\n        return None, None\n"

    @pytest.mark.parametrize(
        ("base", "more"), [("Qwen2VisionTransformer", ""), ("nn.Module", PATCH)], ids=["a subclass", "a patch"]
    )
    def test_is_reported(self, base: str, more: str, port: Port) -> None:
        (message,) = said(port(PAIR.format(base=base) + more, "0.32"), "VA642")
        assert message.startswith("compute_attn_mask_seqlen of Qwen2VisionTransformer gives max_seqlen alone")

    @pytest.mark.parametrize(("base", "more"), [("Qwen2VisionTransformer", OWN), ("nn.Module", "")])
    def test_of_the_plugins_own_is_not(self, base: str, more: str, port: Port) -> None:
        assert said(port(PAIR.format(base=base) + more, "0.32"), "VA642") == []


STAND_IN = """\
import torch
from torch import nn
from vllm.model_executor.models.qwen3_vl import Qwen3_VisionBlock, Qwen3_VisionTransformer
from vllm.model_executor.models.vision import get_vit_attn_backend


class Tower({base}):
    def __init__(self, config):
        nn.Module.__init__(self)
        self.attn_backend = get_vit_attn_backend(head_size=64, dtype=torch.get_default_dtype())
        self.block = Qwen3_VisionBlock(config.width, 16, 64, attn_backend=self.attn_backend)
"""


class TestWhatVllmReads:
    """VA701: the last reader that is seen goes, and vLLM's own methods read the attribute all the same."""

    KEPT = "self.attn_backend = get_vit_attn_backend(head_size=64, dtype=torch.get_default_dtype())"

    @pytest.mark.parametrize(
        ("base", "then"),
        [
            ("Qwen3_VisionTransformer", ""),
            ("nn.Module", "\n\nQwen3_VisionTransformer.__init__ = Tower.__init__\n"),
            ("nn.Module", '\n\nsetattr(Qwen3_VisionTransformer, "__init__", Tower.__init__)\n'),
        ],
        ids=["a subclass", "a patch", "a patch by name"],
    )
    def test_stays(self, base: str, then: str, port: Port) -> None:
        ported = port(STAND_IN.format(base=base) + then, "0.32")
        assert self.KEPT in ported.text
        assert "Qwen3_VisionBlock(config.width, 16, 64)" in ported.text

    def test_goes_where_no_class_of_vllm_has_it(self, port: Port) -> None:
        ported = port(STAND_IN.format(base="nn.Module"), "0.32")
        assert "attn_backend" not in ported.text


class TestInherited:
    """VA642"""

    def test_override_that_lacks_what_came_is_a_warning(self, port: Port) -> None:
        text = edited(f"{QWEN}\n\n{PLAIN}", ", *, encoder_metadata=None", "{}")
        ported = port(text.format(""), "0.32")
        assert ported.left(Severity.WARNING) == [
            (
                "VA642",
                "Tower.forward overrides what vLLM 0.32.0 may call in another way: it takes no encoder_metadata",
            )
        ]
        assert port(text.format(""), "0.20").findings == []
        for taken in (", *, encoder_metadata=None", ", **more"):
            assert port(text.format(taken), "0.32").findings == []

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            (
                "        return self.use_data_parallel",
                "Tower takes use_data_parallel from Qwen3_VisionTransformer, which has none in vLLM 0.32.0",
            ),
            (
                "        return self.compute_attn_mask_seqlen(None)",
                "Tower takes compute_attn_mask_seqlen from Qwen3_VisionTransformer, which has none in vLLM 0.32.0",
            ),
        ],
    )
    def test_members_that_went_are_reported(self, body: str, message: str, port: Port) -> None:
        text = self.tower(f"    def ask(self):\n{body}\n")
        ported = port(text, "0.32")
        assert ported.left(Severity.ERROR) == [("VA642", message)]
        assert ported.text == text

    def test_an_attribute_that_vllm_can_be_asked_for_is_set_again(self, port: Port) -> None:
        text = self.tower(
            "    def __init__(self, config):\n        super().__init__(config)\n\n"
            "    def ask(self):\n        return self.use_data_parallel\n"
        )
        ported = port(text, "0.32")
        assert ported.findings == []
        assert ported.body("Tower.__init__") == (
            "super().__init__(config)\nself.use_data_parallel = is_vit_use_data_parallel()"
        )
        assert "from vllm.model_executor.models.vision import is_vit_use_data_parallel\n" in ported.text
        assert port(text, "0.14").left(Severity.ERROR) != []  # there is nobody to ask yet

    @pytest.mark.parametrize(
        "more",
        [
            "    use_data_parallel = False\n\n",
            "    def set(self):\n        self.use_data_parallel = False\n\n",
            "    def known(self):\n        return hasattr(self, 'use_data_parallel')\n\n",
        ],
        ids=["set in the class", "set on the instance", "asked for first"],
    )
    def test_members_that_the_class_brings_or_asks_for_are_not(self, more: str, port: Port) -> None:
        text = self.tower(f"{more}    def ask(self):\n        return self.use_data_parallel\n")
        assert said(port(text, "0.32"), "VA642") == []

    def test_members_of_a_base_that_is_not_known_are_not(self, port: Port) -> None:
        text = self.tower("    def ask(self):\n        return self.use_data_parallel\n")
        text = "from elsewhere import Mixin\n" + edited(text, "(Qwen3", "(Mixin, Qwen3")
        assert said(port(text, "0.32"), "VA642") == []

    def test_an_override_that_nothing_calls_is_reported(self, port: Port) -> None:
        text = self.tower("    def compute_attn_mask_seqlen(self, cu_seqlens):\n        return cu_seqlens\n")
        ported = port(text, "0.32")
        assert ported.left(Severity.WARNING) == [
            (
                "VA642",
                "Tower.compute_attn_mask_seqlen overrides what Qwen3_VisionTransformer has no more in vLLM 0.32.0: "
                "nothing calls it",
            )
        ]
        called = (
            text + "\n    def forward(self, x, grid_thw, **more):\n        return self.compute_attn_mask_seqlen(x)\n"
        )
        assert port(called, "0.32").findings == []

    def test_an_override_that_is_called_in_another_way_is_reported(self, port: Port) -> None:
        text = (
            "from vllm.model_executor.models.qwen3_vl import Qwen3_VisionBlock\n\n\n"
            "class Block(Qwen3_VisionBlock):\n"
            "    def forward(self, x, cu_seqlens, rotary_pos_emb_cos, rotary_pos_emb_sin, max_seqlen):\n"
            "        return x\n"
        )
        ported = port(text, "0.32")
        assert ported.left(Severity.ERROR) == [
            (
                "VA642",
                "Block.forward overrides what vLLM 0.32.0 calls in another way: it is given 'sequence_lengths'",
            )
        ]
        assert port(text, "0.14").findings == []
        takes_all = edited(text, "max_seqlen)", "max_seqlen, **rest)")
        assert port(takes_all, "0.32").findings == []

    def test_an_override_that_only_the_project_calls_is_its_own_affair(self, port: Port) -> None:
        text = (
            "from torch import nn\nfrom vllm.model_executor.models.qwen3_vl import Qwen3_VisionBlock\n"
            "from vllm.model_executor.models.vision import get_vit_attn_backend\n\n\n"
            "class Block(Qwen3_VisionBlock):\n    def forward(self, x):\n        return x\n\n\n"
            "class Tower(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            "        self.block = Block(64, 4, 128)\n\n    def forward(self, x):\n        return self.block(x)\n"
        )
        assert said(port(text, "0.32"), "VA642") == []

    @staticmethod
    def tower(body: str) -> str:
        imported = "from vllm.model_executor.models.qwen3_vl import Qwen3_VisionTransformer\n"
        return f"{imported}\n\nclass Tower(Qwen3_VisionTransformer):\n{body}"


MODEL = """\
from torch import nn
from vllm.model_executor.models.qwen2_5_vl import Qwen2_5_VisionTransformer, Qwen2_5_VLForConditionalGeneration


class Tower(nn.Module):
    def __init__(self, config):
        super().__init__()


class Model(Qwen2_5_VLForConditionalGeneration):
    def __init__(self, *, vllm_config, prefix=""):
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        config = vllm_config.model_config.hf_config.vision_config
        self.visual = Tower(config)
"""
OPTED_OUT = "class Model(Qwen2_5_VLForConditionalGeneration):\n    supports_mm_device_do_normalize = False\n"


class TestOptIn:
    """VA643"""

    @pytest.mark.parametrize(
        "tower",
        [
            "Tower(config)",
            "Tower(config) if config.depth else None",
            "Qwen2_5_VisionTransformer(config, prefix=prefix)",
        ],
    )
    def test_is_taken_back_for_a_tower_without_the_part(self, tower: str, port: Port) -> None:
        text = edited(MODEL, "self.visual = Tower(config)", f"self.visual = {tower}")
        ported = port(text, "0.32")
        assert ported.findings == []
        assert ported.text == edited(text, "class Model(Qwen2_5_VLForConditionalGeneration):\n", f"{OPTED_OUT}\n")
        assert port(text, "0.20").text == text  # no model promises it yet

    def test_stands_behind_what_the_class_opens_with(self, port: Port) -> None:
        text = edited(MODEL, "Generation):\n    def", 'Generation):\n    """Ours."""\n\n    flavour = 1\n\n    def')
        after = port(text, "0.32").text
        assert "    flavour = 1\n    supports_mm_device_do_normalize = False\n\n    def" in after

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("Tower(config)", "Tower(config, input_norm=build())"),
            (
                "        super().__init__()\n\n",
                "        super().__init__()\n        self.input_norm = nn.Identity()\n\n",
            ),
            ("Generation):\n    def", "Generation):\n    supports_mm_device_do_normalize = True\n\n    def"),
            ("self.visual =", "self.other ="),
            ("        self.visual = Tower(config)\n", ""),
        ],
        ids=["given the part", "makes the part", "says so itself", "something else", "vLLM's own tower"],
    )
    def test_is_kept(self, old: str, new: str, port: Port) -> None:
        text = edited(MODEL, old, new)
        ported = port(text, "0.32")
        assert (ported.text, ported.findings) == (text, [])

    def test_is_reported_for_a_tower_that_cannot_be_seen(self, port: Port) -> None:
        text = edited(MODEL, "self.visual = Tower(config)", "self.visual = vllm_config.additional_config['tower']")
        ported = port(text, "0.32")
        ((code, message),) = ported.left(Severity.WARNING)
        assert code == "VA643"
        assert "self.visual is fed raw pixels unless it has an input_norm" in message
        assert ported.text == text


SPLIT = """\
import torch
from torch import nn
from vllm.model_executor.layers.linear import ColumnParallelLinear, QKVParallelLinear
from vllm.model_executor.models.qwen2_vl import Qwen2VisionAttention


class Attention(nn.Module):
    def __init__(self, width, heads, ranks):
        super().__init__()
        self.num_attention_heads_per_partition = heads // ranks
        self.hidden_size_per_attention_head = width // heads
        self.qkv = QKVParallelLinear(width, width // heads, heads)

    def forward(self, x):
        qkv, _ = self.qkv(x)
        q, k, v = Qwen2VisionAttention.split_qkv(self, qkv)
        return q, k, v
"""
BORROWED = "Qwen2VisionAttention.split_qkv(self, qkv)"
CUT = "part.unflatten(-1, (self.num_attention_heads_per_partition, -1)) for part in"


class TestBorrowedSplit:
    """VA644"""

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            (f"q, k, v = {BORROWED}", f"q, k, v = ({CUT} qkv.chunk(3, dim=-1))"),
            (f"parts = {BORROWED}\n        q, k, v = parts", f"parts = tuple({CUT} qkv.chunk(3, dim=-1))"),
            ("q, k, v = Qwen2VisionAttention.split_qkv(self, qkv=qkv + 0)", f"({CUT} (qkv + 0).chunk(3, dim=-1))"),
        ],
        ids=["unpacked", "kept", "by keyword"],
    )
    @pytest.mark.parametrize("target", ["0.13", "0.32"])
    def test_of_ranks_with_their_own_q_k_and_v_is_cut_here(
        self, before: str, after: str, target: str, port: Port
    ) -> None:
        ported = port(edited(SPLIT, f"q, k, v = {BORROWED}", before), target)
        assert ported.findings == []
        assert after in ported.text
        assert "Qwen2VisionAttention" not in ported.text

    def test_that_is_inherited_is_cut_here_too(self, port: Port) -> None:
        ported = port(edited(SPLIT, "(nn.Module)", "(Qwen2VisionAttention)", BORROWED, "self.split_qkv(qkv)"), "0.32")
        assert f"q, k, v = ({CUT} qkv.chunk(3, dim=-1))" in ported.text

    def test_of_its_own_stays(self, port: Port) -> None:
        own = "    def split_qkv(self, qkv):\n        return qkv.chunk(3, dim=-1)\n\n    def forward"
        text = edited(
            SPLIT, "(nn.Module)", "(Qwen2VisionAttention)", BORROWED, "self.split_qkv(qkv)", "    def forward", own
        )
        assert "q, k, v = self.split_qkv(qkv)" in port(text, "0.32").text

    def test_of_fewer_heads_of_k_and_v_is_reported(self, port: Port) -> None:
        ported = port(edited(SPLIT, "// heads, heads)", "// heads, heads, 2)"), "0.32")
        assert BORROWED in ported.text
        assert "wrong from two tensor-parallel ranks on" in said(ported, "VA644")[0]

    def test_of_ranks_with_runs_of_the_whole_needs_what_it_reads_now(self, port: Port) -> None:
        text = edited(
            SPLIT, "QKVParallelLinear(width, width // heads, heads)", "ColumnParallelLinear(width, 3 * width)"
        )
        ported = port(text, "0.32")
        assert BORROWED in ported.text
        assert said(ported, "VA644") == [
            "Qwen2VisionAttention.split_qkv of vLLM 0.32.0 reads self.tp_size, self.tp_rank, "
            "which Attention does not set"
        ]
        knows = edited(text, "__init__()\n", "__init__()\n        self.tp_size, self.tp_rank = ranks, 0\n")
        assert said(port(knows, "0.32"), "VA644") == []

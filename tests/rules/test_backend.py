"""VA202, VA301, VA305 and VA402: what becomes of the choice of a backend, in attention and in its tower."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent, indent

import pytest

from codemods.findings import Severity
from tests.rules.vision_model import CONSTRUCTOR, FLASH, MODEL, RETURN, SDPA, TOWER, Port, edited, porter

IN_ATTENTION = "            AttentionBackendEnum.ROCM_AITER_FA,\n        }\n"
IN_TOWER = "            attn_backend_override=attn_backend_override,\n        )\n\n    def longest"
IN_FORWARD = "        length, batch, _ = x.shape\n"
ASKED = "if self.attn_backend == AttentionBackendEnum.FLASH_ATTN:"
LOOKUP = CONSTRUCTOR[
    CONSTRUCTOR.index("        self.attn_backend = get") : CONSTRUCTOR.index("        self.attn_backend, ")
]
LONGEST = TOWER[TOWER.index("        max_seqlen = None\n") : TOWER.index("    def forward")]
NUMBER = "(cu_seqlens[1:] - cu_seqlens[:-1]).max()"
ALL = "{AttentionBackendEnum.FLASH_ATTN, AttentionBackendEnum.ROCM_AITER_FA, AttentionBackendEnum.TRITON_ATTN}"
GUARD = """\
        if self.attn_backend not in {AttentionBackendEnum.FLASH_ATTN, AttentionBackendEnum.TORCH_SDPA}:
            raise RuntimeError(f"no kernel for {self.attn_backend}")
"""
FALL_BACK = """\
        if self.attn_backend not in {AttentionBackendEnum.FLASH_ATTN, AttentionBackendEnum.TORCH_SDPA}:
            self.attn_backend = AttentionBackendEnum.TORCH_SDPA
"""
HEAD = "\n\nclass VisionA"
OWN_KERNEL = f"\n\n\ndef maybe_get_vit_flash_attn_backend(backend, **_):\n    return backend, None\n{HEAD}"
OWN_BACKEND = f"\n\n\ndef get_vit_attn_backend(head_size, dtype, **_):\n    return 1\n{HEAD}"
SDPA_ELSE = "        else:\n            self.attn_backend = AttentionBackendEnum.TORCH_SDPA\n"
PADDING = """\
        self.pad = 4
        if self.attn_backend == AttentionBackendEnum.TORCH_SDPA:
            self.pad = 8
"""
FOR_TRITON = """\
        elif self.attn_backend == AttentionBackendEnum.TRITON_ATTN:
            max_seqlen = torch.tensor(64)
        return"""

# name: (old, new, ...); choices that are not vLLM's alone
OWN: dict[str, tuple[str, ...]] = {
    "a look-up of the kernel": (
        *("from vllm.attention.layer import maybe_get_vit_flash_attn_backend\n", ""),
        *(HEAD, OWN_KERNEL),
    ),
    "a look-up of the backend": (
        *("from vllm.model_executor.models.vision import get_vit_attn_backend\n", ""),
        *(HEAD, OWN_BACKEND),
    ),
    "a size that decides": (LOOKUP, f"        if hidden > 64:\n{indent(LOOKUP, '    ')}{SDPA_ELSE}"),
    "a guard within a block": (IN_ATTENTION, f"{IN_ATTENTION}        with torch.no_grad():\n{indent(GUARD, '    ')}"),
}


@pytest.fixture
def port(tmp_path: Path) -> Port:
    return porter(tmp_path)


def tower(lines: str) -> tuple[str, str]:
    """Lines more at the end of the tower's constructor."""
    return IN_TOWER, IN_TOWER.replace("\n\n", f"\n{lines}\n")


class TestChoiceOfAttention:
    @pytest.mark.parametrize("lines", [GUARD, GUARD + GUARD], ids=["once", "twice"])
    def test_goes_with_its_guards(self, lines: str, port: Port) -> None:
        ported = port(edited(MODEL, IN_ATTENTION, IN_ATTENTION + lines))
        assert ported.findings == []
        assert "raise" not in ported.text
        assert ported.assigned("self.attn_backend") == [
            "get_vit_attn_backend(head_size=hidden // heads, dtype=torch.get_default_dtype())"
        ]

    def test_that_falls_back_is_marked_for_review(self, port: Port) -> None:
        ported = port(edited(MODEL, IN_ATTENTION, IN_ATTENTION + FALL_BACK))
        assert ported.findings == []
        assert ported.to_review == ["VA202"]
        assert "TORCH_SDPA" not in ported.text

    def test_is_read_from_the_op_where_a_method_reads_it(self, port: Port) -> None:
        reads = (
            "        if self.is_flash_attn_backend:\n            x = x.contiguous()\n"
            "        if self.attn_backend == AttentionBackendEnum.ROCM_AITER_FA:\n            x = x.clone()\n"
        )
        ported = port(edited(MODEL, IN_FORWARD, IN_FORWARD + reads))
        assert ported.findings == []
        assert ported.body("VisionAttention.forward").startswith(
            "length, batch, _ = x.shape\nif self.attn.is_flash_attn_backend:\n    x = x.contiguous()\n"
            "if self.attn.attn_backend == AttentionBackendEnum.ROCM_AITER_FA:\n    x = x.clone()\n"
        )

    def test_that_gates_max_seqlen_is_reported(self, port: Port) -> None:
        gate = f"        max_seqlen = None\n        if self.is_flash_attn_backend:\n            max_seqlen = {NUMBER}\n"
        ported = port(edited(MODEL, IN_FORWARD, IN_FORWARD + gate))
        ((code, message),) = ported.left(Severity.WARNING)
        assert (code, "it does not under Triton" in message) == ("VA202", True)

    def test_that_gates_max_seqlen_is_right_without_triton(self, port: Port) -> None:
        gate = f"        max_seqlen = None\n        if self.is_flash_attn_backend:\n            max_seqlen = {NUMBER}\n"
        assert port(edited(MODEL, IN_FORWARD, IN_FORWARD + gate), "0.14").findings == []

    def test_is_made_where_its_heads_are_known(self, port: Port) -> None:
        heads = "        self.local_heads = divide(heads, get_tensor_model_parallel_world_size())\n"
        ported = port(edited(MODEL, heads, "", IN_ATTENTION, IN_ATTENTION + heads))
        assert ported.findings == []
        body = ported.body("VisionAttention.__init__")
        assert body.index("self.local_heads = ") < body.index("self.attn = MMEncoderAttention")

    def test_is_made_when_the_module_is(self, port: Port) -> None:
        made = "        super().__init__()\n"
        ported = port(
            edited(MODEL, f"{made}        self.head_dim", "        self.head_dim", IN_ATTENTION, IN_ATTENTION + made)
        )
        assert "super().__init__()\nself.attn = MMEncoderAttention(" in ported.body("VisionAttention.__init__")

    @pytest.mark.parametrize("edits", OWN.values(), ids=OWN)
    def test_that_is_the_authors_own_is_left(self, edits: tuple[str, ...], port: Port) -> None:
        ported = port(edited(MODEL, *edits))
        assert "VA201" in dict(ported.left(Severity.ERROR))
        assert ported.calls("MMEncoderAttention") == []
        for kept in (FLASH, SDPA, RETURN, TOWER):
            assert kept in ported.text


class TestChoiceOfTower:
    def test_keeps_the_lookup_without_the_override(self, port: Port) -> None:
        ported = port(MODEL)
        assert ported.findings == []
        assert ported.call("get_vit_attn_backend") == {
            "head_size": "hidden // heads",
            "dtype": "torch.get_default_dtype()",
        }

    def test_goes_with_its_guards(self, port: Port) -> None:
        ported = port(edited(MODEL, *tower(GUARD)))
        assert ported.findings == []
        assert "raise" not in ported.text

    def test_that_falls_back_is_marked_for_review(self, port: Port) -> None:
        ported = port(edited(MODEL, *tower(FALL_BACK)))
        assert ported.to_review == ["VA301"]
        assert len(ported.assigned("self.attn_backend")) == 1

    @pytest.mark.parametrize(
        ("lines", "use"),
        [
            (PADDING, "pad"),
            ("        self.fast = self.attn_backend == AttentionBackendEnum.ROCM_AITER_FA\n", "fast"),
        ],
        ids=["number", "flag"],
    )
    def test_that_sets_something_else_stays(self, lines: str, use: str, port: Port) -> None:
        loop = "        for layer in self.layers:\n"
        ported = port(edited(MODEL, *tower(lines), loop, f"        x = F.pad(x, (0, int(self.{use})))\n{loop}"))
        assert ported.findings == []
        assert lines in ported.text

    def test_guard_that_asks_for_more_is_reported(self, port: Port) -> None:
        guard = (
            "        if depth < 1 or self.attn_backend not in {AttentionBackendEnum.FLASH_ATTN}:\n"
            "            raise ValueError('depth')\n"
        )
        ported = port(edited(MODEL, *tower(guard)))
        assert guard in ported.text
        assert ported.left(Severity.WARNING) + ported.left(Severity.ERROR)

    def test_lookup_with_hidden_arguments_is_reported(self, port: Port) -> None:
        tail = IN_TOWER.replace("attn_backend_override=attn_backend_override,", "**options,")
        ported = port(edited(MODEL, IN_TOWER, tail, "heads, depth, ", "heads, depth, options, "))
        ((code, message),) = ported.left(Severity.WARNING)
        assert (code, message.startswith("what the ** argument holds")) == ("VA301", True)


EARLY = """\
    import torch
    from torch import nn
    from vllm.model_executor.models.vision import get_vit_attn_backend


    class Tower(nn.Module):
        def __init__(self, hidden, heads, kv_heads):
            super().__init__()
            self.groups = heads // kv_heads
            {}
            self.attn_backend = get_vit_attn_backend({})

        def fast(self):
            return self.attn_backend
"""


class TestLookupOfEarlierReleases:
    @pytest.mark.parametrize("arguments", ["support_fa=True", "True", ""])
    def test_gets_head_size_and_dtype(self, arguments: str, port: Port) -> None:
        ported = port(EARLY.format("head_dim = hidden // heads", arguments))
        assert ported.findings == []
        assert ported.call("get_vit_attn_backend") == {"head_size": "head_dim", "dtype": "torch.get_default_dtype()"}

    def test_without_one_head_size_in_reach_is_reported(self, port: Port) -> None:
        text = EARLY.format("head_dim = 64", "True")
        ported = port(text)
        assert ported.text == dedent(text)
        assert "no single head size is in reach" in dict(ported.left(Severity.ERROR))["VA301"]


# name: (lines that compute max_seqlen, and the test in them once Triton may be chosen)
TESTS = {
    "equal": (LONGEST, f"self.attn_backend in {ALL}"),
    "either": (
        edited(LONGEST, ASKED, f"{ASKED[:-1]} or self.attn_backend == AttentionBackendEnum.ROCM_AITER_FA:"),
        f"self.attn_backend in {ALL}",
    ),
    "in a set": (
        edited(LONGEST, "== AttentionBackendEnum.FLASH_ATTN", "in {AttentionBackendEnum.FLASH_ATTN}"),
        f"self.attn_backend in {ALL}",
    ),
    "by a local name": (
        edited(
            LONGEST,
            "        max_seqlen = None",
            "        kind = self.attn_backend\n        max_seqlen = None",
            "if self.attn_backend",
            "if kind",
        ),
        f"kind in {ALL}",
    ),
    "complete": (
        edited(LONGEST, "== AttentionBackendEnum.FLASH_ATTN", f"in {ALL}"),
        f"self.attn_backend in {ALL}",
    ),
    "not SDPA": (
        edited(LONGEST, "== AttentionBackendEnum.FLASH_ATTN", "!= AttentionBackendEnum.TORCH_SDPA"),
        "self.attn_backend != AttentionBackendEnum.TORCH_SDPA",
    ),
    "a later arm for Triton": (
        edited(LONGEST, "        return", FOR_TRITON),
        "self.attn_backend == AttentionBackendEnum.FLASH_ATTN",
    ),
}
# name: (old, new, ...): other ways to say that flash alone needs max_seqlen
UNSEEN: dict[str, tuple[str, ...]] = {
    "a conditional expression": (LONGEST, f"        return {NUMBER} {ASKED[:-1]} else None\n\n"),
    "an early return": (
        LONGEST,
        f"        {ASKED.replace('==', '!=')}\n            return None\n        return {NUMBER}\n\n",
    ),
    "a flag that an if sets": (
        *tower(f"        self.wants = False\n        {ASKED}\n            self.wants = True\n"),
        *(f"        max_seqlen = None\n        {ASKED}", "        max_seqlen = None\n        if self.wants:"),
    ),
}


class TestSetOfBackends:
    @pytest.mark.parametrize(("lines", "test"), TESTS.values(), ids=TESTS)
    def test_holds_all_whose_kernels_read_max_seqlen(self, lines: str, test: str, port: Port) -> None:
        ported = port(edited(MODEL, LONGEST, lines))
        assert ported.findings == []
        assert f"if {test}:" in ported.body("VisionTower.longest")

    def test_has_no_triton_before_it_is_chosen(self, port: Port) -> None:
        ported = port(MODEL, "0.16")
        flash = "{AttentionBackendEnum.FLASH_ATTN, AttentionBackendEnum.ROCM_AITER_FA}"
        assert f"if self.attn_backend in {flash}:" in ported.body("VisionTower.longest")

    def test_of_a_flag_is_completed_too(self, port: Port) -> None:
        ported = port(
            edited(
                MODEL,
                *tower(f"        self.wants = {ASKED[3:-1]}\n"),
                f"{ASKED}\n            max",
                "if self.wants:\n            max",
            )
        )
        assert ported.findings == []
        assert ported.assigned("self.wants") == [f"self.attn_backend in {ALL}"]

    def test_of_the_module_is_reported(self, port: Port) -> None:
        flash = "FLASH = {AttentionBackendEnum.FLASH_ATTN, AttentionBackendEnum.ROCM_AITER_FA}\n"
        ported = port(edited(MODEL, ASKED, "if self.attn_backend in FLASH:", HEAD, f"\n{flash}{HEAD}"))
        ((code, message),) = ported.left(Severity.WARNING)
        assert (code, "leaves out a backend" in message) == ("VA305", True)
        assert flash in ported.text

    @pytest.mark.parametrize("edits", UNSEEN.values(), ids=UNSEEN)
    def test_in_another_form_is_completed_or_reported(self, edits: tuple[str, ...], port: Port) -> None:
        ported = port(edited(MODEL, *edits))
        assert ported.left(Severity.WARNING) or "TRITON_ATTN" in ported.text

    def test_is_none_where_the_test_chooses_the_kernel(self, port: Port) -> None:
        """An attention on top of vLLM's: under Triton its own flash arm must not run."""
        ported = port(ON_TOP, "0.32")
        assert "if self.attn_backend == AttentionBackendEnum.FLASH_ATTN:" in ported.text


ON_TOP = """\
import torch
from flash_attn import flash_attn_varlen_func
from orchard import dense_attention
from vllm.attention.backends.registry import AttentionBackendEnum
from vllm.model_executor.models.qwen2_5_vl import Qwen2_5_VisionAttention


class Attention(Qwen2_5_VisionAttention):
    def __init__(self, width, heads, attn_backend: AttentionBackendEnum = AttentionBackendEnum.TORCH_SDPA):
        super().__init__(width, heads, width, attn_backend=attn_backend)
        self.attn_backend = attn_backend

    def attend(self, q, k, v, cu_seqlens):
        if self.attn_backend == AttentionBackendEnum.FLASH_ATTN:
            max_seqlen = (cu_seqlens[1:] - cu_seqlens[:-1]).max()
            return flash_attn_varlen_func(q, k, v, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen)
        return dense_attention(q, k, v, cu_seqlens)
"""

OWN = """\
        self.attn_backend = get_vit_attn_backend(
            head_size=self.head_dim,
            dtype=torch.get_default_dtype(),
            attn_backend_override=attn_backend_override,
"""
HOLDER = """

class Model(nn.Module):
    def __init__(self, *, vllm_config, prefix=""):
        super().__init__()
        multimodal_config = vllm_config.model_config.multimodal_config
        override = multimodal_config.mm_encoder_attn_backend if multimodal_config is not None else None
        self.visual = VisionTower(64, 4, 2, prefix=prefix, attn_backend_override=override)
"""
CONFIG = "multimodal_config: MultiModalConfig | None=None"
OVERRIDE = "multimodal_config.mm_encoder_attn_backend if multimodal_config is not None else None"


FORCED = """\
import torch
from torch import nn
from vllm.attention.backends.registry import AttentionBackendEnum
from vllm.attention.layer import check_upstream_fa_availability
from vllm.model_executor.models.vision import get_vit_attn_backend
from vllm.platforms import current_platform


class Tower(nn.Module):
    def __init__(self, width: int, heads: int, attn_backend_override: AttentionBackendEnum | None = None) -> None:
        super().__init__()
        head_dim = width // heads
        if head_dim % 32 != 0:
            if not (current_platform.is_cuda() and check_upstream_fa_availability(torch.get_default_dtype())):
                attn_backend_override = AttentionBackendEnum.{member}
        self.attn_backend = get_vit_attn_backend(
            head_size=head_dim,
            dtype=torch.get_default_dtype(),
            attn_backend_override=attn_backend_override,
        )

    def needs_lengths(self) -> bool:
        return self.attn_backend is not None


tower = Tower(64, 4)
"""


class TestForcedBackend:
    @pytest.mark.parametrize("target", ["0.14", "0.32"])
    def test_is_told_where_it_is_lost(self, target: str, port: Port) -> None:
        ported = port(FORCED.format(member="TORCH_SDPA"), target)
        ((_, message),) = ported.left(Severity.WARNING)
        assert message == "Tower.__init__ no longer asks for AttentionBackendEnum.TORCH_SDPA"
        assert "% 32" not in ported.text  # the questions that led to it do nothing else
        assert "current_platform" not in ported.text

    def test_of_an_attention_is_told_too(self, port: Port) -> None:
        ported = port(edited(MODEL, OWN, OWN.replace("=attn_backend_override,", "=AttentionBackendEnum.TORCH_SDPA,")))
        assert ported.left(Severity.WARNING) == [
            ("VA202", "VisionAttention.__init__ no longer asks for AttentionBackendEnum.TORCH_SDPA")
        ]

    def test_of_an_attention_that_asks_for_none_is_to_be_looked_at(self, port: Port) -> None:
        asked = MODEL[MODEL.index(OWN) : MODEL.index("        self.is_flash_attn_backend")]
        fixed = "        self.attn_backend = AttentionBackendEnum.FLASH_ATTN\n"
        kernel = "from flash_attn import flash_attn_varlen_func\nfrom torch import nn\n"
        own = ("self.flash_attn_varlen_func(", "flash_attn_varlen_func(", "from torch import nn\n", kernel)
        told = "attn_backend_override=None):\n        super().__init__()\n        self.head_dim"
        takes = told.replace("None):", "None, attn_backend=None):")
        ported = port(edited(MODEL, asked, fixed, *own, told, takes))
        (review,) = [r.safety for r in ported.rewrites if r.code == "VA202" and "is built as" in r.message]
        assert review.startswith("review: AttentionBackendEnum.FLASH_ATTN was the backend here")

    def test_that_the_target_has_not_is_no_loss(self, port: Port) -> None:
        assert port(FORCED.format(member="XFORMERS"), "0.32").findings == []


class TestOverride:
    @pytest.mark.parametrize("target", ["0.13", "0.14"])
    def test_travels_as_the_configuration(self, target: str, port: Port) -> None:
        ported = port(MODEL + HOLDER, target)
        assert ported.findings == []
        assert ported.parameters("VisionAttention.__init__") == f"self, hidden, heads, prefix='', {CONFIG}"
        assert ported.parameters("VisionTower.__init__") == f"self, hidden, heads, depth, prefix='', {CONFIG}"
        assert ported.call("VisionTower")["multimodal_config"] == "multimodal_config"
        assert ported.call("VisionAttention")["multimodal_config"] == "multimodal_config"
        assert ported.call("MMEncoderAttention")["multimodal_config"] == "multimodal_config"
        assert ported.call("get_vit_attn_backend")["attn_backend_override"] == OVERRIDE

    @pytest.mark.parametrize("target", ["0.15", "0.32"])
    def test_is_read_by_vllm_itself_later(self, target: str, port: Port) -> None:
        ported = port(MODEL + HOLDER, target)
        assert ported.findings == []
        assert "multimodal_config" not in ported.text
        assert ported.call("VisionTower") == {"0": "64", "1": "4", "2": "2", "prefix": "prefix"}
        assert ported.parameters("Model.__init__") == "self, *, vllm_config, prefix=''"

    def test_of_another_origin_is_reported(self, port: Port) -> None:
        ported = port(edited(MODEL + HOLDER, f"override = {OVERRIDE}", "override = choose(vllm_config)"), "0.14")
        assert [code for code, _ in ported.left(Severity.ERROR)] == ["VA402"]
        assert "attn_backend_override" not in ported.call("VisionTower")

    def test_keeps_its_place_where_it_is_passed_by_position(self, port: Port) -> None:
        by_keyword = "attn_backend_override=attn_backend_override)\n             for"
        ported = port(edited(MODEL, by_keyword, by_keyword.partition("=")[2]), "0.14")
        assert ported.findings == []
        assert "multimodal_config" in ported.call("VisionAttention").values()

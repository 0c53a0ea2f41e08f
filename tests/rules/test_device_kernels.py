"""VA201: kernels of other devices inside models are collapsed like flash kernels, or left with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from codemods.findings import Severity
from tests.rules.vision_model import (
    ATTENTION,
    FLASH,
    FLASH_BODY,
    SDPA,
    SDPA_BODY,
    Port,
    assert_refused,
    edited,
    porter,
)

HEAD = """\
import numpy as np
import torch
import torch.nn.functional as F
import torch_npu
from einops import rearrange
from torch import nn
from vllm.distributed import get_tensor_model_parallel_world_size
from vllm.distributed.utils import divide


class VisionAttention(nn.Module):
    def __init__(self, hidden, heads, prefix=""):
        super().__init__()
        self.head_dim = hidden // heads
        self.local_heads = divide(heads, get_tensor_model_parallel_world_size())
        self.padded_dim = 128
        self.scale = self.head_dim**-0.5
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)

    def forward(self, x, cu_seqlens, lengths=None, mask=None):
        length, batch, _ = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (t.view(length * batch, self.local_heads, self.head_dim) for t in (q, k, v))
"""
UNPAD = """\
        context = torch.empty_like(q)
        torch_npu._npu_flash_attention_unpad(
            query=q,
            key=k,
            value=v,
            seq_len=torch.diff(cu_seqlens).to("cpu", torch.int32),
            scale_value=self.scale,
            num_heads=self.local_heads,
            num_kv_heads=self.local_heads,
            out=context,
        )
"""
FUSION = """\
        ends = tuple(cu_seqlens[1:].cpu().tolist())
        context = torch_npu.npu_fusion_attention(
            q, k, v, self.local_heads, "TND",
            actual_seq_qlen=ends, actual_seq_kvlen=ends, scale=self.scale, keep_prob=1.0,
        )[0]
"""
FUSED = """\
        context, _ = torch_npu.npu_fused_infer_attention_score(
            q, k, v, num_heads=self.local_heads, num_key_value_heads=self.local_heads, input_layout="TND",
            actual_seq_lengths=cu_seqlens[1:], actual_seq_lengths_kv=cu_seqlens[1:], scale=self.scale,
        )
""".replace("context, _", "context").replace("        )\n", "        )[0]\n")
TAIL = """\
        context = rearrange(context, "(s b) h d -> s b (h d)", b=batch)
        return self.out(context)
"""
WIDTH = "self.padded_dim - self.head_dim"
PAD = "".join(f"        {t} = F.pad({t}, (0, {WIDTH}))\n" for t in "qkv")
CUT = "        context = context[..., : self.head_dim]\n"
PLAIN, PADDED = HEAD + UNPAD + TAIL, HEAD + PAD + UNPAD + CUT + TAIL

CALL = {
    **{name: f"{t}.unsqueeze(0)" for name, t in zip(("query", "key", "value"), "qkv")},
    "cu_seqlens": "cu_seqlens",
    "max_seqlen": "(cu_seqlens[1:] - cu_seqlens[:-1]).max()",
}
BUILT = {
    "num_heads": "self.local_heads",
    "head_size": "self.head_dim",
    "scale": "self.scale",
    "prefix": "f'{prefix}.attn'",
}


@pytest.fixture
def port(tmp_path: Path) -> Port:
    return porter(tmp_path)


DIFF = 'torch.diff(cu_seqlens).to("cpu", torch.int32)'
KERNELS = {
    "unpad": PLAIN,
    "fusion": HEAD + FUSION + TAIL,
    "fused inference": HEAD + FUSED + TAIL,
    "lengths of a method": edited(PLAIN, DIFF, "cu_seqlens.diff().cpu()"),
    "lengths by subtraction": edited(PLAIN, DIFF, "(cu_seqlens[1:] - cu_seqlens[:-1]).cpu()"),
    "lengths in a name": edited(PLAIN, UNPAD, f"        lens = {DIFF}\n" + edited(UNPAD, DIFF, "lens")),
    "in a block": edited(
        PLAIN, UNPAD, "        with torch.no_grad():\n" + "".join(f"    {line}\n" for line in UNPAD.splitlines())
    ),
}
PADDINGS = {
    "written out": PADDED,
    "of all three": edited(PADDED, PAD, f"        q, k, v = [F.pad(t, [0, {WIDTH}]) for t in (q, k, v)]\n"),
    "under a condition": edited(
        PADDED,
        *(PAD, "        if self.head_dim < 128:\n" + "".join(f"    {line}\n" for line in PAD.splitlines())),
        *(CUT, f"        if self.head_dim < 128:\n    {CUT}"),
    ),
    "under a condition, and always cut": edited(
        PADDED, PAD, "        if self.head_dim < 128:\n" + "".join(f"    {line}\n" for line in PAD.splitlines())
    ),
    "cut by its width": edited(
        PADDED, PAD, f"        more = {WIDTH}\n{PAD}", f"(0, {WIDTH}", "(0, more", ": self.head_dim]", ":-more]"
    ),
    "cut to what q had": edited(PADDED, PAD, f"        had = q.shape[-1]\n{PAD}", ": self.head_dim]", ":had]"),
    "cut to another name of the head size": edited(
        PADDED,
        *("self.padded_dim = 128", "self.padded_dim = 128\n        self.true_dim = hidden // heads"),
        *(": self.head_dim]", ": self.true_dim]"),
        *(WIDTH, "self.padded_dim - self.true_dim"),
    ),
    "cut on the way": edited(PADDED, CUT, "", "rearrange(context,", "rearrange(context[:, :, : self.head_dim],"),
    "cut under the name of torch": edited(PADDED, "F.pad", "torch.nn.functional.pad"),
}


class TestAlone:
    @pytest.mark.parametrize("text", KERNELS.values(), ids=KERNELS)
    def test_a_kernel_is_one_call_of_the_op(self, text: str, port: Port) -> None:
        after = port(text)
        assert after.call("self.attn") == CALL
        assert after.call("MMEncoderAttention") == BUILT
        assert "npu" not in after.text
        assert ".max()).squeeze(0)" in after.assigned("context")[0]
        assert after.assigned("context")[1:] == ["rearrange(context, '(s b) h d -> s b (h d)', b=batch)"]

    @pytest.mark.parametrize("text", PADDINGS.values(), ids=PADDINGS)
    def test_padding_that_cancels_goes_with_it(self, text: str, port: Port) -> None:
        after = port(text)
        assert after.call("self.attn") == CALL
        assert after.call("MMEncoderAttention") == BUILT
        assert "pad(" not in after.text and "[..." not in after.text

    def test_where_the_kernel_belongs_is_told(self, port: Port) -> None:
        (finding,) = port(PLAIN).findings
        assert finding.severity is Severity.NOTE
        assert "torch_npu._npu_flash_attention_unpad is no longer called by VisionAttention" in finding.message
        assert "out-of-tree op" in finding.message and "AscendMMEncoderAttention" in finding.remedy

    def test_a_scale_that_is_not_given_is_the_kernels_own(self, port: Port) -> None:
        after = port(edited(HEAD + FUSION + TAIL, "scale=self.scale, ", ""))
        assert after.call("MMEncoderAttention")["scale"] == "1.0"


REFUSED = {
    "a mask": (FUSION, "keep_prob=1.0", "atten_mask=mask", "atten_mask=mask, which is no plain attention"),
    "a mask of its own kind": (FUSION, "keep_prob=1.0", "sparse_mode=3", "sparse_mode=3, which is no plain attention"),
    "dropout": (FUSION, "keep_prob=1.0", "keep_prob=0.9", "keep_prob=0.9, which is no plain attention"),
    "a window": (FUSION, "keep_prob=1.0", "pre_tockens=64", "pre_tockens=64, which is no plain attention"),
    "something else": (FUSION, "keep_prob=1.0", "flavour=1", "called with flavour=, which is not known"),
    "another layout": (FUSION, "TND", "BSND", "is not called with input_layout='TND'"),
    "other sequences for k": (FUSION, "kvlen=ends", "kvlen=lengths", "cannot be shown to follow one cu_seqlens"),
    "no sequences": (FUSION, "actual_seq_kvlen=ends, ", "", "is called without actual_seq_kvlen"),
    "all that it returns": (FUSION, ")[0]", ")", "which part of what npu_fusion_attention returns"),
    "the kernel's sums": (FUSION, ")[0]", ")[1]", "which part of what npu_fusion_attention returns"),
    "lengths given as ends": (FUSION, "cu_seqlens[1:]", "torch.diff(cu_seqlens)", "cannot be shown to follow"),
    "ends given as lengths": (UNPAD, DIFF, "cu_seqlens[1:]", "cannot be shown to follow one cu_seqlens"),
    "lengths from elsewhere": (UNPAD, DIFF, "lengths", "cannot be shown to follow one cu_seqlens"),
    "lengths under the old name": (
        UNPAD,
        *("        context = torch", f"        cu_seqlens = {DIFF}\n        context = torch"),
        *(f"seq_len={DIFF}", "seq_len=cu_seqlens"),
        "cu_seqlens is set anew before _npu_flash_attention_unpad is called",
    ),
    "k for v": (UNPAD, "value=v", "value=k", "q, k and v are not three tensors"),
    "arguments in a dict": (UNPAD, "scale_value=self.scale", "**self.more", "are not written out"),
    "no scale": (UNPAD, "            scale_value=self.scale,\n", "", "is called without scale_value"),
    "a result of an attribute": (UNPAD, "out=context", "out=self.context", "puts its result is not understood"),
}
UNCANCELLED = {
    "two of three": (PAD.splitlines(keepends=True)[2], "", "q, k and v are not all padded"),
    "another width": (f"k = F.pad(k, (0, {WIDTH}", "k = F.pad(k, (0, 48", "q, k and v are padded differently"),
    "in front": (f"F.pad(q, (0, {WIDTH})", f"F.pad(q, ({WIDTH}, 0)", "otherwise than with zeros behind its heads"),
    "with ones": (f"F.pad(q, (0, {WIDTH})", f"F.pad(q, (0, {WIDTH}), value=1", "otherwise than with zeros"),
    "more than the heads": (f"F.pad(q, (0, {WIDTH})", f"F.pad(q, (0, {WIDTH}, 0, 1)", "otherwise than with zeros"),
    "never cut": (CUT, "", "are not cut back once"),
    "cut elsewhere": (": self.head_dim]", ": self.local_heads]", "cannot be shown to be the head size before padding"),
    "cut where it was not padded": (
        CUT,
        f"        if self.training:\n    {CUT}",
        "cut back under another condition",
    ),
    "viewed in between": (
        CUT,
        f"        context = context.reshape(-1, self.local_heads, 128)\n{CUT}",
        "viewed by sizes that the padding changes",
    ),
    "with the scale of the padded size": (
        "self.scale = self.head_dim**-0.5",
        "self.scale = self.padded_dim**-0.5",
        "the scale cannot be shown to be that of the head size before padding",
    ),
}


def assert_left(text: str, message: str, port: Port) -> None:
    """The class stays, and a warning says why and where its kernel belongs: it runs as before, on its one device."""
    after = port(text)
    (finding,) = [f for f in after.findings if f.severity is Severity.WARNING]
    assert message in finding.message and "register_oot" in finding.remedy
    assert after.text == text


class TestRefusals:
    @pytest.mark.parametrize("row", REFUSED.values(), ids=REFUSED)
    def test_a_kernel_that_is_not_shown_to_be_plain_attention_stays(self, row: tuple[str, ...], port: Port) -> None:
        body, *edits, message = row
        assert_left(HEAD + edited(body, *edits) + TAIL, message, port)

    @pytest.mark.parametrize("row", UNCANCELLED.values(), ids=UNCANCELLED)
    def test_padding_that_is_not_shown_to_cancel_stays(self, row: tuple[str, str, str], port: Port) -> None:
        assert_left(edited(PADDED, *row[:2]), row[2], port)

    def test_a_size_of_the_padded_tensor_is_not_the_head_size(self, port: Port) -> None:
        text = edited(PADDED, UNPAD, f"        had = q.shape[-1]\n{UNPAD}", ": self.head_dim]", ":had]")
        assert_left(text, "had cannot be shown to be the head size before padding", port)

    def test_two_kernels_stay(self, port: Port) -> None:
        assert_left(HEAD + UNPAD + UNPAD.replace("context", "again") + TAIL, "in more than one place", port)

    def test_an_override_of_vllms_own_attention_is_to_be_taken_out(self, port: Port) -> None:
        text = edited(
            PLAIN,
            *("(nn.Module)", "(Qwen2_5_VisionAttention)"),
            *("\n\nclass", "from vllm.model_executor.models.qwen2_5_vl import Qwen2_5_VisionAttention\n\n\nclass"),
        )
        messages = [message for _, message in port(text).left(Severity.WARNING)]
        assert any("overrides Qwen2_5_VisionAttention of vLLM" in message for message in messages)


UNPAD_ARM = "".join(f"    {line}\n" for line in UNPAD.splitlines())
DEVICE = (
    '            q, k, v = (rearrange(t, "b s ... -> (b s) ...") for t in (q, k, v))\n'
    + edited(UNPAD_ARM, "self.scale", "self.head_dim**-0.5")
    + '            context = rearrange(context, "(b s) h d -> s b (h d)", b=batch)\n'
)
ARM_CALL = {"query": "q", "key": "k", "value": "v", "cu_seqlens": "cu_seqlens"}
IMPORTED = ("import torch\n", "import torch\nimport torch_npu\n\nis_npu = torch.npu.is_available()\n")


class TestArms:
    @pytest.mark.parametrize(
        "test", ["is_npu", "torch.npu.is_available()", 'q.device.type == "npu"', "current_platform.is_npu()"]
    )
    def test_an_arm_beside_sdpa_goes_with_it(self, test: str, port: Port) -> None:
        chain = f"        if {test}:\n{DEVICE}        else:\n{SDPA_BODY}"
        after = port(edited(ATTENTION, FLASH + SDPA, chain, *IMPORTED))
        assert after.call("self.attn") == {**ARM_CALL, "max_seqlen": CALL["max_seqlen"]}
        assert [f.severity for f in after.findings] == [Severity.NOTE]
        assert "scaled_dot_product_attention" not in after.text

    def test_an_arm_beside_flash_leaves_flash_its_longest_length(self, port: Port) -> None:
        chain = f"        if is_npu:\n{DEVICE}        else:\n{FLASH_BODY}"
        after = port(edited(ATTENTION, FLASH + SDPA, chain, *IMPORTED))
        assert after.call("self.attn") == {**ARM_CALL, "max_seqlen": "max_seqlen"}
        assert "varlen" not in after.text

    def test_three_arms_go_together(self, port: Port) -> None:
        chain = f"        if is_npu:\n{DEVICE}        elif self.is_flash_attn_backend:\n{FLASH_BODY}{SDPA}"
        after = port(edited(ATTENTION, FLASH + SDPA, chain, *IMPORTED))
        assert after.call("self.attn") == {**ARM_CALL, "max_seqlen": "max_seqlen"}

    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            ("query=q", "query=k", "the arms attend with different tensors"),
            ("torch.diff(cu_seqlens)", "torch.diff(other)", "the arms attend within different sequences"),
            ("-> s b (h d)", "-> b s (h d)", "layouts that cannot be shown to be the same"),
        ],
    )
    def test_an_arm_must_be_the_same_as_flash(self, old: str, new: str, message: str, port: Port) -> None:
        device = edited(DEVICE, old, new, *(("key=k", "key=q") if "query" in old else ()))
        chain = f"        if is_npu:\n{device}        else:\n{FLASH_BODY}"
        assert_refused(edited(ATTENTION, FLASH + SDPA, chain, *IMPORTED), message, port)

    def test_a_test_that_differs_from_call_to_call_stays(self, port: Port) -> None:
        chain = f"        if length > 64:\n{DEVICE}        else:\n{SDPA_BODY}"
        assert_refused(edited(ATTENTION, FLASH + SDPA, chain, *IMPORTED), "the dispatch also depends on length", port)


class TestDecoys:
    @pytest.mark.parametrize(
        ("base", "line"),
        [
            ("MMEncoderAttention", "from vllm.model_executor.layers.attention import MMEncoderAttention"),
            ("CustomOp", "from vllm.model_executor.custom_op import CustomOp"),
            ("AttentionImpl", "from vllm.v1.attention.backend import AttentionImpl"),
        ],
    )
    def test_a_kernel_is_at_home_in_an_op(self, base: str, line: str, port: Port) -> None:
        text = PLAIN.replace("(nn.Module)", f"({base})").replace("\n\nclass", f"{line}\n\n\nclass", 1)
        after = port(text)
        assert after.text == text
        assert [f for f in after.findings if f.code == "VA201"] == []

    def test_a_kernel_of_a_decoder_is_not_looked_at(self, port: Port) -> None:
        text = "import torch_npu\n\n\ndef decode(q, k, v, mask):\n"
        text += "    return torch_npu.npu_fusion_attention(q, k, v, 8, 'TND', atten_mask=mask)[0]\n"
        assert port(text).findings == []

    def test_a_kernel_in_a_function_is_told(self, port: Port) -> None:
        text = "import torch_npu\n\n\ndef attend(q, k, v, ends):\n"
        text += "    return torch_npu.npu_fusion_attention(q, k, v, 8, 'TND', actual_seq_qlen=ends)[0]\n"
        (finding,) = port(text).findings
        assert finding.severity is Severity.WARNING
        assert "is called past MMEncoderAttention" in finding.message and "register_oot" in finding.remedy

    def test_a_function_of_the_file_is_its_own(self, port: Port) -> None:
        own = "\n\ndef npu_fusion_attention(*args, **kwargs):\n    return args\n"
        text = edited(HEAD + FUSION + TAIL, "torch_npu.npu_fusion", "npu_fusion", "\n\nclass", f"{own}\n\nclass")
        assert port(text).text == text

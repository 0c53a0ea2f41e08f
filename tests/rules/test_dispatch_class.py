"""VA201: where in a class a dispatch may stand, and with which heads; else the class stays as it is."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest

from codemods.findings import Severity
from tests.rules.vision_model import (
    ATTENTION,
    CONSTRUCTOR,
    FLASH,
    FLASH_BODY,
    FLASH_RESULT,
    KV_HEADS,
    PROJECTION,
    RETURN,
    SCALED_FLASH,
    SCALED_SDPA,
    SDPA,
    SDPA_BODY,
    TOWER,
    VIEWS,
    Port,
    Row,
    assert_refused,
    edited,
    porter,
    rows,
    scale,
)

ARGUMENTS = "q, k, v, cu_seqlens, max_seqlen, batch"
ATTEND = f"\n\ndef attend(self, {ARGUMENTS}):\n{FLASH}{SDPA}        return context\n"
METHODS = f"""\
        attend = self.flash if self.is_flash_attn_backend else self.sdpa
        return self.out(attend({ARGUMENTS}))

    def flash(self, {ARGUMENTS}):
        with torch.no_grad():
{FLASH_BODY}            return context

    def sdpa(self, {ARGUMENTS}):
        with torch.no_grad():
{SDPA_BODY}            return context
"""
MATCH = f"""\
        match self.attn_backend:
         case AttentionBackendEnum.FLASH_ATTN:
{FLASH_BODY}\
         case AttentionBackendEnum.TORCH_SDPA:
{SDPA_BODY}"""

# name: (old, new, ..., what the finding says)
HEADS: dict[str, Row] = {
    "k has as many as fit": (
        *KV_HEADS,
        "k.view(batch, length, self.local_kv_heads,",
        "k.view(batch, length, -1,",
        "left to -1",
    ),
    "k and v have as many as fit": (*KV_HEADS, "length, self.local_kv_heads,", "length, -1,", "left to -1"),
    "two head sizes": (
        "        self.qkv =",
        "        self.padded_dim = 128\n        self.qkv =",
        "self.local_heads, self.head_dim)",
        "self.local_heads, self.padded_dim)",
        "is left as it is",
    ),
}

PLACES: dict[str, Row] = {
    "depends on the input": (
        "        if self.is_flash_attn_backend:",
        "        if self.is_flash_attn_backend and length > 1:",
        "also depends on length",
    ),
    "depends on training": (
        "        if self.is_flash_attn_backend:",
        "        if self.is_flash_attn_backend and self.training:",
        "also depends on self.training",
    ),
    "twice in a class": (
        RETURN,
        f"{RETURN}\n    def again(self, {ARGUMENTS}):\n{FLASH}{SDPA}{RETURN}",
        "in more than one place",
    ),
    "flash and nothing else": (SDPA, "", "not one if statement"),
    "in a nested function": (
        FLASH + SDPA,
        f"        def run(q, k, v):\n{indent(FLASH + SDPA, '    ')}            return context\n",
        "not one if statement",
    ),
    "each arm returns": (
        FLASH_RESULT,
        FLASH_RESULT.replace("context = ", "return "),
        SDPA,
        SDPA.replace("context = ", "return "),
        "flash arm does more than attention",
    ),
    "a tensor of the arm is read later": (
        "return self.out(context)",
        "return self.out(context), packed",
        "result is not one name",
    ),
    "a list of the arm is read later": (
        "return self.out(context)",
        "return self.out(context), pieces",
        "pieces is set in an arm and used after it",
    ),
    "the kernel is read elsewhere": (
        RETURN,
        f"{RETURN}\n    def kernel(self):\n        return self.flash_attn_varlen_func\n",
        "self.flash_attn_varlen_func is used outside",
    ),
    "a subclass reads the kernel": (
        RETURN,
        f"{RETURN}\n\nclass Sub(VisionAttention):\n    def kernel(self):\n        return self.flash_attn_varlen_func\n",
        "subclass Sub uses self.flash_attn_varlen_func",
    ),
    "the constructor uses the backend": (
        PROJECTION,
        f"        self.pad = nn.ZeroPad1d(8 if self.is_flash_attn_backend else 0)\n{PROJECTION}",
        "self.out(context)",
        "self.out(self.pad(context))",
        "for more than the choice of a backend",
    ),
    "a chosen number is read later": (
        PROJECTION,
        f"        self.skip = 8 if self.is_flash_attn_backend else 0\n{PROJECTION}",
        "self.out(context)",
        "self.out(context[self.skip:])",
        "self.skip is used outside of the dispatch",
    ),
    "another class reads the kernel": (
        RETURN,
        f"{RETURN}{TOWER}",
        "            x = x +",
        "            kernel = layer.flash_attn_varlen_func\n            x = x +",
        "reads it from outside",
    ),
    "in a function of the module": (
        f"{FLASH}{SDPA}{RETURN}",
        f"        return self.out(attend(self, {ARGUMENTS}))\n{ATTEND}",
        "not one if statement",
    ),
    "a method for each kernel": (FLASH + SDPA + RETURN, METHODS, "not one if statement"),
    "match": (FLASH + SDPA, MATCH, "not one if statement"),
    "the constructor is a base class's": (
        PROJECTION,
        f"\n\nclass Attend(VisionAttention):{PROJECTION}",
        "no constructor of its own",
    ),
}

QKV = "        self.qkv ="
ROUNDED = "(self.head_dim + 15) // 16 * 16"


def again(line: str) -> tuple[str, str]:
    """The head size is set once more, behind a scale that is computed from it."""
    return (QKV, f"        self.scale = self.head_dim**-0.5\n        {line}\n{QKV}")


def behind_views(line: str, *more: str) -> tuple[str, ...]:
    return (f"        {VIEWS}\n", f"        {VIEWS}\n        {line}\n", *more)


CALLS_PAD = "        self.pad_heads()\n"
SETS_SIZE = "        self.head_dim = 128\n"

LATER: dict[str, Row] = {
    "a method": (
        RETURN,
        f"{RETURN}\n    def prune(self, n):\n        self.local_heads -= n\n",
        "VisionAttention.prune",
    ),
    "a method that the constructor calls": (
        QKV,
        f"{CALLS_PAD}{QKV}",
        RETURN,
        f"{RETURN}\n    def pad_heads(self):\n{SETS_SIZE}",
        "also set in VisionAttention.pad_heads",
    ),
    "a subclass": (
        RETURN,
        f"{RETURN}\n\nclass Wide(VisionAttention):\n    def __init__(self, *args):\n"
        f"        super().__init__(*args)\n{SETS_SIZE}",
        "also set in Wide.__init__",
    ),
    "a function": (
        RETURN,
        f"{RETURN}\n\ndef widen(attention: VisionAttention):\n    attention.head_dim = 128\n",
        "also set as attention.head_dim",
    ),
    "setattr in the constructor": (QKV, f"        setattr(self, 'head_dim', 128)\n{QKV}", "VisionAttention.__init__"),
    "a loop over modules": (
        RETURN,
        f"{RETURN}\n\ndef widen(model):\n    for m in model.modules():\n        setattr(m, 'head_dim', 128)\n",
        "also set as m.head_dim",
    ),
    "a scale that is given": (
        *scale("0.1"),
        *SCALED_FLASH,
        *SCALED_SDPA,
        RETURN,
        f"{RETURN}\n\ndef cool(attention):\n    attention.scale = 0.2\n",
        "self.scale is also set as attention.scale",
    ),
}

PADDED: dict[str, Row] = {
    "by a generator": (*behind_views("q, k, v = (F.pad(t, (0, 6)) for t in (q, k, v))"), "F.pad(t, (0, 6))"),
    "by names": (*behind_views("n = -self.head_dim % 16\n        v = F.pad(v, [0, n])"), "v is not shown"),
    "under a condition": (*behind_views("if batch > 1:\n            k = F.pad(k, (0, 6))"), "k is not shown"),
    "joined": (*behind_views("q = torch.cat([q, torch.zeros_like(q)], dim=-1)"), "q is not shown"),
    "into a buffer": (
        *behind_views("w = q.new_zeros(batch, length, 4, 128)\n        w[..., : self.head_dim] = q\n        q = w"),
        "q is not shown",
    ),
    "cut": (*behind_views("q = q[..., :64]"), "q is not shown"),
    "by a method": (
        *behind_views(
            "q = self.wide(q)", RETURN, f"{RETURN}\n    def wide(self, t):\n        return F.pad(t, (0, 6))\n"
        ),
        "q is not shown",
    ),
    "by a module": (
        *behind_views("q = self.wide(q)", QKV, f"        self.wide = nn.ConstantPad1d((0, 6), 0.0)\n{QKV}"),
        "q is not shown",
    ),
    "by a lambda": (*behind_views("q, k, v = map(lambda t: F.pad(t, (0, 6)), (q, k, v))"), "q is not shown"),
    "in a list": (
        *behind_views(
            "w = []\n        for t in (q, k, v):\n            w.append(F.pad(t, (0, 6)))\n        q, k, v = w"
        ),
        "q is not shown",
    ),
    "in an attribute": (*behind_views("self.q = F.pad(q, (0, 6))\n        q = self.q"), "q is not shown"),
    "by something else": (*behind_views("q = torch.constant_pad_nd(q, (0, 6))"), "q is not shown"),
    "by a product": (*behind_views("q = q @ self.out.weight"), "q is not shown"),
}


@pytest.fixture
def port(tmp_path: Path) -> Port:
    return porter(tmp_path)


@pytest.mark.parametrize(("edits", "message"), rows(HEADS, PLACES, LATER, PADDED))
def test_a_class_whose_dispatch_cannot_be_judged_stays(edits: tuple[str, ...], message: str, port: Port) -> None:
    assert_refused(edited(ATTENTION, *edits), message, port)


def test_a_scale_that_the_target_ignores_is_refused(port: Port) -> None:
    after = port(edited(ATTENTION, *scale("1.0 / hidden"), *SCALED_FLASH, *SCALED_SDPA), "0.13")
    assert "ignores scale at this target" in dict(after.left(Severity.ERROR))["VA201"]
    assert after.calls("MMEncoderAttention") == []


SET_AGAIN: dict[str, tuple[str, str]] = {
    "plainly": again(f"self.head_dim = {ROUNDED}"),
    "in place": again("self.head_dim += 6"),
    "among others": again("self.head_dim, self.pad = self.head_dim + 6, 6"),
    "where it has to be": again(f"if self.head_dim % 16:\n            self.head_dim = {ROUNDED}"),
    "from a name": (
        "        self.head_dim = hidden // heads\n",
        "        head_dim = hidden // heads\n        self.scale = head_dim**-0.5\n"
        "        head_dim = (head_dim + 15) // 16 * 16\n        self.head_dim = head_dim\n",
    ),
}


@pytest.mark.parametrize("edits", SET_AGAIN.values(), ids=SET_AGAIN)
class TestAHeadSizeThatIsSetBehindAScale:
    def test_that_no_kernel_is_given_leaves_them_their_default(self, edits: tuple[str, str], port: Port) -> None:
        for target in ("0.13", "0.32"):
            (made,) = port(edited(ATTENTION, *edits), target).calls("MMEncoderAttention")
            assert made["scale"] == "self.head_dim ** (-0.5)"

    def test_that_all_kernels_are_given_is_passed_on(self, edits: tuple[str, str], port: Port) -> None:
        text = edited(ATTENTION, *edits, *SCALED_FLASH, *SCALED_SDPA)
        (made,) = port(text, "0.32").calls("MMEncoderAttention")
        assert made["scale"] == "self.scale"
        assert "ignores scale at this target" in dict(port(text, "0.13").left(Severity.ERROR))["VA201"]

    def test_that_one_kernel_is_given_is_refused(self, edits: tuple[str, str], port: Port) -> None:
        assert_refused(edited(ATTENTION, *edits, *SCALED_FLASH), "another arm is given none", port)


def test_a_scale_that_is_another_name_for_the_default_is_one(port: Port) -> None:
    """Read from the name, or the expression, that the head size is set to."""
    name = (
        "        self.head_dim = hidden // heads\n",
        "        size = hidden // heads\n        self.head_dim = size\n",
    )
    for edits in ((*name, *scale("size**-0.5")), scale("(hidden // heads) ** -0.5"), scale("1 / self.head_dim**0.5")):
        (made,) = port(edited(ATTENTION, *edits, *SCALED_FLASH), "0.13").calls("MMEncoderAttention")
        assert made["scale"] == "self.scale"


def test_a_configuration_s_head_size_is_not_the_attention_s(port: Port) -> None:
    after = port(edited(ATTENTION, RETURN, f"{RETURN}\n\ndef tune(config):\n    config.head_dim = 64\n"))
    assert len(after.calls("MMEncoderAttention")) == 1


def test_two_classes_of_a_file_are_ported_both_or_not_at_all(port: Port) -> None:
    """One tower feeds both, and can feed them one kind of max_seqlen only."""
    window = edited(CONSTRUCTOR + PROJECTION + FLASH + SDPA + RETURN, "VisionAttention", "WindowAttention")
    after = port(ATTENTION + edited(window, "causal=False", "causal=True"))
    said = [message for code, message in after.left(Severity.ERROR) if code == "VA201"]
    assert any(m.startswith("WindowAttention is left as it is: the flash kernel is called") for m in said)
    assert any(m.startswith("VisionAttention is left as it is: WindowAttention in this file") for m in said)
    assert after.calls("MMEncoderAttention") == []


@pytest.mark.parametrize(
    ("read", "told"),
    [
        ("blocks[0].attn.attn_backend", "blocks[0].attn.attn.attn_backend is the one of MMEncoderAttention"),
        ("blocks[0].attn.flash_attn_varlen_func", "take it out"),
        ("blocks[0].attn_backend", None),  # nothing says that this is an attention
    ],
)
def test_a_read_on_what_is_only_named_like_it_is_told(read: str, told: str | None, port: Port) -> None:
    holder = "class Block(nn.Module):\n    def __init__(self):\n        self.attn = VisionAttention(8, 2)\n"
    after = port(f"{ATTENTION}\n\n{holder}\n\ndef describe(blocks):\n    return {read}\n")
    assert len(after.calls("MMEncoderAttention")) == 1
    remedies = [finding.remedy for finding in after.findings if read in finding.message]
    assert [told in remedy for remedy in remedies if told] == ([True] if told else [])
    assert len(remedies) == (told is not None)


@pytest.mark.parametrize(
    ("module", "accepted"), [("vllm.model_executor.models.qwen2_vl", True), ("elsewhere.attention", False)]
)
def test_heads_that_another_function_cuts_are_known_of_vllm_alone(module: str, accepted: bool, port: Port) -> None:
    cut = "        q, k, v = (t.transpose(0, 1) for t in Qwen2VisionAttention.split_qkv(self, self.qkv(x)))\n"
    text = edited(ATTENTION, PROJECTION[PROJECTION.index("        q, k, v = self.qkv") :], cut)
    text = f"from {module} import Qwen2VisionAttention\n{text}"
    assert len(port(text, "0.14").calls("MMEncoderAttention")) == accepted

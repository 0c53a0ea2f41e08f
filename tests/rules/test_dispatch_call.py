"""VA201: which hand-written dispatch is proved to be MMEncoderAttention, and how it is called then."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.vision_model import (
    AHEAD,
    ARGUMENTS,
    ATTENTION,
    BOUNDS,
    CUT,
    FLASH,
    FLASH_BODY,
    FLASH_RESULT,
    KV_HEADS,
    LOOP,
    RETURN,
    SCALED_FLASH,
    SCALED_SDPA,
    SDPA,
    SDPA_BODY,
    SDPA_RESULT,
    VIEWS,
    WITH_XFORMERS,
    Port,
    before_kernel,
    edited,
    porter,
    scale,
)

CALL = {"query": "q", "key": "k", "value": "v", "cu_seqlens": "cu_seqlens", "max_seqlen": "max_seqlen"}
BUILT = {
    "num_heads": "self.local_heads",
    "head_size": "self.head_dim",
    "scale": "self.head_dim ** (-0.5)",
    "prefix": "f'{prefix}.attn'",
}
BACK = "rearrange(context, 'b s h d -> s b (h d)')"

WRAPPERS = """\
        if self.is_flash_attn_backend:
            context = vit_flash_attn_wrapper(q, k, v, cu_seqlens, max_seqlen, batch, False, False)
        elif self.attn_backend == AttentionBackendEnum.TORCH_SDPA:
            context = vit_torch_sdpa_wrapper(q, k, v, cu_seqlens)
"""
SPLIT_EACH = """\
lengths = torch.diff(cu_seqlens).tolist()
            q_s, k_s, v_s = (torch.split(q, lengths, 1), torch.split(k, lengths, 1), torch.split(v, lengths, 1))
            for q_i, k_i, v_i in zip(q_s, k_s, v_s):
"""
SPLIT_ALL = """\
lengths = torch.diff(cu_seqlens).tolist()
            for q_i, k_i, v_i in zip(*(t.split(lengths, dim=1) for t in (q, k, v))):
"""
BY_PLATFORM = """\
            if self.attn_backend == AttentionBackendEnum.ROCM_AITER_FA:
                from aiter import flash_attn_varlen_func
            else:
                from flash_attn import flash_attn_varlen_func
            packed = flash"""
METHOD = f"""\
        return self.out(self.attend(q, k, v, cu_seqlens, max_seqlen, batch))

    def attend(self, q, k, v, cu_seqlens, max_seqlen, batch):
{FLASH}{SDPA}        return context
"""
SPLIT_CUT = (CUT, "(t.transpose(1, 2) for t in (q_i, k_i, v_i))")

# name: (old, new, ...)
SAME_CALL: dict[str, tuple[str, ...]] = {
    "as it is": (),
    "SDPA first": (FLASH + SDPA, f"        if not self.is_flash_attn_backend:\n{SDPA_BODY}        else:\n{FLASH_BODY}"),
    "the platform's flash kernel": ("            packed = self.flash", BY_PLATFORM),
    "an arm that raises": (RETURN, f"        else:\n            raise RuntimeError('no kernel')\n{RETURN}"),
    "in a method of its own": (FLASH + SDPA + RETURN, METHOD),
    "sequences by zip": (AHEAD, "for start, end in zip(cu_seqlens[:-1], cu_seqlens[1:]):\n"),
    "sequences by zip of a list": (
        AHEAD,
        "ends = cu_seqlens.tolist()\n            for start, end in zip(ends[:-1], ends[1:]):\n",
    ),
    "sequences by zip, counted": (AHEAD, "for i, (start, end) in enumerate(zip(cu_seqlens[:-1], cu_seqlens[1:])):\n"),
    "ends, counted": (AHEAD, "for i, end in enumerate(cu_seqlens[1:]):\n                start = cu_seqlens[i]\n"),
    "starts, counted": (
        AHEAD,
        "for i, start in enumerate(cu_seqlens[:-1]):\n                end = cu_seqlens[i + 1]\n",
    ),
    "sequences by split of all three at once": (AHEAD, SPLIT_ALL, *SPLIT_CUT),
    "sequences from zero": (
        LOOP,
        "for i in range(len(cu_seqlens) - 1):",
        BOUNDS,
        "start, end = cu_seqlens[i], cu_seqlens[i + 1]",
    ),
    "sequences by split": (AHEAD, SPLIT_EACH, *SPLIT_CUT),
    "k and v repeated for all arms": (
        *KV_HEADS,
        FLASH,
        f"        k, v = (t.repeat_interleave(4, dim=2) for t in (k, v))\n{FLASH}",
    ),
    "no scale, written out": ("causal=False", "softmax_scale=None"),
    "by position": (ARGUMENTS, "q, k, v, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen)\n"),
    "by position, as vLLM's own kernel": (ARGUMENTS, "q, k, v, max_seqlen, cu_seqlens, max_seqlen, cu_seqlens)\n"),
    "other names of attributes": (
        "self.attn_backend",
        "self.backend",
        "self.is_flash_attn_backend",
        "self.use_flash",
        "self.flash_attn_varlen_func",
        "self.varlen",
    ),
}
# name: ((old, new, ...), arguments of the call that differ)
OTHER_CALL: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "a number": (("=max_seqlen", "=1024"), {"max_seqlen": "torch.tensor(1024, dtype=torch.int32)"}),
    "lengths of another type": (
        ("=cu_seqlens", "=cu_seqlens.to(torch.int32)"),
        {"cu_seqlens": "cu_seqlens.to(torch.int32)"},
    ),
    "other names": (
        (
            "q, k, v",
            "a, b, c",
            "=cu_seqlens",
            "=bounds",
            "cu_seqlens[",
            "bounds[",
            "len(cu_seqlens)",
            "len(bounds)",
            "x, cu_seqlens",
            "x, bounds",
        ),
        {"query": "a", "key": "b", "value": "c", "cu_seqlens": "bounds"},
    ),
    "the sequence first": (
        (
            ".transpose(0, 1) for t in",
            " for t in",
            'rearrange(t, "b s ... -> (b s) ...")',
            "t.flatten(0, 1)",
            "t[:, start:end]",
            "t.transpose(0, 1)[:, start:end]",
        ),
        {name: f"rearrange({t}, 's b h d -> b s h d')" for name, t in zip(("query", "key", "value"), "qkv")},
    ),
}

# name: ((old, new, ...), arguments of the constructor that differ)
OTHER_CONSTRUCTOR: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "fewer heads for k and v": (KV_HEADS, {"num_kv_heads": "self.local_kv_heads"}),
    "fewer heads for k and v, repeated for SDPA": (
        (*KV_HEADS, *before_kernel("k_i, v_i = (t.repeat_interleave(4, dim=1) for t in (k_i, v_i))")),
        {"num_kv_heads": "self.local_kv_heads"},
    ),
    "fewer heads for k and v, which SDPA is told": (
        (*KV_HEADS, "dropout_p=0.0)", "enable_gqa=True)"),
        {"num_kv_heads": "self.local_kv_heads"},
    ),
    "a scale of its own": ((*scale("1.0 / hidden"), *SCALED_FLASH, *SCALED_SDPA), {"scale": "self.scale"}),
    "other names": (
        ("local_heads", "heads_here", "head_dim", "width"),
        {"num_heads": "self.heads_here", "head_size": "self.width", "scale": "self.width ** (-0.5)"},
    ),
}


@pytest.fixture
def port(tmp_path: Path) -> Port:
    return porter(tmp_path)


@pytest.mark.parametrize(
    ("edits", "call", "built"),
    [
        *(pytest.param(edits, {}, {}, id=name) for name, edits in SAME_CALL.items()),
        *(pytest.param(edits, call, {}, id=f"call: {name}") for name, (edits, call) in OTHER_CALL.items()),
        *(pytest.param(edits, {}, built, id=f"built: {name}") for name, (edits, built) in OTHER_CONSTRUCTOR.items()),
    ],
)
def test_a_dispatch_becomes_one_call(
    edits: tuple[str, ...], call: dict[str, str], built: dict[str, str], port: Port
) -> None:
    after = port(edited(ATTENTION, *edits))
    assert after.findings == []
    assert after.call("self.attn") == {**CALL, **call}
    assert after.call("MMEncoderAttention") == {**BUILT, **built}
    assert after.assigned("context")[1:] == [BACK]
    assert "scaled_dot_product_attention" not in after.text and "varlen" not in after.text


def test_an_arm_for_xformers_goes_with_the_others(port: Port) -> None:
    after = port(WITH_XFORMERS)
    assert after.call("self.attn") == CALL
    assert after.assigned("context")[1:] == [BACK]
    assert "xformers" not in after.text


def test_a_packed_layout_gets_a_batch_of_one(port: Port) -> None:
    edits = (
        *("length, batch, _ =", "length, _ ="),
        *(VIEWS, "q, k, v = (t.view(length, self.local_heads, self.head_dim) for t in (q, k, v))"),
        *('            q, k, v = (rearrange(t, "b s ... -> (b s) ...") for t in (q, k, v))\n', ""),
        *(FLASH_RESULT, "context = packed.reshape(length, -1)"),
        *(CUT, "(t[start:end].transpose(0, 1) for t in (q, k, v))"),
        *("out_i.transpose(1, 2)", "out_i.transpose(0, 1)"),
        *(SDPA_RESULT, "torch.cat(pieces).reshape(length, -1)"),
    )
    after = port(edited(ATTENTION, *edits))
    assert after.findings == []
    assert after.call("self.attn") == {
        **CALL,
        **{name: f"{t}.unsqueeze(0)" for name, t in zip(("query", "key", "value"), "qkv")},
    }
    (context,) = after.assigned("context")
    assert context.endswith("max_seqlen=max_seqlen).reshape(length, -1)")


def test_vllms_wrappers_gave_the_sequence_first(port: Port) -> None:
    wanted = "from vllm.distributed import"
    imported = "from vllm.attention.ops.vit_attn_wrappers import vit_flash_attn_wrapper, vit_torch_sdpa_wrapper"
    after = port(edited(ATTENTION, FLASH + SDPA, WRAPPERS, wanted, f"{imported}\n{wanted}"))
    assert after.findings == []
    assert after.call("self.attn") == CALL
    assert after.assigned("context")[1:] == [f"{BACK}.contiguous()"]
    assert "wrapper" not in after.text


def test_a_longest_length_that_an_arm_computes_is_kept_as_a_tensor(port: Port) -> None:
    longest = "(cu_seqlens[1:] - cu_seqlens[:-1]).max()"
    before = "            packed = self.flash"
    after = port(edited(ATTENTION, before, f"            max_seqlen = {longest}.item()\n{before}"))
    assert after.findings == []
    assert after.assigned("max_seqlen") == [longest]
    assert after.call("self.attn") == CALL


def test_a_longest_length_that_is_not_shown_to_be_a_tensor_is_reported(port: Port) -> None:
    after = port(edited(ATTENTION, "=max_seqlen", "=self.most"))
    assert after.call("self.attn") == {**CALL, "max_seqlen": "self.most"}
    assert [(f.code, f.message.partition(",")[0]) for f in after.findings] == [
        ("VA201", "self.most is given to MMEncoderAttention as max_seqlen")
    ]


def test_the_attribute_has_a_name_that_is_free(port: Port) -> None:
    setup = "        self.qkv ="
    after = port(edited(ATTENTION, setup, f"        self.attn = nn.Identity()\n{setup}"))
    assert after.call("self.encoder_attn") == CALL
    assert after.call("MMEncoderAttention")["prefix"] == "f'{prefix}.encoder_attn'"


def test_a_base_classs_attribute_is_not_free(port: Port) -> None:
    base = "class Base(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.attn = None\n\n\n"
    head = "class VisionAttention"
    after = port(edited(ATTENTION, f"{head}(nn.Module)", f"{base}{head}(Base)"))
    assert after.call("self.encoder_attn") == CALL


def test_a_constructor_without_a_prefix_gives_none(port: Port) -> None:
    after = port(edited(ATTENTION, 'prefix="", ', ""))
    assert "prefix" not in after.call("MMEncoderAttention")

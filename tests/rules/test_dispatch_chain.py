"""VA201: arms that are not one and the same attention, or not MMEncoderAttention's: the class stays as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.vision_model import (
    AHEAD,
    ATTENTION,
    BOUNDS,
    CUT,
    FLASH,
    KERNEL,
    LOOP,
    OUT_I,
    RETURN,
    SCALED_FLASH,
    SCALED_SDPA,
    SDPA_RESULT,
    WITH_XFORMERS,
    Port,
    Row,
    assert_refused,
    before_kernel,
    edited,
    porter,
    rows,
    scale,
)

APPEND = "                pieces.append(out_i.transpose(1, 2))\n"
UNPACKED = FLASH[FLASH.index("            q, k, v =") : FLASH.index("            packed =")]
TURNED = "(1, self.local_heads, -1, self.head_dim)"
BACK = "(1, -1, self.local_heads, self.head_dim)"

# name: (old, new, ..., what the finding says)
ROLES: dict[str, Row] = {
    "flash arm swaps k and v": ("                q, k, v,\n", "                q, v, k,\n", "attends with"),
    "SDPA arm swaps k and v": ("(q_i, k_i, v_i,", "(q_i, v_i, k_i,", "attends with q, v, k"),
    "SDPA arm swaps q and k": ("(q_i, k_i, v_i,", "(k_i, q_i, v_i,", "attends with k, q, v"),
    "SDPA arm asks with k": ("(q_i, k_i, v_i,", "(k_i, k_i, v_i,", "attends with k, k, v"),
    "flash arm takes k twice": ("                q, k, v,\n", "                q, k, k,\n", "not three tensors"),
    "more than q, k and v starred": (
        *before_kernel("given = (q_i, k_i, v_i, other)"),
        "(q_i, k_i, v_i, dropout_p=0.0)",
        "(*given)",
        "more than q, k and v",
    ),
    "k has other lengths": ("cu_seqlens_k=cu_seqlens", "cu_seqlens_k=other", "cu_seqlens differs between q and k"),
    "k has another longest length": ("max_seqlen_k=max_seqlen", "max_seqlen_k=other", "max_seqlen differs"),
}

EXTRAS: dict[str, Row] = {
    "mask": ("dropout_p=0.0)", "attn_mask=other)", "uses a mask"),
    "mask by position": ("v_i, dropout_p=0.0)", "v_i, other)", "uses a mask"),
    "flash arm is causal": ("causal=False", "causal=True", "causal=True"),
    "flash arm may be causal": ("causal=False", "causal=self.causal", "causal=self.causal"),
    "SDPA arm is causal": ("dropout_p=0.0)", "is_causal=True)", "is causal"),
    "SDPA arm is causal by position": ("v_i, dropout_p=0.0)", "v_i, None, 0.0, True)", "is causal"),
    "flash arm drops out in training": (
        "dropout_p=0.0, causal",
        "dropout_p=0.1 if self.training else 0.0, causal",
        "dropout_p=0.1 if self.training else 0.0",
    ),
    "SDPA arm drops out in training": ("dropout_p=0.0)", "dropout_p=0.1 if self.training else 0.0)", "uses dropout"),
    "window": ("causal=False", "window_size=(128, 128)", "window_size=(128, 128)"),
    "soft cap": ("causal=False", "softcap=30.0", "softcap="),
    "position bias": ("causal=False", "alibi_slopes=other", "alibi_slopes="),
    "hidden arguments": ("dropout_p=0.0)", "**other)", "passes ** to its kernel"),
    "log-sum-exp as well": (
        "packed = self",
        "packed, lse = self",
        "causal=False",
        "return_softmax_lse=True",
        "return_softmax_lse=",
    ),
    "scale in the flash arm only": (*scale("1.0 / hidden"), *SCALED_FLASH, "another arm is given none"),
    "scale in the SDPA arm only": (*scale("1.0 / hidden"), *SCALED_SDPA, "scales differently"),
    "two scales": (*scale("1.0 / hidden"), *SCALED_FLASH, "=0.0)", "=0.0, scale=0.5)", "scales differently"),
    "scale that changes later": (
        *scale("self.head_dim**-0.5\n        if heads > 8:\n            self.scale *= 2"),
        *SCALED_FLASH,
        *SCALED_SDPA,
        "self.scale is set more than once",
    ),
}

ON_THE_WAY: dict[str, Row] = {
    "q is scaled in one arm": (*before_kernel("q_i = q_i * 4.0"), "arithmetic on its tensors"),
    "q is masked in one arm": (*before_kernel("q_i = q_i.masked_fill(other, 0.0)"), ".masked_fill()"),
    "k is padded in one arm": (*before_kernel("k_i = F.pad(k_i, (0, 0, 0, 1))"), "F.pad()"),
    "result is added to": (
        "pieces.append(out_i.transpose(1, 2))",
        "pieces.append(out_i.transpose(1, 2) + 1)",
        "arithmetic",
    ),
    "an arm counts its calls": (
        "            pieces = []\n",
        "            pieces = []\n            self.calls = self.calls + 1\n",
        "stores something outside",
    ),
    "an arm returns the input if there is nothing": (
        f"context = {SDPA_RESULT}",
        f"context = x if not pieces else {SDPA_RESULT}",
        "chooses between different tensors",
    ),
    "short sequences are passed through": (
        OUT_I,
        f"                out_i = q_i\n                if end - start > 1:\n    {OUT_I}",
        "under a condition",
    ),
    "an unknown kernel": (KERNEL, "fused_attention(q_i, k_i, v_i)", "a kernel that is not known"),
    "an arm without attention": (
        RETURN,
        f"        else:\n            context = x\n{RETURN}",
        "no attention kernel that is known",
    ),
}

LAYOUTS: dict[str, Row] = {
    "SDPA arm reshapes heads to sequence": (
        CUT,
        f"(t[:, start:end].reshape{TURNED} for t in (q, k, v))",
        "is left as it is",
    ),
    "SDPA arm reshapes sequence to heads": ("out_i.transpose(1, 2)", f"out_i.reshape{BACK}", "is left as it is"),
    "flash arm mixes up the heads": ("(b s) h d -> s b (h d)", "(b s) h d -> s b (d h)", "different layouts"),
    "flash arm takes head_dim first": ('"b s ... -> (b s) ..."', '"b s h d -> (b s) d h"', "not provable"),
    "flash arm packs k otherwise": (
        UNPACKED,
        f"{UNPACKED}            k = k.reshape(-1, self.head_dim, 4)\n",
        "packed differently",
    ),
    "SDPA arm leaves another order": ('-> s b (h d)")\n        return', '-> b s (h d)")\n        return', "layouts"),
    "SDPA arm mixes up the heads": (
        'torch.cat(pieces, dim=1), "b s h d -> s b (h d)"',
        'torch.cat(pieces, dim=1), "b s h d -> s b (d h)"',
        "different layouts",
    ),
    "SDPA attends over heads": ("[:, start:end].transpose(1, 2) for", "[:, start:end] for", "heads, sequence"),
    "cat along the rows": ("torch.cat(pieces, dim=1)", "torch.cat(pieces, dim=0)", "is left as it is"),
    "cat along the heads": ("pieces.append(out_i.transpose(1, 2))", "pieces.append(out_i)", "along another axis"),
}

CUTS: dict[str, Row] = {
    "a sequence twice": (APPEND, APPEND + APPEND, "is left as it is"),
    "the last sequence only": (APPEND, APPEND[4:], "is left as it is"),
    "the last sequence is left out": ("len(cu_seqlens)):", "len(cu_seqlens) - 1):", "follow cu_seqlens"),
    "the first sequence is left out": ("range(1,", "range(2,", "follow cu_seqlens"),
    "reversed": ("range(1, len(cu_seqlens))", "reversed(range(1, len(cu_seqlens)))", "follow cu_seqlens"),
    "put in front": (
        "pieces.append(out_i.transpose(1, 2))",
        "pieces.insert(0, out_i.transpose(1, 2))",
        "pieces.insert()",
    ),
    "some are skipped": (*before_kernel("if i == 3:\n                    continue"), "more than attention"),
    "a counter from one": (
        AHEAD,
        "for i, end in enumerate(cu_seqlens[1:], 1):\n                start = cu_seqlens[i]\n",
        "follow cu_seqlens",
    ),
    "a counter one ahead": (
        AHEAD,
        "for i, end in enumerate(cu_seqlens[1:]):\n                start = cu_seqlens[i + 1]\n",
        "follow cu_seqlens",
    ),
    "a counter of something else": (
        AHEAD,
        "for i, end in enumerate(other[1:]):\n                start = cu_seqlens[i]\n",
        "follow cu_seqlens",
    ),
    "swapped bounds": (BOUNDS, "end, start = cu_seqlens[i - 1], cu_seqlens[i]", "follow cu_seqlens"),
    "one token short": ("t[:, start:end]", "t[:, start:end - 1]", "follow cu_seqlens"),
    "k from the start": (
        CUT,
        "q[:, start:end].transpose(1, 2), *(t[:, 0:end].transpose(1, 2) for t in (k, v))",
        "follow cu_seqlens",
    ),
    "k and v longer than q": (
        *before_kernel("k_i, v_i = (t[:, 0:end].transpose(1, 2) for t in (k, v))"),
        "follow cu_seqlens",
    ),
    "bounds are one list twice": (
        AHEAD,
        "for start, end in zip(cu_seqlens[:-1], cu_seqlens[:-1]):\n",
        "follow cu_seqlens",
    ),
    "other lengths": ("len(cu_seqlens)", "len(other)", BOUNDS, "start, end = other[i - 1], other[i]", "cu_seqlens"),
    "every other length": (
        "            pieces = []\n",
        "            pieces = []\n            cu_seqlens = cu_seqlens[::2]\n",
        "follow cu_seqlens",
    ),
    "all at once": (
        CUT,
        "(t.transpose(1, 2) for t in (q, k, v))",
        f"{LOOP}\n                {BOUNDS}",
        "for _ in cu_seqlens:",
        "attends across the sequences",
    ),
}

XFORMERS_BIAS: dict[str, Row] = {
    "no bias: all images attend to each other": ("attn_bias=bias, ", "", "block diagonal"),
    "a bias of its own": (
        "bias = BlockDiagonalMask.from_seqlens(q_seqlen=seqlens, kv_seqlen=None, device=q.device)",
        "bias = other",
        "block diagonal",
    ),
    "causal": ("kv_seqlen=None, device=q.device)", "kv_seqlen=None).make_causal()", "block diagonal"),
    "windows of one length": ("q_seqlen=seqlens", "q_seqlen=[64] * 4", "is left as it is"),
    "a scale": ("scale=None", "scale=0.5", "scales differently"),
    "swapped k and v": ("forward(q, k, v, attn", "forward(q, v, k, attn", "attends with q, v, k"),
    "other lengths for k": ("kv_seqlen=None", "kv_seqlen=other", "other lengths than q"),
    "dropout": ("p=0,", "p=0.1,", "dropout"),
    "dropout by position": ("attn_bias=bias, p=0, scale=None", "bias, 0.1", "dropout"),
}


@pytest.fixture
def port(tmp_path: Path) -> Port:
    return porter(tmp_path)


@pytest.mark.parametrize(("edits", "message"), rows(ROLES, EXTRAS, ON_THE_WAY, LAYOUTS, CUTS))
def test_a_dispatch_that_is_not_proved_stays(edits: tuple[str, ...], message: str, port: Port) -> None:
    assert_refused(edited(ATTENTION, *edits), message, port)


@pytest.mark.parametrize(("edits", "message"), rows(XFORMERS_BIAS))
def test_a_dispatch_stays_where_xformers_attends_otherwise(edits: tuple[str, ...], message: str, port: Port) -> None:
    assert_refused(edited(WITH_XFORMERS, *edits), message, port)

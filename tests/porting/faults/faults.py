"""Ports with one fault each: what is changed in a right port, and which levels see it.

`python docs/make_faults.py` writes them to docs/faults.md; `tests/porting/test_faults.py` sees whether all of it is
true. Each row is a mistake that was made in a real port, or that a reviewer has to think of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """`change` are texts of the port of that tower and what stands in their place; each occurs once.

    `seen_by` are the levels that do not pass, each with a part of what its first result says. A level that does not
    always see it is written with the dtype or backend that does: "parity/bfloat16", "paths/triton".
    """

    name: str
    tower: str
    why: str
    change: tuple[tuple[str, str], ...]
    seen_by: Mapping[str, str]

    def applied_to(self, port: str) -> str:
        """The text of the faulty port. Raises ValueError if the port is not what the change was written for."""
        for old, new in self.change:
            if port.count(old) != 1:
                raise ValueError(f"{self.name}: {port.count(old)} times in the port of {self.tower}: {old}")
            port = port.replace(old, new)
        return port


CALL = """\
            cu_seqlens=cu_seqlens,
            max_seqlen=max_seqlen,
        )
        context"""
REARRANGED = 'rearrange(context, "b s h d -> s b (h d)").contiguous()'
CU_SEQLENS = "nn.functional.pad(frames.cumsum(0, dtype=torch.int32), (1, 0))"
ALL_PARITY = ("parity/float32", "parity/bfloat16")
KERNELS_OF_CUDA = ("paths/flash", "paths/triton")
ALL_PATHS = (*KERNELS_OF_CUDA, "paths/npu")

FAULTS = (
    Fault(
        "scale dropped",
        "fixed_size",
        "The op takes `head_dim**-0.5` where no scale is given; this tower has another.",
        (("self.head_dim, self.scale, prefix", "self.head_dim, prefix"),),
        dict.fromkeys(ALL_PARITY, "first in the output of layers.0.self_attn.attn"),
    ),
    Fault(
        "missing rearrange",
        "packed",
        "The op gives heads apart, which the old wrapper joined.",
        ((REARRANGED, "context.contiguous()"),),
        {"build": "shapes cannot be multiplied"},
    ),
    Fault(
        "sequence and batch exchanged afterwards",
        "packed",
        "The op gives the batch first, the old wrapper the sequence: the residual is broadcast.",
        ((REARRANGED, "context.flatten(2)"),),
        {
            **dict.fromkeys(ALL_PARITY, "gives (576, 128), the original (24, 128)"),
            **dict.fromkeys(KERNELS_OF_CUDA, "must cover the 3600 tokens of q"),
            "paths/npu": "view size is not compatible",
        },
    ),
    Fault(
        "transposed layout at batch 1",
        "packed",
        "Sequence first is taken for batch first, which a packed kernel at batch 1 does not notice.",
        (('"s b (h d) -> b s h d"', '"s b (h d) -> s b h d"'), ('"b s h d -> s b (h d)"', '"s b h d -> s b (h d)"')),
        {"build": "is invalid for input of size"},
    ),
    Fault(
        "heads and tokens exchanged",
        "fixed_size",
        "The op takes (batch, tokens, heads, head_dim), PyTorch's attention (batch, heads, tokens, head_dim).",
        (
            (
                "q, k, v = qkv.chunk(3, dim=-1)",
                "q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in qkv.chunk(3, dim=-1))",
            ),
            ("self.out_proj(self.attn(q, k, v))", "self.out_proj(self.attn(q, k, v).transpose(1, 2).flatten(2))"),
        ),
        {"build": "its original can"},
    ),
    Fault(
        "q and k swapped",
        "packed",
        "Each token is asked what it would answer.",
        (("query=q,\n            key=k,", "query=k,\n            key=q,"),),
        dict.fromkeys(ALL_PARITY, "first in the input of blocks.0.attn.proj"),
    ),
    Fault(
        "rotary not in float32",
        "packed",
        "The old helper computed in float32, and ApplyRotaryEmb does so only if it is told.",
        (("            enable_fp32_compute=True,\n", ""),),
        {"parity/bfloat16": "first in the input of blocks.0.attn.proj"},
    ),
    Fault(
        "cu_seqlens dropped",
        "packed",
        "All pictures become one, and see each other.",
        ((CALL, CALL.replace("            cu_seqlens=cu_seqlens,\n            max_seqlen=max_seqlen,\n", "")),),
        dict.fromkeys(ALL_PARITY, "several pictures: differs by"),
    ),
    Fault(
        "two pictures made one",
        "packed",
        "A boundary is lost: the first two pictures see each other.",
        (
            (
                f"        cu_seqlens = {CU_SEQLENS}\n",
                f"        cu_seqlens = {CU_SEQLENS}\n"
                "        cu_seqlens = torch.cat((cu_seqlens[:1], cu_seqlens[-max(1, len(cu_seqlens) - 2) :]))\n",
            ),
        ),
        dict.fromkeys(ALL_PARITY, "several pictures: differs by"),
    ),
    Fault(
        "cu_seqlens one picture short",
        "packed",
        "The last boundary is lost: a kernel leaves the last picture uncomputed.",
        ((CU_SEQLENS, f"{CU_SEQLENS}[:-1]"),),
        {"build": "to sum exactly to 60"},
    ),
    Fault(
        "cu_seqlens without its leading zero",
        "packed",
        "A kernel leaves the first picture uncomputed.",
        ((CU_SEQLENS, "frames.cumsum(0, dtype=torch.int32)"),),
        {"build": "to sum exactly to 60"},
    ),
    Fault(
        "cu_seqlens in int64",
        "packed",
        "Flash kernels, and Ascend's, read 32-bit integers.",
        (("cumsum(0, dtype=torch.int32)", "cumsum(0)"),),
        {"paths/flash": "cu_seqlens_q is a tensor of int64", "paths/npu": "seq_len is a tensor of int64"},
    ),
    Fault(
        "max_seqlen an int",
        "packed",
        "vLLM's wrappers take a tensor, since a compiled graph cannot wait for a number.",
        (("[:-1]).max()", "[:-1]).max().item()"),),
        {
            "static": "VA303 would still rewrite it",
            **dict.fromkeys(KERNELS_OF_CUDA, "for argument 'max_seqlen' but instead found type 'int'"),
        },
    ),
    Fault(
        "max_seqlen too small",
        "packed",
        "A kernel leaves the rest of a longer picture uncomputed.",
        (("[:-1]).max()", "[:-1]).min()"),),
        dict.fromkeys(KERNELS_OF_CUDA, "must be at least the longest sequence"),
    ),
    Fault(
        "max_seqlen not passed",
        "packed",
        "PyTorch's attention does without.",
        ((CALL, CALL.replace("            max_seqlen=max_seqlen,\n", "")),),
        dict.fromkeys(KERNELS_OF_CUDA, "should be both set or both None"),
    ),
    Fault(
        "backend set without Triton",
        "packed",
        "max_seqlen is computed for the backends that wanted it when the file was written.",
        (("            AttentionBackendEnum.TRITON_ATTN,\n", ""),),
        {"static": "VA305 would still rewrite it", "paths/triton": "should be both set or both None"},
    ),
    Fault(
        "cross-attention converted",
        "fixed_size",
        "One query to four keys: packed kernels take one cu_seqlens for both. PyTorch's attention computes it rightly.",
        (
            (
                "        self.q_proj = nn.Linear(",
                "        self.attn = MMEncoderAttention(self.heads, self.head_dim)\n        self.q_proj = nn.Linear(",
            ),
            (
                "        q, k, v = (part.unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)"
                " for part in (q, k, v))\n",
                "",
            ),
            ("nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)", "self.attn(q, k, v)"),
        ),
        {
            **dict.fromkeys(ALL_PARITY, "away from fp64 attention"),
            **dict.fromkeys(ALL_PATHS, "must have the 48 tokens of q"),
        },
    ),
    Fault(
        "attention left on PyTorch's own",
        "fixed_size",
        "Right numbers, and no kernel of any device.",
        (
            (
                "        output, _ = self.out_proj(self.attn(q, k, v))\n",
                "        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (q, k, v))\n"
                "        attended = nn.functional.scaled_dot_product_attention(q, k, v, scale=self.scale)\n"
                "        output, _ = self.out_proj(attended.transpose(1, 2).flatten(2))\n",
            ),
            (
                "        self.attn = MMEncoderAttention(self.heads, self.head_dim, self.scale,"
                ' prefix=f"{prefix}.attn")\n',
                "",
            ),
        ),
        {
            **dict.fromkeys(ALL_PARITY, "no call of MMEncoderAttention was seen"),
            **dict.fromkeys(ALL_PATHS, "no MMEncoderAttention ran: attention is computed in FixedSizeAttention"),
        },
    ),
    Fault(
        "heads not divided",
        "packed",
        "Each of several tensor-parallel ranks has a part of the heads.",
        (("divide(num_heads, get_tensor_model_parallel_world_size())", "num_heads"),),
        {"build": "has 2 heads on one of 2 ranks, not 1"},
    ),
    Fault(
        "qkv divided as one matrix",
        "packed",
        "Half of the rows of three matrices is one and a half of them, and no rank has whole heads.",
        (
            (
                """\
QKVParallelLinear(
            hidden_size=hidden_size,
            head_size=self.head_dim,
            total_num_heads=num_heads,
            total_num_kv_heads=num_heads,
""",
                """\
ColumnParallelLinear(
            hidden_size,
            3 * hidden_size,
""",
            ),
        ),
        {"parallel": "differs"},
    ),
    Fault(
        "op built in forward",
        "packed",
        "An op chooses its backend from the configuration that is current while a model is built.",
        (
            (
                "context = self.attn(\n",
                "context = MMEncoderAttention(self.heads, self.head_dim, self.head_dim**-0.5)(\n",
            ),
        ),
        {"static": "MMEncoderAttention is built whenever PackedAttention runs", "build": "vLLM config is not set"},
    ),
    Fault(
        "subclass of the op",
        "packed",
        "Out-of-tree devices replace the op by the name of its class.",
        (
            (
                "class PackedAttention(nn.Module)",
                "class OwnAttention(MMEncoderAttention):\n    pass\n\n\nclass PackedAttention(nn.Module)",
            ),
            ("self.attn = MMEncoderAttention(", "self.attn = OwnAttention("),
        ),
        {
            "static": "OwnAttention is a subclass of MMEncoderAttention",
            "paths/npu": "OwnAttention of `blocks.0.attn.attn` ran and called no kernel",
        },
    ),
    Fault(
        "seqlens left in a compile decorator",
        "packed",
        "The argument is gone from forward.",
        (('"angles": 0}', '"angles": 0, "seqlens": 0}'),),
        {
            "static": "support_torch_compile names 'seqlens', which PackedBlock.forward does not take",
            "load": "Argument seqlens not found",
        },
    ),
)

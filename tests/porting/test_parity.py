"""A port is equal to its original to the last bit, or it is said where it first is not."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from codemods.run import Options, migrate
from codemods.vllm_api import resolve
from porting.comparison import case
from porting.comparison.case import HEAD_DIMS
from porting.job import Job
from porting.levels import build, parity
from porting.matrix import BAD
from porting.result import Result, Status

pytestmark = pytest.mark.usefixtures("groups")

# A tower as it was written for vLLM 0.12, down to what its port changes: {attention} computes `context` of q, k and v,
# which are `(1, patches, heads, head_dim)`.
LENS = """
import torch
import torch.nn.functional as F
from torch import nn
{imports}
from vllm.distributed import get_tensor_model_parallel_world_size
from vllm.model_executor.layers.linear import QKVParallelLinear, RowParallelLinear


class LensAttention(nn.Module):
    def __init__(self, width, heads, prefix=""):
        super().__init__()
        self.heads = heads // get_tensor_model_parallel_world_size()
        self.head_dim = width // heads
        self.qkv = QKVParallelLinear(width, self.head_dim, heads, heads, prefix=f"{{prefix}}.qkv")
        self.proj = RowParallelLinear(width, width, prefix=f"{{prefix}}.proj")
        {op}

    def forward(self, x, cu_seqlens):
        qkv, _ = self.qkv(x[None])
        q, k, v = (part.unflatten(-1, (self.heads, self.head_dim)) for part in qkv.chunk(3, dim=-1))
        {attention}
        output, _ = self.proj(context.flatten(2))
        return output[0]


class Lens(nn.Module):
    def __init__(self, config, prefix=""):
        super().__init__()
        pixels = config.in_channels * config.temporal_patch_size * config.patch_size**2
        self.embed = nn.Linear(pixels, config.hidden_size)
        self.layers = nn.ModuleList(
            LensAttention(config.hidden_size, config.num_heads, f"{{prefix}}.layers.{{i}}") for i in range(config.depth)
        )

    def forward(self, x, grid_thw):
        frames = torch.tensor([h * w for t, h, w in grid_thw for _ in range(t)])
        cu_seqlens = {bounds}
        x = self.embed(x)
        for layer in self.layers:
            x = x + layer(x, cu_seqlens)
        return x
"""
BOUNDS = "F.pad(frames.cumsum(0), (1, 0)).to(torch.int32)"
ORIGINAL = {
    "imports": "from vllm.attention.backends.registry import AttentionBackendEnum",
    "op": "self.scale = self.head_dim**-0.5",
    "attention": """parts = []
        for start, end in zip(cu_seqlens, cu_seqlens[1:]):
            q_i, k_i, v_i = (part[:, start:end].transpose(1, 2) for part in (q, k, v))
            parts.append(F.scaled_dot_product_attention(q_i, k_i, v_i, scale=self.scale).transpose(1, 2))
        context = torch.cat(parts, dim=1)""",
    "bounds": BOUNDS,
}
PORTED = {
    "imports": "from vllm.model_executor.layers.attention.mm_encoder_attention import MMEncoderAttention",
    "op": 'self.attn = MMEncoderAttention(self.heads, self.head_dim, self.head_dim**-0.5, prefix=f"{prefix}.attn")',
    "attention": """longest = (cu_seqlens[1:] - cu_seqlens[:-1]).max()
        context = self.attn(q, k, v, cu_seqlens, longest)""",
    "bounds": BOUNDS,
}

Ask = Callable[..., list[Result]]


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Ask a level of the tower with these changes, beside its original, in one size of heads."""
    monkeypatch.setattr(case, "HEAD_DIMS", (72,))

    def answer(level=parity, dtype: str = "float32", before: bool = True, **changes: str) -> list[Result]:
        for name, parts in {"original": ORIGINAL, "ported": {**PORTED, **changes}}.items():
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / "lens.py").write_text(dedent(LENS).format(**parts))
        original = tmp_path / "original" / "lens.py" if before else None
        path = tmp_path / "ported" / "lens.py"
        return level.run(Job(path, "parity", before=original, dtype=dtype))

    return answer


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_right_port_is_equal_to_the_last_bit(ask: Ask, dtype: str) -> None:
    original, reference = ask(dtype=dtype)
    assert (original.status, original.numbers["difference"]) == (Status.PASSED, 0.0)
    assert (reference.status, reference.numbers["attention calls"]) == (Status.PASSED, 2)
    assert reference.numbers["attention error"] > 0
    assert [one["case"] for one in original.numbers["cases"]] == [
        "head_dim 72, one picture",
        "head_dim 72, several pictures",
        "head_dim 72, a video and a picture",
    ]


def test_every_size_of_heads_is_compared(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case, "HEAD_DIMS", HEAD_DIMS)
    original, _ = ask()
    assert {one["case"].partition(",")[0] for one in original.numbers["cases"]} == {
        f"head_dim {size}" for size in (64, 72, 80, 128)
    }


def test_without_an_original_the_reference_is_still_asked(ask: Ask) -> None:
    original, reference = ask(before=False)
    assert (original.status, reference.status) == (Status.NOT_RUN, Status.PASSED)
    assert "no original was given" in original.summary


WRONG = {
    "the scale is dropped": {"op": PORTED["op"].replace("self.head_dim**-0.5", "1.0")},
    "q and k are swapped": {"attention": PORTED["attention"].replace("q, k, v", "k, q, v")},
    "heads are in another order": {"attention": PORTED["attention"].replace("q, k, v", "q.flip(2), k, v")},
    "attention in bf16": {"attention": PORTED["attention"].replace("(q, k", "(q.bfloat16().float(), k")},
}
ALONE = {
    "cu_seqlens dropped": {"attention": "context = self.attn(q, k, v)"},
    "cu_seqlens off by one picture": {"bounds": f"torch.cat([({BOUNDS})[:1], ({BOUNDS})[1 + (len(frames) > 1) :]])"},
    "no leading zero": {"bounds": "frames.cumsum(0).to(torch.int32)"},
    "transposed layout": {
        "attention": """q, k, v = (part.transpose(0, 1) for part in (q, k, v))
        context = self.attn(q, k, v, cu_seqlens).transpose(0, 1)"""
    },
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_fault_is_found_by_the_original_and_its_place_is_said(ask: Ask, fault: str) -> None:
    original, _ = ask(**WRONG[fault])
    assert original.status is Status.FAILED
    assert "first in the input of layers.0.proj, token" in original.summary
    assert original.numbers["first difference"]["head"] in (0, 1)
    first, *_ = original.numbers["heat maps"]
    assert (len(first["errors"]), len(first["errors"][0])) == (4, 6)


@pytest.mark.parametrize("fault", ALONE)
def test_a_fault_of_sequences_is_found_without_an_original(ask: Ask, fault: str) -> None:
    assert ask(before=False, **ALONE[fault])[-1].status in BAD


def test_a_tower_that_does_not_call_the_op_has_not_passed(ask: Ask) -> None:
    original, reference = ask(op=ORIGINAL["op"], attention=ORIGINAL["attention"])
    assert original.status is Status.PASSED
    assert reference.status is Status.FAILED
    assert "no call of MMEncoderAttention was seen" in reference.summary


def test_sums_in_another_order_are_no_fault(ask: Ask) -> None:
    original, _ = ask(
        attention=PORTED["attention"] + "\n        context = context.flip(1).flip(1) / 3 + context / 3 * 2"
    )
    assert original.status is Status.PASSED
    assert 0 < original.numbers["difference"] < 1e-5
    assert any("sums in another order" in note for note in original.notes)


def test_a_constant_that_is_as_small_as_rounding_is_a_fault(ask: Ask) -> None:
    original, _ = ask(attention=PORTED["attention"] + "\n        context = context * (1 + 1e-6)")
    assert original.status is Status.FAILED


def test_a_tower_is_built_with_the_names_of_the_original(ask: Ask) -> None:
    (built,) = ask(build)
    assert built.status is Status.PASSED
    assert "named as in the original; heads divided by 2 in 2 of 2 ops" in built.summary


def test_heads_that_are_not_divided_are_found(ask: Ask) -> None:
    (built,) = ask(build, op=PORTED["op"].replace("(self.heads", "(heads"))
    assert built.status is Status.FAILED
    assert "layers.0.attn has 2 heads on one of 2 ranks, not 1" in built.summary


def test_a_parameter_of_another_name_is_found(ask: Ask) -> None:
    (built,) = ask(build, op=PORTED["op"] + "\n        self.gain = nn.Parameter(torch.ones(1))")
    assert built.status is Status.FAILED
    assert "parameters that the original does not have: layers.0.gain, layers.1.gain" in built.summary


def test_a_port_that_cannot_be_built_is_at_fault_where_its_original_can(ask: Ask) -> None:
    (built,) = ask(build, op=PORTED["op"].replace("prefix=", "size=3, prefix="))
    assert built.status is Status.FAILED
    assert "its original can" in built.summary


def test_the_example_plugin_is_found_and_equal_to_its_original(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case, "HEAD_DIMS", (80,))
    for name in ("original", "ported"):
        shutil.copytree(Path("examples/orchard_vl_plugin/orchard_vl"), tmp_path / name / "orchard_vl")
    migrate([tmp_path / "ported" / "orchard_vl"], Options(target=resolve("0.32")))
    before, path = (tmp_path / name / "orchard_vl" / "vision.py" for name in ("original", "ported"))
    original, reference = parity.run(Job(path, "parity", before=before))
    assert (original.status, original.numbers["difference"]) == (Status.PASSED, 0.0)
    assert reference.status is Status.PASSED
    (whole,) = parity.run(Job(path.with_name("model.py"), "parity"))
    assert whole.status is Status.NOT_RUN
    assert "OrchardVisionTower of orchard_vl.vision, to be checked there" in whole.summary

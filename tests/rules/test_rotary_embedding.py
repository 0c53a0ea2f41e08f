"""VA501: a rotary helper of any make becomes ApplyRotaryEmb with the same numbers, or is refused with the reason."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent, indent

import pytest

from codemods import vllm_api
from codemods.findings import FileReport, Finding, Severity
from codemods.run import Options, migrate
from tests import wheels

COMMON = "vllm.model_executor.layers.rotary_embedding.common"

HALVES = """\
def swapped(x, interleaved=False):
    if not interleaved:
        left, right = x.chunk(2, dim=-1)
        return torch.cat((-right, left), dim=-1)
    left, right = x[..., ::2], x[..., 1::2]
    return torch.stack((-right, left), dim=-1).flatten(-2)
"""

PARTS = f"""\
from einops import repeat

{HALVES}

def plain(x, cos, sin, interleaved=False):
    width = cos.shape[-1] * 2
    assert width <= x.shape[-1]
    cos = repeat(cos, "... d -> ... 1 (2 d)" if not interleaved else "... d -> ... 1 (d 2)")
    sin = repeat(sin, "... d -> ... 1 (2 d)" if not interleaved else "... d -> ... 1 (d 2)")
    turned = x[..., :width] * cos + swapped(x[..., :width], interleaved) * sin
    return torch.cat([turned, x[..., width:]], dim=-1)
"""


@dataclass(frozen=True)
class Helper:
    """A helper in some style, how forward calls it, and what ApplyRotaryEmb has to be told for the same numbers."""

    text: str
    forward: str
    op: tuple[str, ...]
    axes: int = 4


HELPERS = {
    "a torch function and CUDA's kernel in turn": Helper(
        f"""\
from vllm.platforms import current_platform
{PARTS}

def rotate(t, freqs):
    upcast = t.float()
    kernel = plain
    if current_platform.is_cuda():
        from vllm.vllm_flash_attn.layers.rotary import apply_rotary_emb as kernel
    return kernel(upcast, freqs.cos(), freqs.sin()).type_as(t)
""",
        "return rotate(q, angles), rotate(k, angles)",
        ("enforce_enable=True", "enable_fp32_compute=True"),
    ),
    "vLLM's chooser with a function to fall back on": Helper(
        f"""\
from {COMMON} import dispatch_rotary_emb_function
{PARTS}

def rotate(t, freqs):
    kernel = dispatch_rotary_emb_function(default=plain)
    return kernel(t.float(), freqs.cos(), freqs.sin()).type_as(t)
""",
        "return rotate(q, angles), rotate(k, angles)",
        ("enforce_enable=True", "enable_fp32_compute=True"),
        axes=3,
    ),
    "vLLM's chooser, given cos and sin": Helper(
        f"""\
from functools import partial
from {COMMON} import apply_rotary_emb_torch, dispatch_rotary_emb_function


def rotate(t, cos, sin):
    kernel = dispatch_rotary_emb_function(default=partial(apply_rotary_emb_torch, is_neox_style=True))
    return kernel(t, cos, sin).type_as(t)
""",
        "cos, sin = angles.cos(), angles.sin()\nreturn rotate(q, cos, sin), rotate(k, sin=sin, cos=cos)",
        ("enforce_enable=True",),
    ),
    "angles that are made as wide as a head": Helper(
        f"""\
from {COMMON} import dispatch_rotary_emb_function

{HALVES}

def wide(x, cos, sin):
    cos = cos.unsqueeze(1).repeat(1, 1, 2).unsqueeze(0).float()
    sin = sin.unsqueeze(1).repeat(1, 1, 2).unsqueeze(0).float()
    return (x * cos) + (swapped(x) * sin)


def rotate(t, freqs):
    dtype = t.dtype
    t = t.float()
    turned = dispatch_rotary_emb_function(default=wide)(t, freqs.cos(), freqs.sin())
    return turned.to(dtype)
""",
        "qk = torch.cat([q.view(2, 7, 3, 64), k.view(2, 7, 3, 64)], dim=0)\n"
        "return torch.chunk(rotate(qk, angles), 2, dim=0)",
        ("enforce_enable=True", "enable_fp32_compute=True"),
    ),
    "halves turned one by one": Helper(
        f"""\
from {COMMON} import dispatch_rotary_emb_function


def by_halves(x, cos, sin):
    cos = cos[..., None, :].to(x.dtype)
    sin = sin[..., None, :].to(x.dtype)
    left = x[..., : x.shape[-1] // 2]
    right = x[..., x.shape[-1] // 2 :]
    return torch.cat((left * cos - right * sin, left * sin + right * cos), dim=-1)


def rotate(t, cos, sin):
    return dispatch_rotary_emb_function(by_halves)(t, cos, sin)
""",
        "return rotate(q, angles.cos(), angles.sin()), rotate(k, angles.cos(), angles.sin())",
        ("enforce_enable=True",),
    ),
    "query and key at once, the platform asked": Helper(
        f"""\
from functools import partial
from vllm.platforms import current_platform


def rotate(q, k, cos, sin):
    cos = cos.chunk(2, dim=-1)[0].contiguous()
    sin = sin.chunk(2, dim=-1)[0].contiguous()
    if current_platform.is_cuda():
        from vllm.vllm_flash_attn.layers.rotary import apply_rotary_emb
    elif current_platform.is_rocm():
        from flash_attn.ops.triton.rotary import apply_rotary as apply_rotary_emb
    else:
        from {COMMON} import apply_rotary_emb_torch

        apply_rotary_emb = partial(apply_rotary_emb_torch, is_neox_style=True)
    new_q = apply_rotary_emb(q.float(), cos.float(), sin.float()).type_as(q)
    new_k = apply_rotary_emb(k.float(), cos.float(), sin.float()).type_as(k)
    return new_q, new_k
""",
        "angles = torch.cat((angles, angles), dim=-1)\ncos, sin = angles.cos(), angles.sin()\n"
        "q, k = rotate(q, k, cos, sin)\nreturn q, k",
        ("enforce_enable=True", "enable_fp32_compute=True"),
    ),
    "query and key at once, told of the backend": Helper(
        f"""\
{PARTS}

def rotate(q, k, cos, sin, is_flash=False):
    cos = cos.chunk(2, dim=-1)[0].contiguous()
    sin = sin.chunk(2, dim=-1)[0].contiguous()
    if is_flash:
        from flash_attn.layers.rotary import apply_rotary_emb

        function = apply_rotary_emb
    else:
        function = plain
    return function(q.float(), cos, sin).type_as(q), function(k.float(), cos, sin).type_as(k)
""",
        "angles = torch.cat((angles, angles), dim=-1)\ncos, sin = angles.cos(), angles.sin()\n"
        "q, k = rotate(q.unsqueeze(0), k.unsqueeze(0), cos, sin, self.is_flash)\nreturn q, k",
        ("enforce_enable=True", "enable_fp32_compute=True"),
        axes=3,
    ),
    "query and key at once, given the angles": Helper(
        f"""\
from {COMMON} import apply_rotary_emb_torch


def rotate(q, k, freqs):
    cos, sin = freqs.cos(), freqs.sin()
    q_out = apply_rotary_emb_torch(q.float(), cos, sin, is_neox_style=True).to(q.dtype)
    return q_out, apply_rotary_emb_torch(k.float(), cos, sin, True).to(k.dtype)
""",
        "q, k = rotate(q, k, angles)\nreturn q, k",
        ("enforce_enable=True", "enable_fp32_compute=True"),
    ),
    "query and key at once, angles out of a pair": Helper(
        f"""\
from {COMMON} import apply_rotary_emb_torch


def rotate(q, k, cos, sin):
    cos, sin = (cos.chunk(2, -1)[0], sin.chunk(2, -1)[0])
    return apply_rotary_emb_torch(q, cos, sin, True), apply_rotary_emb_torch(k, cos, sin, True)
""",
        "pair = [torch.cat((a, a), dim=-1) for a in (angles.cos(), angles.sin())]\n"
        "new_q, new_k = rotate(q, k, pair[0], pair[1])\nreturn new_q, new_k",
        ("enforce_enable=True",),
    ),
    "vLLM's own helper until 0.11": Helper(
        "from vllm.model_executor.models.qwen2_vl import apply_rotary_pos_emb_vision\n",
        "return [apply_rotary_pos_emb_vision(x, angles) for x in (q, k)]",
        ("enforce_enable=True", "enable_fp32_compute=True"),
    ),
    "vLLM's own helper in 0.12": Helper(
        "from vllm.model_executor.models.qwen2_vl import apply_rotary_pos_emb_vision\n",
        "cos, sin = angles.cos(), angles.sin()\nreturn [apply_rotary_pos_emb_vision(x, cos, sin) for x in (q, k)]",
        ("enforce_enable=True",),
    ),
    "vLLM's function called in the method itself": Helper(
        f"from {COMMON} import apply_rotary_emb_dispatch\n",
        "cos, sin = angles.cos(), angles.sin()\n"
        "q = apply_rotary_emb_dispatch(q, cos, sin, True)\n"
        "k = apply_rotary_emb_dispatch(k, cos, sin, is_neox_style=True)\nreturn q, k",
        ("enforce_enable=True",),
        axes=3,
    ),
    "neighbours turned, as a constant says": Helper(
        f"from {COMMON} import apply_rotary_emb_torch\n",
        "cos, sin = angles.cos(), angles.sin()\n"
        "return apply_rotary_emb_torch(q, cos, sin, False), apply_rotary_emb_torch(k, cos, sin, False)",
        ("enforce_enable=True", "is_neox_style=False"),
    ),
}


def module(text: str, forward: str) -> str:
    return f"""\
import torch
from torch import nn
{text}

class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.is_flash = False

    def forward(self, q, k, angles):
{indent(dedent(forward), " " * 8)}
"""


@pytest.fixture
def port(tmp_path: Path) -> Callable[..., tuple[str, FileReport]]:
    """Ports a module; gives its text afterwards and what is said of it."""

    def run(text: str, target: str = "0.32") -> tuple[str, FileReport]:
        path = tmp_path / "tower.py"
        path.write_text(text)
        (report,) = migrate([path], Options(target=vllm_api.resolve(target))).files
        return path.read_text(), report

    return run


def findings(report: FileReport) -> list[Finding]:
    return [finding for finding in report.findings if finding.code == "VA501"]


@pytest.mark.parametrize("helper", HELPERS.values(), ids=HELPERS)
class TestHelper:
    def test_becomes_an_op_that_is_built_in_the_constructor(self, helper: Helper, port) -> None:
        after, report = port(module(helper.text, helper.forward))
        assert not report.findings
        constructor, forward = after.split("def __init__", 1)[1].split("def forward", 1)
        (built,) = re.findall(r"self\.apply_rotary_emb = ApplyRotaryEmb\((.*?)\)", constructor, re.DOTALL)
        assert tuple(argument.strip() for argument in built.split(",") if argument.strip()) == helper.op
        assert "self.apply_rotary_emb(" in forward
        assert "ApplyRotaryEmb(" not in forward

    def test_leaves_nothing_of_the_old_way_behind(self, helper: Helper, port) -> None:
        after, _ = port(module(helper.text, helper.forward))
        assert re.findall(r"^(?:def|from|import) .*", after, re.MULTILINE) in (
            ["import torch", "from torch import nn", f"from {COMMON} import ApplyRotaryEmb"],
            ["from torch import nn", f"from {COMMON} import ApplyRotaryEmb"],
        )


def test_no_bit_of_the_results_changes(port, tmp_path: Path, vllm_python: Path) -> None:
    """In float32 and bfloat16, under a real ApplyRotaryEmb."""
    pairs = tmp_path / "pairs"
    pairs.mkdir()
    for number, helper in enumerate(HELPERS.values()):
        before = module(helper.text, helper.forward)
        after, _ = port(before)
        (pairs / f"{number}.{helper.axes}.before.py").write_text(before)
        (pairs / f"{number}.{helper.axes}.after.py").write_text(after)
    result = subprocess.run(
        [vllm_python, Path(__file__).with_name("rotary_numbers.py"), pairs],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **wheels.VLLM_ENVIRONMENT},
    )
    assert (result.returncode, result.stdout) == (0, ""), result.stderr


CHOOSER = f"from {COMMON} import dispatch_rotary_emb_function\n"

REFUSED = [
    pytest.param(
        f"from {COMMON} import apply_rotary_emb_torch\n",
        "return apply_rotary_emb_torch(q, angles.cos(), angles.sin(), self.is_flash), k",
        "neox style, interleaved) is not a constant",
        id="style not a constant",
    ),
    pytest.param(
        f"{CHOOSER}{PARTS}\ndef rotate(t, freqs):\n"
        "    turned = plain(t.float(), freqs.cos(), freqs.sin(), interleaved=True)\n"
        "    return dispatch_rotary_emb_function()(turned, freqs.cos(), freqs.sin())\n",
        "return rotate(q, angles), k",
        "is not a rotary step that is known",
        id="interleaved",
    ),
    pytest.param(
        f"{CHOOSER}\ndef rotate(t, freqs):\n    return dispatch_rotary_emb_function()(t[..., ::2], freqs, freqs)\n",
        "return rotate(q, angles), k",
        "rotates neighbouring elements (interleaved)",
        id="neighbours",
    ),
    pytest.param(
        f"{CHOOSER}{HALVES}\ndef part(x, cos, sin, width=32):\n"
        "    cos = torch.cat((cos, cos), dim=-1).unsqueeze(-2)\n"
        "    sin = torch.cat((sin, sin), dim=-1).unsqueeze(-2)\n"
        "    turned = x[..., :width] * cos + swapped(x[..., :width]) * sin\n"
        "    return torch.cat([turned, x[..., width:]], dim=-1)\n\n\n"
        "def rotate(t, cos, sin):\n    return dispatch_rotary_emb_function(part)(t.float(), cos, sin).type_as(t)\n",
        "return rotate(q, angles, angles), k",
        "a part of each head whose width is not that of cos and sin",
        id="a real tail",
    ),
    pytest.param(
        f"{CHOOSER}{PARTS}\ndef rotate(t, cos, sin):\n    return dispatch_rotary_emb_function(plain)(t, cos, sin)\n",
        "return rotate(q, angles.cos(), angles.sin()), k",
        "its precision depends on the dtype of cos and sin",
        id="unknown precision",
    ),
    pytest.param(
        f"{CHOOSER}\ndef rotate(t, cos, sin):\n    return dispatch_rotary_emb_function()(t.float(), cos, sin)\n",
        "return rotate(q, angles.cos(), angles.sin()), k",
        "not called with x, cos, sin, is_neox_style",
        id="style not given",
    ),
    pytest.param(
        f"{CHOOSER}{PARTS}\ndef rotate(t, cos, sin):\n"
        "    return dispatch_rotary_emb_function(plain)(t.float(), cos, sin)\n",
        "return rotate(q, angles.cos(), angles.sin()), k",
        "does not give the result the dtype of what it rotates",
        id="left in float32",
    ),
    pytest.param(
        HELPERS["angles that are made as wide as a head"].text,
        "return rotate(q, angles), k",
        "it needs the four axes [batch, sequence, heads, head_dim], and here they may be three",
        id="axes not known",
    ),
    pytest.param(
        HELPERS["angles that are made as wide as a head"].text,
        "q = q.view(7, 3, 64)\nreturn rotate(q, angles), k",
        "and here they are 3",
        id="three axes",
    ),
    pytest.param(
        "from vllm.model_executor.models.qwen2_vl import apply_rotary_pos_emb_vision\n",
        "return apply_rotary_pos_emb_vision(*q), k",
        "its arguments are passed on as a whole",
        id="unpacked arguments",
    ),
    pytest.param(
        "from vllm.model_executor.models.qwen2_vl import apply_rotary_pos_emb_vision\n",
        "return apply_rotary_pos_emb_vision(q, k.mean(0)), k",
        "would be computed twice",
        id="angles computed in the call",
    ),
    pytest.param(
        HELPERS["query and key at once, the platform asked"].text,
        "return rotate(q, k, angles, angles)",
        "not assigned to two targets",
        id="a pair returned",
    ),
]


@pytest.mark.parametrize(("text", "forward", "check"), REFUSED)
def test_what_is_not_provably_the_same_is_refused(text: str, forward: str, check: str, port) -> None:
    before = module(text, forward)
    after, report = port(before)
    assert after == before
    (finding,) = findings(report)
    assert check in finding.message
    assert finding.severity is Severity.ERROR
    assert "enable_fp32_compute=True" in finding.remedy


class TestPlace:
    """Where the op is built, and where it cannot be."""

    TEXT = "from vllm.model_executor.models.qwen2_vl import apply_rotary_pos_emb_vision\n"

    def test_every_class_that_rotates_builds_its_own(self, port) -> None:
        forward = "return apply_rotary_pos_emb_vision(q, angles), apply_rotary_pos_emb_vision(k, angles)"
        one = module(self.TEXT, forward)
        after, _ = port(one + "\n\n" + one.split("\n\n", 1)[1].replace("Attention", "Other"))
        assert after.count("self.apply_rotary_emb = ApplyRotaryEmb(") == 2

    def test_an_attribute_that_is_taken_is_not_overwritten(self, port) -> None:
        forward = "self.apply_rotary_emb = True\nreturn apply_rotary_pos_emb_vision(q, angles), k"
        after, report = port(module(self.TEXT, forward))
        assert not report.findings
        assert "self.apply_rotary_emb_2 = ApplyRotaryEmb(" in after
        assert "return self.apply_rotary_emb_2(q, angles.cos(), angles.sin()), k" in after

    def test_two_ways_to_rotate_are_two_ops(self, port) -> None:
        forward = "return apply_rotary_pos_emb_vision(q, angles), apply_rotary_pos_emb_vision(k, angles, angles)"
        after, _ = port(module(self.TEXT, forward))
        assert (
            "self.apply_rotary_emb(q, angles.cos(), angles.sin()), self.apply_rotary_emb_2(k, angles, angles)" in after
        )
        assert "self.apply_rotary_emb_2 = ApplyRotaryEmb(enforce_enable=True)" in after

    @pytest.mark.parametrize(
        ("before", "check"),
        [
            (
                "q = angles = None\nturned = apply_rotary_pos_emb_vision(q, angles)",
                "outside of a class",
            ),
            (
                "class Turn:\n    @staticmethod\n    def turn(q, angles):\n"
                "        return apply_rotary_pos_emb_vision(q, angles)",
                "there is no self to hold the op",
            ),
            (
                "class Turn:\n    def turn(self, q, angles):\n        return apply_rotary_pos_emb_vision(q, angles)",
                "Turn has no constructor of its own",
            ),
            (
                "class Turn:\n    def __init__(self):\n        self.x = 1\n\n"
                "    def turn(self, q, angles):\n        return apply_rotary_pos_emb_vision(q, angles)",
                "the constructor of Turn does not call super().__init__()",
            ),
        ],
    )
    def test_no_op_is_built_elsewhere(self, before: str, check: str, port) -> None:
        text = f"{self.TEXT}\n\n{before}\n"
        after, report = port(text)
        assert after == text
        (finding,) = findings(report)
        assert check in finding.message

    def test_a_helper_of_another_file_is_followed(self, tmp_path: Path) -> None:
        (tmp_path / "__init__.py").write_text("")
        helper = HELPERS["vLLM's chooser with a function to fall back on"]
        (tmp_path / "turning.py").write_text(f"import torch\n{helper.text}")
        tower = "from vllm.model_executor.layers.attention import MMEncoderAttention\n\nfrom .turning import rotate\n"
        (tmp_path / "tower.py").write_text(module(tower, helper.forward))
        report = migrate([tmp_path], Options(target=vllm_api.resolve("0.32")))
        assert report.exit_code == 0
        assert "rotate(" not in (tmp_path / "turning.py").read_text()
        assert "return self.apply_rotary_emb(q, angles.cos(), angles.sin())" in (tmp_path / "tower.py").read_text()


class TestCaller:
    """What the method around a call keeps."""

    TEXT = HELPERS["query and key at once, the platform asked"].text

    def test_angles_that_are_read_later_keep_their_name(self, port) -> None:
        after, _ = port(module(self.TEXT, "cos, sin = angles\nq, k = rotate(q, k, cos, sin)\nreturn q + cos, k"))
        assert "cos_half = cos.chunk(2, dim=-1)[0].contiguous()" in after
        assert "        sin = sin.chunk(2, dim=-1)[0].contiguous()" in after
        assert "q = self.apply_rotary_emb(q, cos_half, sin)" in after

    def test_targets_that_the_key_still_reads_are_set_at_once(self, port) -> None:
        after, _ = port(module(self.TEXT, "cos, sin = angles\nk, q = rotate(q, k, cos, sin)\nreturn q, k"))
        assert "k, q = self.apply_rotary_emb(q, cos, sin), self.apply_rotary_emb(k, cos, sin)" in after

    def test_arguments_in_order_keep_their_layout(self, port) -> None:
        text = "from vllm.model_executor.models.qwen2_vl import apply_rotary_pos_emb_vision\n"
        forward = "return apply_rotary_pos_emb_vision(\n    q,  # packed\n    cos=angles,\n    sin=angles,\n), k"
        after, _ = port(module(text, forward))
        assert "return self.apply_rotary_emb(\n            q,  # packed\n            cos=angles,\n" in after


def test_what_a_person_should_look_at_is_said(port) -> None:
    helper = HELPERS["a torch function and CUDA's kernel in turn"]
    _, report = port(module(helper.text, helper.forward), "0.13")
    (safety,) = {rewrite.safety for rewrite in report.rewrites if "one call of" in rewrite.message}
    assert "cos and sin must be half the head size" in safety
    assert "vllm-ascend 0.13" in safety


class TestUrgency:
    """An error where the file fails at the target, a note where it runs as it did."""

    KERNEL = """\
def rotate(x, cos, sin, flash=False):
    if flash:
        from flash_attn.layers.rotary import apply_rotary_emb
        return apply_rotary_emb(x, cos, sin)
    return x.roll(1) * cos
"""

    def test_a_kernel_that_is_still_there(self, port) -> None:
        before = module(self.KERNEL, "return rotate(q, angles, angles), k")
        after, report = port(before)
        assert after == before
        assert [finding.severity for finding in findings(report)] == [Severity.NOTE]

    def test_a_kernel_chosen_by_what_attention_says(self, port) -> None:
        forward = "return rotate(q, angles, angles, self.is_flash_attn_backend), k"
        _, report = port(module(self.KERNEL, forward))
        assert [finding.severity for finding in findings(report)] == [Severity.WARNING]

    @pytest.mark.parametrize(("target", "expected"), [("0.13", []), ("0.14", [Severity.ERROR])])
    def test_an_op_built_while_the_model_runs(self, target: str, expected: list[Severity], port) -> None:
        forward = "return ApplyRotaryEmb()(q, angles.cos(), angles.sin()), k"
        _, report = port(module(f"from {COMMON} import ApplyRotaryEmb\n", forward), target)
        assert [finding.severity for finding in findings(report)] == expected

    def test_an_op_built_by_a_helper_moves_to_the_constructor(self, port) -> None:
        helper = f"from {COMMON} import ApplyRotaryEmb\n\n\n" + dedent("""\
            def rotate(q, k, cos, sin):
                op = ApplyRotaryEmb(enforce_enable=True, enable_fp32_compute=True)
                turn = op.forward_native
                return turn(q, cos, sin), turn(k, cos, sin)
            """)
        after, report = port(module(helper, "q, k = rotate(q, k, angles, angles)\nreturn q, k"), "0.14")
        assert not report.findings
        assert "q = self.apply_rotary_emb(q, angles, angles)" in after
        assert "def rotate" not in after

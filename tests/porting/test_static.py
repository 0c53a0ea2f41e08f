"""What can be said of a port without running it. Each file is right but for one line, and that line is named."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from porting.discovery import find_models
from porting.drawn_on import drawing_on, drawn_on
from porting.job import Job
from porting.levels import LEVELS, interfaces, static
from porting.matrix import Wishes, questions
from porting.result import Result, Status

ROOT = Path(__file__).parents[2]

RIGHT = """\
import torch
from torch import nn
from vllm.compilation.decorators import support_torch_compile
from vllm.distributed import tensor_model_parallel_all_gather
from vllm.model_executor.layers.attention import MMEncoderAttention
from vllm.model_executor.layers.linear import QKVParallelLinear
from vllm.model_executor.models.qwen2_vl import Qwen2VisionAttention
from vllm.model_executor.models.vision import get_vit_attn_backend
from vllm.v1.attention.backends.registry import AttentionBackendEnum


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, prefix: str = "") -> None:
        super().__init__()
        self.qkv = QKVParallelLinear(width, width // heads, heads, prefix=f"{prefix}.qkv")
        self.attn = MMEncoderAttention(num_heads=heads, head_size=width // heads, prefix=f"{prefix}.attn")

    def forward(self, x: torch.Tensor, cu_seqlens: torch.Tensor, max_seqlen: torch.Tensor | None) -> torch.Tensor:
        qkv, _ = self.qkv(x)
        q, k, v = qkv.chunk(3, dim=-1)
        return self.attn(query=q, key=k, value=v, cu_seqlens=cu_seqlens, max_seqlen=max_seqlen)


@support_torch_compile(dynamic_arg_dims={"x": 0, "cu_seqlens": 0})
class Block(nn.Module):
    def __init__(self, width: int, heads: int, prefix: str = "") -> None:
        super().__init__()
        self.attn = Attention(width, heads, prefix=f"{prefix}.attn")

    def forward(self, x: torch.Tensor, cu_seqlens: torch.Tensor, max_seqlen: torch.Tensor | None) -> torch.Tensor:
        return x + self.attn(x, cu_seqlens, max_seqlen)


class Tower(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attn_backend = get_vit_attn_backend(head_size=width // heads, dtype=torch.get_default_dtype())
        self.blocks = nn.ModuleList([Block(width, heads, prefix=f"blocks.{i}") for i in range(2)])

    def forward(self, x: torch.Tensor, cu_seqlens: torch.Tensor) -> torch.Tensor:
        max_seqlen = None
        if self.attn_backend in {
            AttentionBackendEnum.FLASH_ATTN,
            AttentionBackendEnum.ROCM_AITER_FA,
            AttentionBackendEnum.TRITON_ATTN,
        }:
            max_seqlen = (cu_seqlens[1:] - cu_seqlens[:-1]).max()
        for block in self.blocks:
            x = block(x, cu_seqlens, max_seqlen)
        return x
"""


def check(path: Path) -> Result:
    (result,) = static.run(Job(path, "static", dtype="", backend=""))
    return result


def write(folder: Path, text: str, name: str = "tower.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_right_port_passes_and_says_what_was_looked_at(tmp_path: Path) -> None:
    result = check(write(tmp_path, RIGHT))
    assert (result.status, result.numbers["problems"], result.notes) == (Status.PASSED, [], ())
    assert result.numbers["names"] == RIGHT.count("\nfrom vllm")


WRONG = {
    "a name that is gone": (
        "from vllm.compilation.decorators",
        "from vllm.attention.layer import MultiHeadAttention\nfrom vllm.compilation.decorators",
        "MultiHeadAttention",
    ),
    "a name that never was": (
        "import get_vit_attn_backend\n",
        "import get_vit_attn_backend, get_vit_orchard\n",
        "VA601: vllm.model_executor.models.vision.get_vit_orchard is not in vLLM 0.32.0",
    ),
    "a call with an argument of another release": (
        "head_size=width // heads, prefix=f",
        "head_size=width // heads, multimodal_config=None, prefix=f",
        "VA403 would still rewrite it",
    ),
    "a call that does not bind": (
        "QKVParallelLinear(width, width // heads, heads, prefix",
        "QKVParallelLinear(width, prefix",
        "this call of QKVParallelLinear does not fit vLLM 0.32.0",
    ),
    "a set of backends without Triton": (
        "            AttentionBackendEnum.TRITON_ATTN,\n",
        "",
        "VA305",
    ),
    "a subclass of the op": (
        "class Attention(nn.Module)",
        "class Masked(MMEncoderAttention):\n    pass\n\n\nclass Attention(nn.Module)",
        "Masked is a subclass of MMEncoderAttention",
    ),
    "an op built in forward": (
        "        qkv, _ = self.qkv(x)\n",
        "        self.attn = MMEncoderAttention(2, 80)\n        qkv, _ = self.qkv(x)\n",
        "MMEncoderAttention is built whenever Attention runs",
    ),
    "an op built in a method that forward calls": (
        "        qkv, _ = self.qkv(x)\n",
        "        return self.run(x)\n\n    def run(self, x):\n        self.attn = MMEncoderAttention(2, 80)\n"
        "        qkv, _ = self.qkv(x)\n        cu_seqlens = max_seqlen = None\n",
        "MMEncoderAttention is built whenever Attention runs",
    ),
    "a method of vLLM's own that gathers": (
        "q, k, v = qkv.chunk(3, dim=-1)",
        "q, k, v = Qwen2VisionAttention.split_qkv(self, qkv)",
        "not ported, VA644 would still rewrite it: Attention splits by Qwen2VisionAttention.split_qkv",
    ),
    "its own method that gathers": (
        "        q, k, v = qkv.chunk(3, dim=-1)",
        "        q, k, v = self.split(qkv)",
        "Attention projects by QKVParallelLinear and splits by self.split",
    ),
    "an argument left in a compile decorator": (
        '"cu_seqlens": 0}',
        '"cu_seqlens": 0, "seqlens": 0}',
        "support_torch_compile names 'seqlens', which Block.forward does not take",
    ),
}

SPLIT = """\
    def split(self, qkv: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tensor_model_parallel_all_gather(qkv).chunk(3, dim=-1)


@support_torch_compile("""


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_line_is_named(tmp_path: Path, fault: str) -> None:
    right, wrong, told = WRONG[fault]
    assert RIGHT.count(right) == 1
    text = RIGHT.replace(right, wrong)
    if "self.split" in wrong:
        text = text.replace("\n\n@support_torch_compile(", f"\n{SPLIT}", 1)
    result = check(write(tmp_path, text))
    assert result.status is Status.FAILED
    assert any(told in problem for problem in result.numbers["problems"]), result.numbers["problems"]


def test_the_line_is_that_of_the_fault(tmp_path: Path) -> None:
    right, wrong, _ = WRONG["an argument left in a compile decorator"]
    text = RIGHT.replace(right, wrong)
    line = next(number for number, line in enumerate(text.splitlines(), 1) if 'seqlens": 0, "seqlens' in line)
    assert check(write(tmp_path, text)).summary.startswith(f"tower.py:{line}: ")


def test_an_op_of_a_device_may_be_a_subclass(tmp_path: Path) -> None:
    text = RIGHT.replace(
        "class Attention(nn.Module)",
        "@MMEncoderAttention.register_oot\nclass Device(MMEncoderAttention):\n"
        "    def forward_oot(self, query, key, value, cu_seqlens=None, max_seqlen=None, sequence_lengths=None):\n"
        "        return query\n\n\nclass Attention(nn.Module)",
    )
    assert "is a subclass" not in str(check(write(tmp_path, text)).numbers["problems"])


def test_what_a_try_bears_is_no_fault(tmp_path: Path) -> None:
    text = "try:\n    from vllm.orchard import nothing\nexcept ImportError:\n    nothing = None\n"
    result = check(write(tmp_path, text + RIGHT))
    assert result.status is Status.PASSED


def test_a_fault_outside_the_tower_is_no_fault_of_the_tower(tmp_path: Path) -> None:
    text = RIGHT + (
        "\n\nfrom vllm.model_executor.models.interfaces import SupportsMultiModal\n\n\n"
        "class Model(nn.Module, SupportsMultiModal):\n"
        "    def forward(self, x):\n        return QKVParallelLinear(1)\n"
    )
    path = write(tmp_path, text)
    (tower,), (rest,) = static.run(Job(path, "static")), interfaces.run(Job(path, "interfaces"))
    assert (tower.status, rest.status) == (Status.PASSED, Status.FAILED)
    assert rest.summary.startswith("tower.py:")


@pytest.mark.parametrize("level", [static, interfaces])
def test_a_file_without_anything_to_hold_against_vllm_has_not_passed(tmp_path: Path, level: ModuleType) -> None:
    (result,) = level.run(Job(write(tmp_path, "x = 1\n"), "any"))
    assert result.status is Status.NOT_RUN


def test_a_tower_alone_has_no_whole_model_to_judge(tmp_path: Path) -> None:
    (result,) = interfaces.run(Job(write(tmp_path, RIGHT), "interfaces"))
    assert (result.status, result.summary) == (
        Status.NOT_RUN,
        "no class here plugs into vLLM as a whole model or a processor",
    )


@pytest.mark.parametrize("level", [static, interfaces])
@pytest.mark.parametrize("broken", ["tower.py", "blocks.py"])
def test_what_cannot_be_parsed_fails_in_one_line(tmp_path: Path, level: ModuleType, broken: str) -> None:
    """The file itself, or one of its package that it draws on; the line is the one that is wrong."""
    write(tmp_path, "", "__init__.py")
    write(tmp_path, "WIDTH = 80\n", "blocks.py")
    path = write(tmp_path, "from .blocks import WIDTH\n" + RIGHT)
    (tmp_path / broken).write_text('import os\nprint "Python 2"\n')
    if broken == "blocks.py":
        assert drawn_on(path)[-1].name == broken
    (result,) = level.run(Job(path, "any"))
    assert result.status is Status.FAILED
    assert result.summary.startswith(f"{broken}:2: cannot be parsed: Missing parentheses")
    assert result.summary.endswith("this looks like Python 2.")


def test_a_model_answers_for_the_files_it_draws_on(tmp_path: Path) -> None:
    package = tmp_path / "orchard"
    package.mkdir()
    write(package, "", "__init__.py")
    write(package, RIGHT.replace('"cu_seqlens": 0}', '"seqlens": 0}'), "blocks.py")
    model = write(package, "from vllm.config import VllmConfig\nfrom .blocks import Tower\n", "model.py")
    write(package, "import other\n", "not_imported.py")
    assert {path.name for path in drawn_on(model)} == {"__init__.py", "blocks.py"}
    assert "blocks.py:24:" in check(model).summary


def test_a_model_is_judged_beside_those_of_its_folder_that_draw_on_it() -> None:
    """`model.py` passes what `vision.py` no longer reads. Given alone it must stay; given both, it can go from both."""
    folder = ROOT / "examples" / "orchard_vl_plugin"
    stays = "model.py:32 passes it and is not among the given files"
    alone = check(folder / "orchard_vl" / "vision.py")
    assert any(stays in problem for problem in alone.numbers["problems"])
    asked = questions(find_models([folder], None, "0.32.0").models, LEVELS[:1], Wishes())
    for question in asked:
        (result,) = question.level.run(question.job)
        assert not any(stays in problem for problem in result.numbers["problems"])
    assert any("OrchardVisionTower.__init__: the parameter" in problem for problem in result.numbers["problems"])
    assert not any(problem.startswith("model.py") for problem in result.numbers["problems"])  # a model of its own


def test_what_draws_on_a_file_is_found_through_others_and_from_scripts(tmp_path: Path) -> None:
    package = tmp_path / "orchard"
    package.mkdir()
    files = {
        "__init__.py": "",
        "blocks.py": "",
        "tower.py": "from .blocks import Block\n",
        "model.py": "from orchard import tower\n",
        "text.py": "import json\n",
        "notes.ipynb": "{}",
    }
    for name, text in files.items():
        write(package, text, name)
    write(tmp_path, "import script\n", "caller.py")
    script = write(tmp_path, "", "script.py")
    found = drawing_on([package / "blocks.py"], [tmp_path])
    assert {path.name for path in found} == {"tower.py", "model.py"}
    assert [path.name for path in drawing_on([script], [tmp_path])] == ["caller.py"]
    assert drawing_on([package / "blocks.py"], []) == []


def test_the_example_plugin_fails_before_it_is_ported() -> None:
    result = check(ROOT / "examples" / "orchard_vl_plugin" / "orchard_vl" / "vision.py")
    assert result.status is Status.FAILED
    assert any("VA201 would still rewrite it" in problem for problem in result.numbers["problems"])

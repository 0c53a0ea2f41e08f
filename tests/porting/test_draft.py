"""The first draft of a family's file is one that builds and runs, or says what is missing in it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from porting.job import Job
from porting.result import Result, Status
from porting.towers import draft, drafting
from porting.towers.find import Found, make
from porting.towers.tower import SEVERAL, Shape, Tower, run

LENS = """
import torch
from torch import nn
from vllm.model_executor.layers.attention.mm_encoder_attention import MMEncoderAttention


class LensAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        heads, self.kv_heads = config.num_heads, config.num_key_value_heads
        self.sizes = [n * config.head_dim for n in (heads, self.kv_heads, self.kv_heads)]
        self.qkv = nn.Linear(config.hidden_size, sum(self.sizes))
        self.attn = MMEncoderAttention(heads, config.head_dim, num_kv_heads=self.kv_heads)

    def forward(self, x):
        return self.attn(*self.qkv(x).split(self.sizes, dim=-1))


class LensTower(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.patches = nn.Conv2d(config.num_channels, config.hidden_size, config.patch_size, config.patch_size)
        self.layers = nn.ModuleList(LensAttention(config) for _ in range(config.num_hidden_layers))
        self.gain = config.{own}

    def forward(self, pixel_values):
        x = self.patches(pixel_values).flatten(2).transpose(1, 2)
        for layer in self.layers:
            x = x + layer(x)
        return x
"""


@pytest.fixture
def drafted(groups: None, tmp_path: Path):
    def of(own: str) -> Result:
        path = tmp_path / "lens.py"
        path.write_text(LENS.format(own=own))
        (result,) = drafting.run(Job(path, "draft"))
        return result

    return of


def test_a_draft_is_a_family_that_builds_and_runs_in_every_shape(drafted, tmp_path: Path) -> None:
    result = drafted("pupil_factor")
    assert result.status is Status.PASSED
    written: dict[str, object] = {}
    exec(result.numbers["draft"], written)
    tower = written["TOWER"]
    assert isinstance(tower, Tower)
    assert (tower.family, tower.classes, tower.sizes, tower.grouped_query) == ("lens", ("LensTower",), False, True)
    from porting.model_file import load

    found = Found(load(tmp_path / "lens.py").LensTower, tower)
    for shape in (Shape(head_dim=72), Shape(heads=4, kv_heads=2)):
        output = run(make(found, shape, torch.float32), found.inputs(shape, SEVERAL, torch.float32))
        assert output.shape == (3, 64, shape.hidden_size)


def test_what_nobody_knows_is_left_open_in_the_draft(drafted) -> None:
    result = drafted("iris")
    assert result.status is Status.FAILED
    assert '"iris": ...,  # nothing is known of it' in result.numbers["draft"]
    assert "LensTower reads `iris`" in result.summary


def test_the_command_wants_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        draft.main([str(tmp_path / "no.py")])
    assert ended.value.code == 2
    assert "is no file; give the file that defines the tower" in capsys.readouterr().err


def test_the_command_prints_the_draft(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "vision.py"
    path.write_text(LENS.format(own="pupil_factor"))
    assert draft.main([str(path)]) == draft.RUNS
    printed = capsys.readouterr()
    assert 'classes=("LensTower",)' in printed.out
    assert "LensTower: builds and runs" in printed.err

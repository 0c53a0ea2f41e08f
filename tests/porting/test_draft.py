"""The first draft of a family's file is one that builds and runs, or says what is missing in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from porting.job import Job
from porting.result import Result, Status
from porting.towers import draft, drafting
from porting.towers.find import Found, UnknownTower, find, make
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

# A tower whose constructor takes sizes, and no configuration.
PLAIN = """
import torch
from torch import nn
from vllm.model_executor.layers.attention.mm_encoder_attention import MMEncoderAttention


class KelpAttention(nn.Module):
    def __init__(self, girth, tentacles):
        super().__init__()
        self.qkv = nn.Linear(girth, 3 * girth)
        self.attn = MMEncoderAttention(tentacles, girth // tentacles)

    def forward(self, x):
        return self.attn(*self.qkv(x).chunk(3, dim=-1))


class KelpTower(nn.Module):
    def __init__(self, girth, tentacles, storeys, patch_size=14):
        super().__init__()
        self.patches = nn.Conv2d(3, girth, patch_size, patch_size)
        self.layers = nn.ModuleList(KelpAttention(girth, tentacles) for _ in range(storeys))

    def forward(self, pixel_values):
        assert pixel_values.shape[-1] % self.patches.stride[0] == 0
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


def test_parameters_of_which_nobody_knows_are_left_open_in_the_draft(groups: None, tmp_path: Path) -> None:
    path = tmp_path / "kelp.py"
    path.write_text(PLAIN)
    (result,) = drafting.run(Job(path, "draft"))
    assert result.status is Status.FAILED
    for name in ("girth", "tentacles", "storeys"):
        assert f'"{name}": ...,  # nothing is known of it' in result.numbers["draft"]
    assert '"patch_size": 4,' in result.numbers["draft"]
    assert "fill in what the draft leaves open (KelpTower is constructed with `girth`, `tentacles`" in result.summary


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            None,
            "KelpTower is constructed with `girth`, `tentacles` and `storeys`, of which nothing is known; give a tiny",
        ),
        ({}, "KelpTower is constructed with `girth`, `tentacles` and `storeys`, which kelp.json does not have"),
        ({"girth": 64}, "KelpTower is constructed with `tentacles` and `storeys`, which kelp.json does not have"),
        ({"girth": 64, "storeys": 2}, "KelpTower is constructed with `tentacles`, which kelp.json does not have"),
    ],
)
def test_what_is_missing_of_a_constructor_is_named(groups: None, tmp_path: Path, given: object, told: str) -> None:
    with pytest.raises(UnknownTower) as unknown:
        kelp(tmp_path, given)
    assert str(unknown.value).startswith(told)
    assert ("--config" in str(unknown.value)) is (given is None)


def test_values_of_a_constructor_are_all_that_it_takes(groups: None, tmp_path: Path) -> None:
    """Pictures go by the class's own size of patches, or by a given one; the rest of them is made up, and said."""
    sizes = {"girth": 64, "tentacles": 2, "storeys": 2}
    for more, side in ({}, 14), ({"patch_size": 7}, 7), ({"image_size": 28}, 3.5):
        found = kelp(tmp_path, {**sizes, **more})
        pictures = found.inputs(found.shape, SEVERAL, torch.float32)
        assert pictures.args[0].shape == (3, 3, 8 * side, 8 * side)
        assert run(make(found, found.shape, torch.float32), pictures).shape[-1] == 64
        assert ("image_size=" in str(found.notes)) is ("image_size" not in more)
        assert "in_channels=3" in str(found.notes)


def test_a_value_that_does_not_fit_is_said_of_the_file_that_has_it(groups: None, tmp_path: Path) -> None:
    with pytest.raises(
        UnknownTower, match=r"KelpTower cannot be built: ZeroDivisionError.*in kelp\.json, or add a fam"
    ):
        kelp(tmp_path, {"girth": 64, "tentacles": 0, "storeys": 2})


def kelp(folder: Path, given: object) -> Found:
    from porting.model_file import load

    (folder / "kelp.py").write_text(PLAIN)
    config = folder / "kelp.json"
    config.write_text(json.dumps(given))
    (found,) = find(load(folder / "kelp.py"), None if given is None else config)
    return found


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

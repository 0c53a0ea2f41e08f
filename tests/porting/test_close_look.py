"""Figures of a tower, before and after its port: a right port looks as its original does, a wrong one stands out."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from codemods.trial import Trial
from porting.close_look import cost, errors
from porting.job import Job
from porting.result import Status

EXAMPLE = Path(__file__).parents[2] / "examples" / "orchard_vl_plugin" / "orchard_vl"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's package, ported."""
    folder = tmp_path_factory.mktemp("close_look")
    before = shutil.copytree(EXAMPLE, folder / "before" / "orchard_vl", ignore=shutil.ignore_patterns("__pycache__"))
    return Trial(before, "0.32").write(folder / "after").place


def job(port: Path, dtype: str) -> Job:
    before = port.parents[1] / "before" / "orchard_vl" / "vision.py"
    return Job(port / "vision.py", "errors", before=before, dtype=dtype)


@pytest.mark.usefixtures("groups")
def test_a_right_port_errs_as_its_original_does(port: Path):
    (found,) = errors.run(job(port, "bfloat16"))
    assert found.status is Status.PASSED, found.summary
    numbers = found.numbers
    assert 0 < numbers["largest error after"] == numbers["largest error before"] < 0.04
    assert all(row["before"] == row["after"] > 0 for row in numbers["layers"])
    assert {"patch_embed", "blocks.0", "blocks.1", "the tower"} <= {row["layer"] for row in numbers["layers"]}
    tokens = errors.PICTURE.patches // 4
    assert sum(row["after"] for row in numbers["histogram"]) % tokens == 0
    assert [(each["side"], len(each["errors"]), len(each["errors"][0])) for each in numbers["heat maps"]] == [
        ("before", 8, 12),
        ("after", 8, 12),
    ]


@pytest.mark.usefixtures("groups")
def test_a_wrong_port_stands_out_in_the_layer_that_is_wrong(port: Path, tmp_path: Path):
    wrong = shutil.copytree(port.parents[1], tmp_path / "wrong") / "after" / "orchard_vl"
    file = wrong / "vision.py"
    text = file.read_text(encoding="utf-8")
    assert "return x + self.mlp(normed)" in text
    file.write_text(text.replace("return x + self.mlp(normed)", "return x + 1.5 * self.mlp(normed)"), encoding="utf-8")
    (found,) = errors.run(job(wrong, "float32"))
    layers = {row["layer"]: row for row in found.numbers["layers"]}
    assert layers["patch_embed"]["after"] == layers["patch_embed"]["before"]
    assert layers["blocks.0"]["after"] > 1000 * layers["blocks.0"]["before"]
    assert found.numbers["largest error after"] > 0.01


@pytest.mark.usefixtures("groups")
def test_both_sides_are_measured(port: Path):
    (found,) = cost.run(job(port, "float32"))
    assert [row["tower"] for row in found.numbers["cost"]] == ["before", "after"]
    assert all(row["milliseconds"] > 0 and row["peak MiB"] > 1 for row in found.numbers["cost"])


def test_the_peak_is_the_most_that_is_held_at_a_time():
    def call() -> None:
        for _ in range(3):
            a = torch.ones(2**20)  # 4 MiB each, two at a time
            (a + 1).sum()
            del a

    assert cost.peak_memory(call, "cpu") == pytest.approx(8 * cost.MIB, rel=0.01)

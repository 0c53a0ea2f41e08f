"""A shared attention on two ranks: the example as it is, and as it is ported."""

from __future__ import annotations

from pathlib import Path

import pytest

from codemods.trial import Trial
from porting.job import Job
from porting.result import Result, Status
from porting.shared_attention import trials

EXAMPLE = Path(__file__).parents[2] / "examples" / "shared_attention" / "shared_attention.py"
NPU, STRICT, ONE = "a device that says it is an NPU", "strict collectives", "two ranks against one"


def tried(path: Path, config: Path | None = None) -> dict[str, Result]:
    job = Job(path, "shared", config=config, dtype="", backend="")
    return {result.backend: result for result in trials.run(job)}


@pytest.mark.usefixtures("no_groups")
def test_the_example_holds_both_faults_and_computes_right(tmp_path: Path):
    found = tried(EXAMPLE, tmp_path / "model_index.json")
    assert {name: result.status for name, result in found.items()} == {
        NPU: Status.FAILED,
        STRICT: Status.FAILED,
        ONE: Status.PASSED,
        "pictures": Status.NOT_RUN,
    }
    assert "'PictureAttention' object is not callable" in found[NPU].summary
    assert "must be contiguous" in found[STRICT].summary
    assert found["pictures"].summary == "none is drawn while a trial above fails"


@pytest.mark.usefixtures("no_groups")
def test_the_port_mends_both(tmp_path: Path):
    found = tried(Trial(EXAMPLE, "0.32").write(tmp_path).place)
    assert {result.status for result in found.values()} == {Status.PASSED}
    assert found[STRICT].summary == "4 calls of all_to_all, all of contiguous memory"


@pytest.mark.usefixtures("no_groups")
def test_a_wrong_exchange_is_seen(tmp_path: Path):
    path = tmp_path / "wrong.py"
    text = EXAMPLE.read_text(encoding="utf-8")
    path.write_text(text.replace("return torch.cat(received, dim=2)", "return torch.cat(received[::-1], dim=2)"))
    assert tried(path)[ONE].status is Status.FAILED


def test_a_file_without_the_class_is_said(tmp_path: Path):
    path = tmp_path / "other.py"
    path.write_text("import torch\n")
    (found,) = tried(path).values()
    assert (found.status, found.summary) == (
        Status.NOT_RUN,
        "other.py has no class SharedAttention: give a file that has one",
    )

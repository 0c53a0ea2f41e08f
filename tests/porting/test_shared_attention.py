"""A shared attention on two ranks: the example as it is, and as it is ported."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from codemods.trial import Trial
from porting.job import Job
from porting.result import Result, Status
from porting.shared_attention import trials
from porting.shared_attention.pictures import NotShared

EXAMPLE = Path(__file__).parents[2] / "examples" / "shared_attention" / "shared_attention.py"
NPU, STRICT, ONE = "a device that says it is an NPU", "strict collectives", "two ranks against one"


def tried(path: Path, pipeline: Path | None = None) -> dict[str, Result]:
    job = Job(path, "shared", pipeline=pipeline, dtype="", backend="")
    return {result.backend: result for result in trials.run(job)}


@pytest.mark.usefixtures("no_groups")
def test_the_example_holds_both_faults_and_computes_right(tmp_path: Path):
    found = tried(EXAMPLE, tmp_path)
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
def test_a_pipeline_whose_tokens_cannot_be_shared_is_not_drawn_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def drawn(folder: Path, cls: type | None, rank: int, ranks: int, rendezvous: Path | None):
        if cls is not None:
            raise NotShared("2 ranks cannot share 33 tokens equally")
        return torch.zeros(4, 4, 3), {}

    monkeypatch.setattr(trials, "drawn", drawn)
    found = tried(Trial(EXAMPLE, "0.32").write(tmp_path).place, tmp_path)
    assert (found["pictures"].status, found["pictures"].summary) == (
        Status.NOT_RUN,
        "2 ranks cannot share 33 tokens equally",
    )


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

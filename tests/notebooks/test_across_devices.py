"""The panels about devices: the memory of a tensor as PyTorch has it, and the trials beside each other."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from pathlib import Path

import pytest
import torch

from porting.job import Job
from porting.levels import Level
from porting.result import Result, Status
from porting.widgets import across_devices
from porting.widgets.bench import Bench
from porting.widgets.memory import NAMES, SHAPE, Memory, chunk, is_run, strides
from porting.widgets.panel import Line
from porting.widgets.trials import Trials

ROOT = Path(__file__).parents[2]
PIXELS = [[[255, 0, 0], [0, 255, 0]], [[0, 0, 255], [0, 0, 0]]]


class Runner:
    """The original fails one trial, the port none, and draws."""

    def submit(self, level: Level, job: Job) -> Future[list[Result]]:
        future: Future[list[Result]] = Future()
        ported = "ported" in job.path.parts
        status = Status.PASSED if ported else Status.FAILED
        results = [job.result(status, "said of strict", backend="strict collectives")]
        if ported:
            numbers = {"pictures": {"one rank": PIXELS, "two ranks": PIXELS}}
            results.append(job.result(Status.PASSED, "drawn", backend="pictures", numbers=numbers))
        future.set_result(results)
        return future

    def __exit__(self, *_: object) -> None:
        """Nothing runs."""


@pytest.mark.parametrize("dimension", range(4))
def test_memory_is_drawn_as_pytorch_lays_it_out(dimension: int):
    whole = torch.arange(torch.Size(SHAPE).numel()).view(SHAPE)
    part = whole.chunk(2, dim=dimension)[0]
    assert strides(SHAPE) == whole.stride()
    assert chunk(SHAPE, dimension, 2) == part.flatten().tolist()
    assert is_run(chunk(SHAPE, dimension, 2)) == part.is_contiguous()


def test_gaps_are_told_in_words_and_go_with_contiguous():
    panel = Memory()
    assert panel.dimension.label == "heads"
    assert "It has gaps" in panel._shown.value
    assert panel._shown.value.count('class="theirs"') == 32
    panel.contiguous.value = True
    assert "It lies in one run" in panel._shown.value
    assert "theirs" not in panel._shown.value


def test_another_dimension_is_another_drawing():
    panel = Memory()
    panel.dimension.value = NAMES.index("batch")
    assert "It lies in one run" in panel._shown.value


def test_trials_stand_before_beside_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shared.py").write_bytes((ROOT / "examples/shared_attention/shared_attention.py").read_bytes())
    bench = Bench()
    bench._runner = Runner()  # type: ignore[assignment]
    panel = Trials(bench, bench.take(Path("shared.py"), Path("ported")), None)
    asyncio.run(panel.work.done())
    assert panel.work.said == "before: 0 of 1 pass, after: 2 of 2 pass"
    assert '<span class="failed">FAIL</span> <!--rounding-->said of strict' in panel.story()
    assert panel.story().count("<img") == 2


def test_a_pipeline_that_is_none_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shared.py").touch()
    said = asyncio.run(across_devices.trials("shared.py", "nowhere", "ported"))
    assert isinstance(said, Line)
    assert said.text.startswith("nowhere has no model_index.json")

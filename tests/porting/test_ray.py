"""Ray in place of this machine's own processes: same results, same order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from porting.discovery import Model
from porting.levels import Level
from porting.matrix import Runner, Wishes, ask, questions
from porting.processes.limits import Limits
from porting.processes.local import LocalRunner
from porting.result import Result, Status

LEVELS = (
    Level("load", "", "tests.porting.answering", (), (), needs_vllm=False, fresh=True),
    Level("parity", "", "tests.porting.answering", after=("load",), needs_vllm=False),
)
LIMITS = Limits(seconds=20)

TEXTS = {
    "good": "return [job.result(Status.PASSED, 'equal', numbers={'difference': 0.0, 'nan': float('nan')})]",
    "slow": "time.sleep(1); return [job.result(Status.PASSED, 'equal')]",
    "dead": "os.abort()",
    "hang": "time.sleep(1000)",
}


@pytest.fixture
def models(tmp_path: Path) -> list[Model]:
    made = []
    for name, body in TEXTS.items():
        path = tmp_path / f"{name}.py"
        path.write_text(f"import os, time\nfrom porting.result import Status\ndef answer(job):\n    {body}\n")
        made.append(Model(path, name))
    return made


@pytest.fixture(scope="module")
def cluster() -> Iterator[Runner]:
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    from porting.processes.on_ray import RayRunner

    with RayRunner(replace(LIMITS, seconds=3), jobs=2, device="cpu") as runner:
        yield runner
    assert not ray.is_initialized()


def answers(models: list[Model], runner: Runner) -> list[Result]:
    asked = questions(models, LEVELS, Wishes())
    answered = ask(asked, runner, lambda question, results: None)
    return [replace(result, seconds=0.0) for _, results in answered for result in results]


def test_the_results_are_those_of_this_machine_in_the_same_order(models: list[Model], cluster: Runner) -> None:
    with LocalRunner(replace(LIMITS, seconds=3), 2) as runner:
        here = answers(models, runner)
    there = answers(models, cluster)
    assert str(there) == str(here)  # not-a-number is not equal to itself
    assert [result.status for result in here] == [
        *(Status.PASSED, Status.PASSED) * 2,
        *(Status.ERROR, Status.NOT_RUN),
        *(Status.TIMED_OUT, Status.NOT_RUN),
    ]


def test_the_device_is_that_of_a_worker(cluster: Runner) -> None:
    device = cluster.device("cpu")
    assert device.type == "cpu"
    assert "float32" in device.dtypes


def test_what_a_worker_lacks_is_told_as_here(cluster: Runner) -> None:
    from porting.wrong_environment import WrongEnvironment

    with pytest.raises(WrongEnvironment, match="no device of the type 'npu'"):
        cluster.device("npu")

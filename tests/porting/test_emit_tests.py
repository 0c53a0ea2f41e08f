"""The tests that a plugin team is given: they run, they can fail, and they say what did not run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from porting.discovery import Model
from porting.emit_tests import emit_tests
from porting.levels import LEVELS
from porting.matrix import Question, Wishes, questions
from porting.result import Result, Status
from porting.testing import judged

ROOT = Path(__file__).parents[2]

Answers = list[tuple[Question, Sequence[Result]]]


@pytest.fixture
def model(tmp_path: Path) -> Model:
    """A port and its original, each in a package."""
    for folder in ("new", "old"):
        package = tmp_path / folder / "orchard"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "vision.py").write_text("from .layout import cells\n")
        (package / "layout.py").write_text("cells = 1\n")
    return Model(tmp_path / "new/orchard/vision.py", "vision", tmp_path / "old/orchard/vision.py")


def answered(model: Model, statuses: dict[str, Status]) -> Answers:
    asked = questions([model], LEVELS, Wishes())
    return [(q, [q.job.result(statuses.get(q.level.name, Status.PASSED), "why")]) for q in asked]


def test_a_file_asks_each_level_that_could_be_asked_with_what_it_was_asked(model: Model, tmp_path: Path) -> None:
    (path,) = emit_tests(tmp_path / "tests", answered(model, {}))
    text = path.read_text()
    assert path.name == "test_vision.py"
    assert 'MODEL = HERE / "../new/orchard/vision.py"' in text
    assert '@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])' in text
    assert '@pytest.mark.parametrize("backend", ["flash", "triton", "npu"])' in text
    assert 'prove(MODEL, "embeddings", before=BEFORE)' in text


def test_the_original_goes_along_with_what_it_draws_on(model: Model, tmp_path: Path) -> None:
    emit_tests(tmp_path / "tests", answered(model, {}))
    copied = {str(p.relative_to(tmp_path / "tests")) for p in (tmp_path / "tests").rglob("originals/**/*.py")}
    assert copied == {f"originals/orchard/{name}.py" for name in ("__init__", "layout", "vision")}


def test_what_could_not_be_asked_here_is_left_out(model: Model, tmp_path: Path) -> None:
    (path,) = emit_tests(tmp_path / "tests", answered(model, {"parity": Status.NOT_RUN, "paths": Status.FAILED}))
    assert '"parity"' not in path.read_text()
    assert '"paths"' in path.read_text()


def test_a_model_of_which_nothing_could_be_asked_has_no_tests(model: Model, tmp_path: Path) -> None:
    statuses = dict.fromkeys(("parity", "paths", "embeddings"), Status.NOT_RUN)
    assert emit_tests(tmp_path / "tests", answered(model, statuses)) == []


@pytest.mark.parametrize(
    ("statuses", "end"),
    [
        ([Status.PASSED, Status.NOT_RUN], None),
        ([Status.PASSED, Status.FAILED], pytest.fail.Exception),
        ([Status.ERROR], pytest.fail.Exception),
        ([Status.TIMED_OUT], pytest.fail.Exception),
        ([Status.NOT_RUN], pytest.skip.Exception),
    ],
)
def test_how_a_test_ends(statuses: list[Status], end: type[BaseException] | None) -> None:
    results = [Result("m", "paths", status, f"it is {status.value}") for status in statuses]
    if end is None:
        assert judged(results) == results
    else:
        with pytest.raises(end, match=f"it is {statuses[-1].value}"):
            judged(results)


# Levels that the files themselves answer, and a device that is not looked for.
STAND_IN = """\
from dataclasses import replace

from porting import device, testing

OURS = {"module": "tests.porting.answering", "needs_vllm": False, "fresh": True}
testing.LEVELS = tuple(replace(level, **OURS) for level in testing.LEVELS)
testing.attached = lambda wanted: device.processor()
"""


def test_what_is_written_runs_and_can_fail(model: Model, tmp_path: Path) -> None:
    tests = tmp_path / "tests"
    for status in (Status.PASSED, Status.FAILED, Status.NOT_RUN):
        path = model.path.with_name(f"{status.name.lower()}.py")
        answer = f"return [job.result(Status.{status.name}, '{status.name} beside ' + str(job.before))]"
        path.write_text(f"from porting.result import Status\ndef answer(job):\n    {answer}\n")
        emit_tests(tests, answered(replace(model, path=path, name=path.stem), {}))
    (tests / "conftest.py").write_text(STAND_IN)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", tests],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    original = tests / "originals" / "orchard" / "vision.py"
    assert "7 failed, 7 passed, 7 skipped" in done.stdout.splitlines()[-1], done.stdout
    assert done.stdout.count(f"failed: FAILED beside {original}") == 4  # paths has no original: three of the seven
    assert f"NOT_RUN beside {original}" in done.stdout

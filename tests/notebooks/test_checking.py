"""The panels that run models, over a runner that answers at once: what is filled in, clicked, stopped, taken away."""

from __future__ import annotations

import asyncio
import shutil
import threading
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any

import pytest

from porting.device import Device
from porting.job import Job
from porting.levels import Level
from porting.result import Result, Status
from porting.widgets import checking, close_look
from porting.widgets.bench import Bench
from porting.widgets.matrix import Matrix
from porting.widgets.panel import Line
from porting.widgets.results import Results

ROOT = Path(__file__).parents[2]
LEVELS = ("static", "load", "build", "parity")
GRID = [[0.0, 0.5], [0.25, 1.0]]
ERRORS = {
    "histogram": [{"error": "0", "before": 3, "after": 3}, {"error": "up to 1e-6", "before": 1, "after": 1}],
    "layers": [
        {"layer": "blocks.0", "before": 1e-7, "after": None},
        {"layer": "the tower", "before": 1e-7, "after": 2e-7},
    ],
    "heat maps": [{"side": "before", "picture": 0, "errors": GRID}, {"side": "after", "picture": 0, "errors": GRID}],
}
COST = {"cost": [{"tower": "before", "milliseconds": 2.0, "peak MiB": 3.0}]}


class Runner:
    """Answers at once; `faults` are levels that fail, at `stuck` it waits until it is left."""

    def __init__(self, faults: tuple[str, ...] = (), stuck: str = "") -> None:
        self.faults, self.stuck = faults, stuck
        self.reached, self.left = threading.Event(), threading.Event()

    def __exit__(self, *_: object) -> None:
        self.left.set()

    def device(self, wanted: str) -> Device:
        return Device("cpu", "CPU", "a processor", None, ("float32",))

    def submit(self, level: Level, job: Job) -> Future[list[Result]]:
        future: Future[list[Result]] = Future()
        if level.name == self.stuck:
            self.reached.set()
            threading.Thread(target=lambda: (self.left.wait(), future.set_exception(CancelledError()))).start()
            return future
        numbers: dict[str, Any] = {"errors": ERRORS, "cost": COST}.get(level.name, {"difference": 0.5, "map": GRID})
        status = Status.FAILED if level.name in self.faults else Status.PASSED
        future.set_result([job.result(status, f"said of {level.name}", numbers=numbers)])
        return future


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A bench on which the example is taken, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples/orchard_vl_plugin/orchard_vl", "models", ignore=shutil.ignore_patterns("__*__"))
    bench = Bench()
    bench.take(Path("models"), Path("ported"))
    return bench


def checked(bench: Bench, runner: Runner) -> Matrix:
    bench._runner = runner  # type: ignore[assignment]
    matrix = Matrix(bench, LEVELS, ["float32"])
    asyncio.run(matrix.work.done())
    return matrix


def test_a_port_is_made_once_and_then_kept(bench: Bench):
    assert "MMEncoderAttention" in Path("ported/models/attention.py").read_text()
    Path("ported/models/attention.py").write_text("# mine\n")
    bench.take(Path("models"), Path("ported"))
    assert Path("ported/models/attention.py").read_text() == "# mine\n"


def test_every_question_has_a_cell_that_says_how_it_ended(bench: Bench):
    matrix = checked(bench, Runner())
    assert {row for _, row in matrix.cells} == {"static", "load", "build fp32", "parity fp32"}
    assert {button.description for button in matrix.cells.values()} == {"pass"}
    assert all("passed" in button._dom_classes for button in matrix.cells.values())
    assert matrix.work.said.startswith("no fault found")


def test_a_fault_is_never_green(bench: Bench):
    matrix = checked(bench, Runner(faults=("build",)))
    failed, moot = matrix.cells["vision", "build fp32"], matrix.cells["vision", "parity fp32"]
    assert (failed.description, moot.description) == ("FAIL", "not run")
    assert "failed" in failed._dom_classes
    assert "passed" not in {*failed._dom_classes, *moot._dom_classes}
    assert "not asked: build found a fault" in matrix.story()
    assert matrix.work.said.startswith("FAULTS FOUND")


def test_a_cell_leads_to_its_numbers(bench: Bench):
    matrix = checked(bench, Runner())
    matrix.cells["vision", "parity fp32"].click()
    assert "said of parity" in matrix._numbers.value
    assert "<svg" in matrix._numbers.value
    assert "difference" in matrix._numbers.value


def stuck(bench: Bench) -> tuple[Runner, Matrix]:
    """A check that has come to a level, and goes no further until its runner is left."""
    runner = Runner(stuck="load")
    bench._runner = runner  # type: ignore[assignment]
    matrix = Matrix(bench, LEVELS, ["float32"])
    runner.reached.wait()
    return runner, matrix


def test_stop_ends_what_runs_and_says_how_far_it_came(bench: Bench):
    runner, matrix = stuck(bench)
    matrix.work.stop.click()
    asyncio.run(matrix.work.done())
    assert runner.left.is_set()
    assert "questions were answered. No process is left." in matrix.work.said
    assert matrix.report is None


def test_after_a_stop_it_can_be_asked_again(bench: Bench):
    _, matrix = stuck(bench)
    matrix.work.stop.click()
    asyncio.run(matrix.work.done())
    bench._runner = Runner()  # type: ignore[assignment]
    matrix.again.click()
    asyncio.run(matrix.work.done())
    assert matrix.work.said.startswith("no fault found")


def test_errors_are_drawn_before_beside_after(bench: Bench):
    checked(bench, Runner())
    panel = close_look.errors(bench, dtype="float32")
    asyncio.run(panel.work.done())
    assert panel.model.value == "model"
    assert panel.story().count("<svg") == 2
    assert "up to 1e-6" in panel.story()
    assert "<td>none</td>" in panel.story()


def test_what_a_clock_says_is_not_kept(bench: Bench):
    checked(bench, Runner())
    panel = close_look.cost(bench)
    asyncio.run(panel.work.done())
    assert "<!--varies-->2.00 ms<!--/varies-->" in panel.story()


def test_the_report_is_saved_and_the_text_can_be_copied(bench: Bench):
    checked(bench, Runner())
    panel = Results(bench, Path("ported"))
    assert "said of parity" in Path("ported/models.check.html").read_text()
    assert (
        "vitport-check ported/models --before models --levels static,load,build,parity --dtype float32"
        in panel.area.value
    )
    assert "a processor" not in panel.story()


def test_a_report_that_cannot_be_written_is_said(bench: Bench):
    checked(bench, Runner())
    Path("a_file").touch()
    assert "cannot be written" in Results(bench, Path("a_file")).said


def test_steps_out_of_order_are_one_line_each(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checking, "bench", Bench())
    awaited = checking.matrix(["static"]), checking.errors(), checking.cost()
    said = [*map(asyncio.run, awaited), checking.results()]
    assert all(isinstance(line, Line) for line in said)
    assert said[0].text == "no port is chosen yet: run the cell that takes one, above"


def test_models_that_are_missing_are_said(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checking, "bench", bench)
    assert checking.take("missing").text == "missing: no such file or folder; check the path"


def test_a_folder_without_a_model_is_said(bench: Bench):
    Path("texts").mkdir()
    Path("texts/words.py").write_text("WORDS = ()\n")
    bench.take(Path("texts"), Path("ported"))
    assert checked(bench, Runner()).work.said == "no model with vision attention in ported/texts: choose other models"


def test_a_level_that_is_not_is_said(bench: Bench):
    bench._runner = Runner()  # type: ignore[assignment]
    matrix = Matrix(bench, ["statics"], [])
    asyncio.run(matrix.work.done())
    assert matrix.work.said == "there is no level statics"


def test_without_a_vllm_the_remedy_is_said(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("porting.surroundings.importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(checking, "bench", Bench())
    said = checking.take("models")
    assert isinstance(said, Line)
    assert said.text.startswith("torch is not installed, which notebooks that run models need: install vitport[cpu]")
    assert said.text.endswith("make notebooks VLLM_PYTHON=PATH, or first make vllm")

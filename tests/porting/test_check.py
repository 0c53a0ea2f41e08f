"""The command from outside: exit codes, what is asked of whom, what is told. The levels here do what the file says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import pytest

from porting import arguments, check
from porting.levels import Level
from porting.matrix import Wishes, questions

ROOT = Path(__file__).parents[2]

# As the real ones, but answered by the files themselves, and nothing is needed for them.
LEVELS = (
    Level("static", "Does it fit?", "tests.porting.answering", dtypes=(), backends=(), needs_vllm=False, fresh=True),
    Level("load", "Does it import?", "tests.porting.answering", dtypes=(), backends=(), needs_vllm=False, fresh=True),
    Level(
        "parity", "Is it equal?", "tests.porting.answering", ("float32", "bfloat16"), after=("load",), needs_vllm=False
    ),
    Level("paths", "Are kernels called?", "tests.porting.answering", backends=("flash", "npu"), needs_vllm=False),
    Level("serve", "Does it serve?", "tests.porting.not_there", needs_vllm=False),
)

Answer = "def answer(job):\n    from porting.result import Status\n"
GOOD = Answer + "    return [job.result(Status.PASSED, 'as it should be', numbers={'difference': 0.0})]\n"
WRONG = Answer + textwrap.indent(
    """\
if job.level == 'parity':
    return [job.result(Status.FAILED, 'differs', numbers={'difference': 1.5, 'by patch': [[0.0, 1.5], [0.5, 0.0]]})]
return [job.result(Status.PASSED, 'as it should be')]
""",
    "    ",
)
UNLOADED = Answer + "    return [job.result(Status.FAILED if job.level == 'load' else Status.PASSED, 'no such name')]\n"
DEAD = "def answer(job):\n    import os\n    os.abort()\n"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """The command with LEVELS in place of the real ones: exit code, standard output, error stream."""
    for module in (arguments, check):
        monkeypatch.setattr(module, "LEVELS", LEVELS)
    monkeypatch.chdir(tmp_path)

    def command(*argv: str) -> tuple[int, str, str]:
        try:
            code = check.main(argv)
        except SystemExit as end:
            code = int(end.code or 0)
        return code, *capsys.readouterr()

    return command


def write(name: str, text: str = GOOD) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def rows(shown: str) -> dict[str, list[str]]:
    """The matrix at the end of the report: model -> cells."""
    _, _, table = shown.partition("model ")
    body = table.partition("device ")[0].splitlines()[3:]
    return {line.split()[0]: line.replace("not run", "not-run").split()[1:] for line in body if line.strip()}


# -- exit codes ------------------------------------------------------------------------------------------------------


def test_all_well_is_0_and_what_did_not_run_is_said(run: Run) -> None:
    write("good.py")
    code, shown, _ = run("good.py")
    assert code == 0
    assert rows(shown) == {"good": ["pass", "pass", "pass", "pass", "pass", "pass", "not-run"]}
    assert "NOT RUN  this vitport has no level 'serve': good serve native float32" in shown
    assert "no fault found: 6 passed, 1 not run" in shown


@pytest.mark.parametrize(
    ("text", "cells", "told"),
    [
        (WRONG, ["pass", "pass", "FAIL", "FAIL", "pass", "pass", "not-run"], "differs\n    difference 1.5"),
        (UNLOADED, ["pass", "FAIL", "not-run", "not-run", "pass", "pass", "not-run"], "not asked: load found a fault"),
        (DEAD, ["ERROR", "ERROR", "not-run", "not-run", "ERROR", "ERROR", "not-run"], "the process died of SIGABRT"),
    ],
)
def test_a_fault_is_1_and_no_other_model_suffers(run: Run, text: str, cells: Sequence[str], told: str) -> None:
    write("bad.py", text)
    write("good.py")
    code, shown, _ = run("bad.py", "good.py", "--jobs", "2")
    assert code == 1
    assert rows(shown)["bad"] == cells
    assert rows(shown)["good"] == ["pass"] * 6 + ["not-run"]
    assert told in shown
    assert "FAULTS FOUND" in shown


def test_a_hang_is_1(run: Run) -> None:
    write("hang.py", "import time\ndef answer(job):\n    time.sleep(1000)\n")
    code, shown, _ = run("hang.py", "--levels", "static", "--timeout", "1")
    assert code == 1
    assert "TIMED OUT  hang static\n    no answer within 1 s; it was in answer (hang.py:3)" in shown


def test_to_have_proved_nothing_is_1(run: Run) -> None:
    write("good.py")
    code, shown, _ = run("good.py", "--levels", "serve")
    assert code == 1
    assert "NOTHING PROVED: 1 not run" in shown


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["absent.py"], "absent.py: no such file or folder"),
        (["good.py", "--levels", "shape"], "'shape' is none of static, load, parity, paths, serve"),
        (["good.py", "--dtype", "float8"], "'float8' is none of float32, bfloat16, float16"),
        (["good.py", "--jobs", "0"], "'0' is no whole number above 0"),
        (["good.py", "--timeout", "soon"], "'soon' is no number above 0"),
        (["good.py", "--report", "x.pdf"], "'x.pdf' names no form of report; end it in .html or .md or .json"),
        (["good.py", "--report", "no/x.md"], "the folder of 'no/x.md' does not exist"),
        (["good.py", "--before", "old"], "--before old: no such file or folder"),
        (["good.py", "--before", "empty"], "--before empty has no file at the place of good.py"),
        (["empty", "--before", "good.py"], "--before good.py is a file: give one file as PATH"),
        (["good.py", "--config", "good.py"], "--config good.py cannot be read"),
        (["empty"], "no model with vision attention in empty"),
        (["notes.ipynb"], "vitport-check: notes.ipynb: only .py files can be imported; give one, or a folder"),
        (["hostname"], "vitport-check: hostname: only .py files can be imported; give one, or a folder"),
        (["/dev/null"], "vitport-check: /dev/null: only .py files can be imported; give one, or a folder"),
        (["old.py"], "vitport-check: old.py:2: cannot be parsed: Missing parentheses"),
        (["old.py", "--levels", "load"], "vitport-check: old.py:2: cannot be parsed: Missing parentheses"),
    ],
)
def test_bad_usage_is_2_and_one_line(run: Run, argv: Sequence[str], told: str) -> None:
    write("good.py")
    write("notes.ipynb", "{}")
    write("hostname", "orchard\n")
    write("old.py", "import os\nprint 'Python 2'\n")
    Path("empty").mkdir()
    code, shown, errors = run(*argv)
    assert (code, shown) == (2, "")
    assert told in errors
    assert errors.count("\n") == 1


def test_interrupted_is_130_and_no_process_is_left(tmp_path: Path) -> None:
    write(str(tmp_path / "hang.py"), "import time\ndef answer(job):\n    time.sleep(1000)\n")
    program = "import sys, tests.porting.test_check as t; from porting import arguments, check\n"
    program += "arguments.LEVELS = check.LEVELS = t.LEVELS; sys.exit(check.main(sys.argv[1:]))"
    command = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "hang.py"), "--levels", "static"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while len(children := psutil.Process(command.pid).children(recursive=True)) < 2:
            assert command.poll() is None
            time.sleep(0.05)
        command.send_signal(signal.SIGINT)
        _, errors = command.communicate(timeout=20)
    finally:
        command.kill()
    assert command.returncode == 130
    assert "vitport-check: interrupted; no process is left" in errors
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children)


# -- the environment -------------------------------------------------------------------------------------------------


def with_environment(monkeypatch: pytest.MonkeyPatch, missing: Sequence[str] = (), vllm: str | None = "0.32.0") -> None:
    there = check.surroundings.importlib.util.find_spec
    monkeypatch.setattr(
        check.surroundings.importlib.util, "find_spec", lambda name: None if name in missing else there(name)
    )
    monkeypatch.setattr(check.surroundings.vllm_api, "installed", lambda: vllm)


@pytest.mark.parametrize(
    ("missing", "vllm", "told"),
    [
        (["torch"], "0.32.0", "torch is not installed, which load need: install vitport[cpu], [cuda] or [npu]"),
        (["vllm"], None, "vllm is not installed, which load need"),
        ([], "0.12.0", "vLLM 0.12.0 is installed, but vLLM 0.12.0 has no MMEncoderAttention"),
        ([], "0.99.0", "vLLM 0.99.0 is installed, but"),
    ],
)
def test_a_wrong_environment_is_2_and_one_line_with_the_remedy(
    run: Run, monkeypatch: pytest.MonkeyPatch, missing: Sequence[str], vllm: str | None, told: str
) -> None:
    write("good.py")
    levels = (Level("load", "", "tests.porting.answering"),)
    for module in (arguments, check):
        monkeypatch.setattr(module, "LEVELS", levels)
    with_environment(monkeypatch, missing, vllm)
    code, shown, errors = run("good.py")
    assert (code, shown, errors.count("\n")) == (2, "", 1)
    assert errors.startswith(f"vitport-check: {told}")
    assert "install" in errors


def test_without_vllm_the_levels_that_need_none_run(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    write("good.py")
    with_environment(monkeypatch, ["torch", "vllm"], None)
    assert run("good.py", "--levels", "static")[0] == 0


def test_a_vllm_that_cannot_be_imported_is_2_and_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    write("good.py")
    write("path/vllm/__init__.py", "raise ImportError('libcudart.so.13: cannot open shared object file')\n")
    monkeypatch.setenv("PYTHONPATH", str(Path("path").resolve()))
    monkeypatch.setattr(check.surroundings, "device_of_vllm", lambda wanted: "cpu")
    levels = (Level("build", "", "tests.porting.answering"),)
    for module in (arguments, check):
        monkeypatch.setattr(module, "LEVELS", levels)
    code, shown, errors = run("good.py")
    assert (code, shown) == (2, "")
    assert errors.splitlines() == [
        "vitport-check: torch and vLLM cannot be imported here: "
        "ImportError: libcudart.so.13: cannot open shared object file (__init__.py:1)"
    ]


def test_a_fault_of_the_command_itself_is_not_told_as_one_of_a_model(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    write("good.py")
    monkeypatch.setattr(check.surroundings, "look_for_room", lambda: 1 / 0)
    code, _, errors = run("good.py")
    assert code == 2
    assert errors.endswith("vitport-check: broke off, which is a fault of vitport\n")


def test_no_room_on_the_disk_is_2(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    write("good.py")
    usage = check.surroundings.shutil.disk_usage("/")._replace(free=2**20)
    monkeypatch.setattr(check.surroundings.shutil, "disk_usage", lambda folder: usage)
    code, _, errors = run("good.py")
    assert code == 2
    assert "GiB left and a check may need 1; free some, or set TMPDIR" in errors


# -- what is asked ---------------------------------------------------------------------------------------------------


def test_the_original_is_passed_on(run: Run) -> None:
    write("new.py", Answer + "    return [job.result(Status.PASSED, job.before.read_text())]\n")
    write("old.py", "the original")
    _, _, errors = run("new.py", "--levels", "static", "--before", "old.py")
    assert "new static: pass, the original" in errors


def test_the_order_is_that_of_the_files_whatever_comes_first(run: Run) -> None:
    slow = "import time\n" + GOOD.replace("return", "time.sleep(1); return")
    write("a.py", slow)
    write("b.py")
    code, _, errors = run("b.py", "a.py", "--levels", "static", "--jobs", "2", "--report", "r.json")
    assert code == 0
    assert [line.split()[1] for line in errors.splitlines()] == ["b", "a"]
    assert [r["model"] for r in json.loads(Path("r.json").read_text())["results"]] == ["a", "b"]


def test_dtypes_and_backends_narrow_the_matrix_and_no_level_goes_in_silence(run: Run) -> None:
    write("good.py")
    code, shown, _ = run(
        "good.py", "--dtype", "bfloat16", "--backend", "flash", "--levels", "parity,paths", "--report", "r.json"
    )
    results = json.loads(Path("r.json").read_text())["results"]
    assert [(r["level"], r["backend"], r["dtype"], r["status"]) for r in results] == [
        ("parity", "", "", "not run"),
        ("paths", "flash", "bfloat16", "passed"),
    ]
    assert "NOT RUN  not asked with --backend flash: good parity" in shown
    assert code == 0


def test_a_dtype_that_the_device_lacks_does_not_run(tmp_path: Path) -> None:
    from porting.discovery import Model

    (question,) = questions([Model(tmp_path, "m")], LEVELS[3:4], Wishes("mps", ("float32",), ("bfloat16",), ("npu",)))
    assert question.moot == "this mps does not compute in bfloat16"


def test_a_level_that_computes_nothing_has_no_dtype(tmp_path: Path) -> None:
    from porting.discovery import Model

    (question,) = questions([Model(tmp_path, "m")], LEVELS[:1], Wishes())
    assert (question.job.dtype, question.job.backend) == ("", "")


# -- what is told ----------------------------------------------------------------------------------------------------


def test_each_answer_is_a_line_as_it_comes(run: Run) -> None:
    write("bad.py", WRONG)
    _, _, errors = run("bad.py", "--levels", "static,parity")
    first, second, third = errors.splitlines()
    assert first.startswith("[1/3] bad static: pass, as it should be (")
    assert second.startswith("[2/3] bad parity native float32: FAIL, differs (")
    assert third.startswith("[3/3] bad parity native bfloat16: FAIL, differs (")


def test_the_reports_are_written(run: Run) -> None:
    write("bad.py", WRONG)
    code, _, _ = run("bad.py", "--report", "r.html", "--report", "r.md", "--report", "r.json")
    assert code == 1
    assert json.loads(Path("r.json").read_text())["counts"]["failed"] == 2
    assert "**FAIL**" in Path("r.md").read_text()
    assert "<svg" in Path("r.html").read_text()


def test_a_report_that_cannot_be_written_is_2(run: Run) -> None:
    write("good.py")
    Path("r.md").mkdir()
    code, _, errors = run("good.py", "--report", "r.md", "--report", "r.json")
    assert code == 2
    assert "vitport-check: r.md cannot be written" in errors
    assert Path("r.json").is_file(), "the others are"


def test_what_cannot_be_written_is_said_last_of_all(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the verdict, where both streams are one."""
    write("good.py")
    Path("taken").write_text("a file, where a folder is wanted")
    monkeypatch.setattr(sys, "stdout", sys.stderr)
    code, shown, errors = run("good.py", "--levels", "load", "--emit-tests", "taken")
    assert (code, shown) == (2, "")
    assert errors.splitlines()[-2].startswith("verdict  no fault found: 1 passed")
    assert errors.splitlines()[-1] == "vitport-check: taken cannot be written: File exists"


def test_the_text_of_a_pull_request_is_all_that_is_printed(run: Run) -> None:
    write("good.py")
    code, shown, errors = run("good.py", "--pull-request")
    assert code == 0
    assert [line for line in shown.splitlines() if line.startswith("## ")] == [
        "## Purpose",
        "## Test Plan",
        "## Test Result",
    ]
    assert "- `good.py`" in shown
    assert "| good | pass | pass | pass | pass | pass | pass | not run |" in shown
    assert "verdict  no fault found" in errors

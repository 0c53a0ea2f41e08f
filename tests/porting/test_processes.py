"""What a job can do to the process that asked for it: nothing. Each bad end is a result with one clear line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from porting.job import Job
from porting.levels import Level
from porting.processes.limits import GIB, MIB, Limits
from porting.processes.local import LocalRunner
from porting.result import Result, Status

ROOT = Path(__file__).parents[2]
FRESH = Level("static", "", "tests.porting.answering", needs_vllm=False, fresh=True)
LIMITS = Limits(seconds=20, memory=GIB // 2, output=MIB)

Ask = Callable[..., Result]


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Ask]:
    """The result of a job whose file holds this body of `answer(job)`."""

    def answer(body: str, limits: Limits = LIMITS, level: Level = FRESH) -> Result:
        with LocalRunner(limits) as runner:
            (result,) = runner.submit(level, Job(model(tmp_path / "plugin", body), level.name)).result()
        return result

    yield answer
    assert not psutil.Process().children(recursive=True)


def model(folder: Path, body: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "model.py"
    lines = ["import ctypes, os, signal, socket, subprocess, sys, time", "from porting.result import Status"]
    path.write_text("\n".join([*lines, "def answer(job):", textwrap.indent(textwrap.dedent(body), "    ")]))
    return path


def test_a_good_answer_comes_back_as_it_was_given(ask: Ask) -> None:
    result = ask("return [job.result(Status.PASSED, 'equal', numbers={'difference': 0.0}, notes=('a stub',))]")
    assert (result.status, result.summary, result.notes) == (Status.PASSED, "equal", ("a stub",))
    assert result.numbers == {"difference": 0.0}
    assert result.seconds > 0


def test_an_exception_is_told_with_its_line_and_its_traceback(ask: Ask) -> None:
    result = ask("raise ValueError('heads do not divide')")
    assert (result.status, result.summary) == (Status.ERROR, "ValueError: heads do not divide (model.py:4)")
    assert "Traceback" in result.numbers["output"]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("sys.exit(0)", "the model ended the process: sys.exit(0) (model.py:4)"),
        ("os._exit(0)", "the process ended itself with exit code 0"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "the process was killed (SIGKILL), perhaps by the system"),
        ("ctypes.string_at(0)", "the process died of SIGSEGV (Segmentation fault); it was in answer (model.py:4)"),
        ("os.abort()", "the process died of SIGABRT (Aborted); it was in answer (model.py:4)"),
        ("return []", "the level 'static' gave no result"),
    ],
)
def test_a_death_is_told(ask: Ask, body: str, told: str) -> None:
    result = ask(body)
    assert result.status is Status.ERROR
    assert result.summary.startswith(told)


def test_a_hang_ends_and_is_told_with_the_line(ask: Ask) -> None:
    result = ask("while True: pass", Limits(seconds=1))
    assert result.status is Status.TIMED_OUT
    assert result.summary == "no answer within 1 s; it was in answer (model.py:4)"


def test_a_hang_that_ignores_every_signal_it_can_ends_too(ask: Ask) -> None:
    result = ask(
        """
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)
        time.sleep(1000)
        """,
        Limits(seconds=1),
    )
    assert result.status is Status.TIMED_OUT


def test_a_flood_of_output_ends_and_its_end_is_kept(ask: Ask) -> None:
    result = ask("while True: print('spam ' * 1000)")
    assert (result.status, result.summary.partition(";")[0]) == (Status.ERROR, "printed more than 1 MiB and was ended")
    assert len(result.numbers["output"]) < MIB
    assert "spam" in result.numbers["output"]


def test_output_below_the_limit_is_no_fault(ask: Ask) -> None:
    assert ask("print('spam ' * 1000); return [job.result(Status.PASSED, '')]").status is Status.PASSED


def test_memory_that_grows_is_ended(ask: Ask) -> None:
    result = ask(
        """
        kept = []
        while True:
            kept.append(bytearray(b'x' * 2**20))
            time.sleep(0.001)
        """
    )
    assert result.status is Status.ERROR
    assert result.summary.startswith(("took more than 0.5 GiB of memory and was ended", "MemoryError"))


def test_one_huge_allocation_fails(ask: Ask) -> None:
    result = ask("bytearray(2**33)")
    assert (result.status, result.summary) == (Status.ERROR, "MemoryError (model.py:4)")


def test_memory_of_all_its_processes_counts(ask: Ask) -> None:
    result = ask(
        """
        eater = "kept = bytearray(b'x' * 2**28); import time; time.sleep(60)"
        for process in [subprocess.Popen([sys.executable, "-c", eater]) for _ in range(3)]:
            process.wait()
        """
    )
    assert (result.status, result.summary.partition(";")[0]) == (
        Status.ERROR,
        "took more than 0.5 GiB of memory and was ended",
    )


def test_what_a_job_leaves_behind_is_ended(ask: Ask, tmp_path: Path) -> None:
    result = ask(
        """
        child = subprocess.Popen(['sleep', '1000'], start_new_session=True)
        return [job.result(Status.PASSED, str(child.pid))]
        """
    )
    assert not psutil.pid_exists(int(result.summary))


# -- reaching out ----------------------------------------------------------------------------------------------------

PASS = "return [job.result(Status.PASSED, 'fine')]"


@pytest.mark.parametrize(
    ("attempt", "told"),
    [
        ("socket.create_connection(('192.0.2.1', 80), timeout=1)", "connecting to 192.0.2.1 port 80"),
        ("socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53))", "connecting to 192.0.2.1 port 53"),
        ("socket.getaddrinfo('models.example', 443)", "looking up 'models.example' in the network"),
    ],
)
def test_the_network_is_refused_and_told_even_if_the_model_bears_it(ask: Ask, attempt: str, told: str) -> None:
    result = ask(f"try:\n    {attempt}\nexcept OSError:\n    pass\n{PASS}")
    assert result.status is Status.ERROR
    assert result.summary == f"the model tried {told} at model.py:5, which was refused"


def test_loopback_is_open(ask: Ask) -> None:
    result = ask(
        f"""
        server = socket.create_server(("127.0.0.1", 0))
        socket.create_connection(server.getsockname()).close()
        socket.create_connection(("localhost", server.getsockname()[1])).close()
        {PASS}
        """
    )
    assert (result.status, result.notes) == (Status.PASSED, ())


@pytest.mark.parametrize(
    "attempt",
    [
        "open(PATH, 'w')",
        "os.open(PATH, os.O_CREAT | os.O_WRONLY)",
        "os.mkdir(PATH)",
        "os.rename(open('here', 'w').name, PATH)",
    ],
)
def test_writing_elsewhere_is_refused_and_told(ask: Ask, tmp_path: Path, attempt: str) -> None:
    result = ask(f"PATH = {str(tmp_path / 'new')!r}\ntry:\n    {attempt}\nexcept OSError:\n    pass\n{PASS}")
    assert result.status is Status.ERROR
    assert result.summary == f"the model tried writing to {tmp_path / 'new'} at model.py:6, which was refused"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("attempt", ["os.remove(__file__)", "open(__file__, 'a')", "os.truncate(__file__, 0)"])
def test_its_own_source_is_not_the_models_to_change(ask: Ask, tmp_path: Path, attempt: str) -> None:
    result = ask(attempt)
    assert result.summary.startswith("PermissionError: refused by vitport: writing to")
    assert (tmp_path / "plugin" / "model.py").stat().st_size > 0


def test_its_folder_for_temporary_files_is_the_jobs_own(ask: Ask) -> None:
    result = ask(
        f"""
        import shutil, tempfile
        with tempfile.TemporaryDirectory() as folder:
            open(folder + "/file", "w").write("x")
            os.makedirs("here/below")
            shutil.rmtree("here")
        {PASS}
        """
    )
    assert (result.status, result.notes) == (Status.PASSED, ())


def test_what_others_than_the_model_were_refused_is_a_note(ask: Ask, tmp_path: Path) -> None:
    """vLLM may reach out as well, in a thread of its own say; the port is not to blame, but it is told."""
    result = ask(
        f"""
        import threading
        threading.excepthook = lambda error: None
        writer = threading.Thread(target=open, args=("/not-here", "w"))
        writer.start()
        writer.join()
        {PASS}
        """
    )
    assert (result.status, result.notes) == (Status.PASSED, ("refused: writing to /not-here",))


def test_what_a_library_does_while_it_is_imported_is_its_own_affair(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "library.py").write_text("try:\n    open('/not-here', 'w')\nexcept OSError:\n    pass\n")
    result = ask(f"sys.path.append({str(tmp_path)!r}); import library; {PASS}")
    assert (result.status, result.notes) == (Status.PASSED, ("refused: writing to /not-here",))


def test_what_the_model_does_while_it_is_imported_is_not(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "plugin").mkdir()
    (tmp_path / "plugin" / "part.py").write_text("try:\n    open('/not-here', 'w')\nexcept OSError:\n    pass\n")
    result = ask(f"sys.path.append(os.path.dirname(__file__)); import part; {PASS}")
    assert result.summary == "the model tried writing to /not-here at part.py:2, which was refused"


# -- ends of others --------------------------------------------------------------------------------------------------

ASKING = """
import sys, threading
from pathlib import Path
from porting.job import Job
from porting.levels import Level
from porting.processes.limits import Limits
from porting.processes.local import LocalRunner
level = Level("static", "", "tests.porting.answering", needs_vllm=False, fresh=True)
with LocalRunner(Limits()) as runner:
    runner.submit(level, Job(Path(sys.argv[1]), "static")).result()
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_child_outlives_its_parent(tmp_path: Path, how: signal.Signals) -> None:
    path = model(tmp_path / "plugin", "open(os.environ['TMPDIR'] + '/pid', 'w').write('x'); time.sleep(1000)")
    parent = subprocess.Popen(
        [sys.executable, "-c", ASKING, str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: list(tmp_path.rglob("pid")))
        children = psutil.Process(parent.pid).children(recursive=True)
        assert len(children) == 2  # a keeper and its job
        parent.send_signal(how)
        parent.wait(10)
        until(lambda: not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children))
    finally:
        parent.kill()


def test_a_killed_keeper_takes_its_job_along_and_is_a_result(tmp_path: Path) -> None:
    path = model(tmp_path / "plugin", "open('here', 'w').close(); time.sleep(1000)")
    with LocalRunner(LIMITS) as runner:
        future = runner.submit(FRESH, Job(path, "static"))
        until(lambda: len(psutil.Process().children(recursive=True)) == 2)
        keeper, job = psutil.Process().children(recursive=True)
        keeper.kill()
        (result,) = future.result(10)
        assert (result.status, result.summary) == (Status.ERROR, "the process that watched the job was killed")
        until(lambda: not job.is_running() or job.status() == psutil.STATUS_ZOMBIE)


def until(true: Callable[[], object]) -> None:
    for _ in range(200):
        if true():
            return
        time.sleep(0.05)
    pytest.fail("it does not come about")

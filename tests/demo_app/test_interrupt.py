"""Ctrl-C, as a terminal gives it to a process of its own: at any time, and without waiting for anybody."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from benchmarks import crowd

ROOT = Path(__file__).parents[2]
LATER = 30  # seconds; one that waits for its threads or its clients would take for ever here
BEGUN = 2  # seconds after which the first of many steps is done
STOPPED = (130, "demo_app: stopped\n")
PAGE, SERVER = (), ("--omni-compat",)


@contextmanager
def started(*words: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """The command. A process that is started in the background ignores Ctrl-C, and hands that down."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    command = [sys.executable, "-m", "demo_app", "--port", "0", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    try:
        process = subprocess.Popen(command, text=True, env=variables, **pipes)
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        try:
            yield process
        finally:
            process.kill()


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Its exit code and error stream, after Ctrl-C."""
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=LATER)
    return process.returncode, said


@pytest.mark.parametrize("words", [PAGE, SERVER], ids=["page", "omni-compat"])
@pytest.mark.parametrize("seconds", [0.5, 1.5, 3])
def test_while_it_starts(words: tuple[str, ...], seconds: float) -> None:
    with started(*words) as process:
        time.sleep(seconds)
        assert ended(process) == STOPPED


def test_while_the_page_draws_and_nothing_of_its_visitors_is_left(tmp_path: Path) -> None:
    with started(GRADIO_TEMP_DIR=str(tmp_path)) as process:
        address = told(process)
        examples = files(tmp_path)
        asyncio.run(crowd.one(address, asks=1, draws=1))
        assert files(tmp_path) > examples
        with page_draws(address):
            assert ended(process) == STOPPED
    assert files(tmp_path) == examples


def test_while_the_server_draws_which_listens_once_it_says_so() -> None:
    with started(*SERVER) as process:
        address = told(process)
        assert httpx.get(address).status_code == 405
        body = {"prompt": "a circle", "num_inference_steps": 200, "size": "256x256", "n": 10}
        with pytest.raises(httpx.TransportError), ThreadPoolExecutor() as others:
            drawing = others.submit(httpx.post, address, json=body, timeout=LATER)
            time.sleep(BEGUN)
            assert ended(process) == STOPPED
            drawing.result()


def told(process: subprocess.Popen[str]) -> str:
    """The address that it prints."""
    assert process.stdout
    return next(word for word in process.stdout.readline().split() if word.startswith("http"))


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


@contextmanager
def page_draws(address: str) -> Iterator[None]:
    """Somebody at the page watches a drawing that takes a while."""
    functions = {each["api_name"]: each["id"] for each in httpx.get(f"{address}config").json()["dependencies"]}
    wish = [None, "a circle", "", 1, False, 50, 2.5, "256x256", 4]
    body = {"data": wish, "fn_index": functions["draw"], "session_hash": "watching"}
    httpx.post(f"{address}gradio_api/queue/join", json=body).raise_for_status()
    events = f"{address}gradio_api/queue/data?session_hash=watching"
    with httpx.stream("GET", events, timeout=LATER) as watched:
        for line in watched.iter_lines():
            if "progress_data" in line:
                break
        yield

"""Runs jobs on this machine, several at a time."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile, mkdtemp
from typing import IO

from porting.device import Device, attached
from porting.environment import ENVIRONMENT, python_path
from porting.job import Job
from porting.levels import Level
from porting.processes.limits import Limits
from porting.processes.request import Request, read_line, results_from_line
from porting.processes.warm import READY
from porting.result import Result, Status
from porting.wrong_environment import WrongEnvironment

_START_S = 600.0  # for the import of torch and vLLM, on a slow disk


class LocalRunner:
    """Answers jobs in processes of their own. To leave it ends all that is running."""

    def __init__(self, limits: Limits, jobs: int = 1) -> None:
        self._limits = limits
        self._pool = ThreadPoolExecutor(jobs, thread_name_prefix="job")
        self._scratch = TemporaryDirectory(prefix="vitport-")
        self._warm: _Warm | None = None
        self._lock = threading.Lock()
        self._channels: set[socket.socket] = set()
        self._closed = False

    def __enter__(self) -> LocalRunner:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._closed = True
            for channel in self._channels:
                with contextlib.suppress(OSError):
                    channel.shutdown(socket.SHUT_RDWR)
            if self._warm is not None:
                self._warm.close()
        self._pool.shutdown(cancel_futures=True)
        self._scratch.cleanup()

    def device(self, wanted: str) -> Device:
        """The device of this machine. Raises WrongEnvironment."""
        return attached(wanted)

    def submit(self, level: Level, job: Job) -> Future[list[Result]]:
        """The results of a job, once it is done. The future raises WrongEnvironment where vLLM cannot be imported."""
        return self._pool.submit(self.answer, level, job)

    def answer(self, level: Level, job: Job) -> list[Result]:
        """The same, now."""
        folder = Path(mkdtemp(dir=self._scratch.name))
        ours, theirs = socket.socketpair()
        keeper = None
        try:
            with theirs:
                keeper = self._start(level, ours, theirs)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                ours.sendall(Request(job, level, self._limits, folder).to_line())
            try:
                return results_from_line(read_line(ours))
            except (ValueError, ConnectionResetError):
                return [job.result(Status.ERROR, "the process that watched the job was killed")]
        finally:
            with self._lock:
                self._channels.discard(ours)
            ours.close()
            if keeper is not None:
                keeper.wait()
            shutil.rmtree(folder, ignore_errors=True)

    def _start(self, level: Level, ours: socket.socket, theirs: socket.socket) -> subprocess.Popen[bytes] | None:
        """Have a keeper listen at the other end of the channel; it is given back if it is a child of this process."""
        with self._lock:
            if self._closed:
                raise CancelledError
            self._channels.add(ours)
            if level.needs_vllm and not level.fresh:
                if self._warm is None or not self._warm.alive:
                    self._warm = _Warm(self._scratch.name)
                self._warm.fork_keeper(theirs)
                return None
            return _python("porting.processes.keeper", theirs, self._scratch.name)


class _Warm:
    """The process of porting.processes.warm."""

    def __init__(self, folder: str) -> None:
        self._control, theirs = socket.socketpair()
        with theirs, TemporaryFile(dir=folder) as errors:
            self._process = _python("porting.processes.warm", theirs, folder, errors)
            theirs.close()
            self._control.settimeout(_START_S)
            try:
                said = read_line(self._control)
            except TimeoutError:
                said = f"no end after {_START_S:g} s".encode()
            if said != READY:
                self._process.kill()
                self._process.wait()
                errors.seek(0)
                printed = errors.read().decode(errors="replace").strip().splitlines()
                why = said.decode().strip() or (printed[-1] if printed else "the process died")
                raise WrongEnvironment(f"torch and vLLM cannot be imported here: {why}")
        self._control.settimeout(None)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def fork_keeper(self, channel: socket.socket) -> None:
        socket.send_fds(self._control, [b"k"], [channel.fileno()])

    def close(self) -> None:
        self._control.close()
        self._process.kill()
        self._process.wait()


def _python(
    module: str, channel: socket.socket, folder: str, errors: IO[bytes] | None = None
) -> subprocess.Popen[bytes]:
    """A new interpreter at work on a module, out of reach of this terminal's Ctrl-C: it ends when its channel does."""
    return subprocess.Popen(
        [sys.executable, "-m", module, str(channel.fileno())],
        pass_fds=[channel.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=errors or subprocess.DEVNULL,
        stderr=errors,
        start_new_session=True,
        cwd=folder,
        env={
            **ENVIRONMENT,
            "TORCHINDUCTOR_CACHE_DIR": f"{folder}/torchinductor",  # else torch decides on one for all time as it starts
            **os.environ,
            "PYTHONPATH": python_path(),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
    )

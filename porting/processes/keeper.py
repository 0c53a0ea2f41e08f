"""Watches one job: its time, its memory, what it prints; and ends all that it has started."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import selectors
import signal
import socket
import sys
import time
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn

import psutil

from porting.processes.job import SHOW_STACK, answer
from porting.processes.limits import GIB, MIB
from porting.processes.request import Request, read_line, results_from_line, results_to_line
from porting.result import Result, Status

_TICK_S = 0.2
_STACK_S = 0.5  # for a hanging job to print where it is
_TAIL = 16 * 2**10  # of a job's output, bytes that are kept
_SHOWN = 40  # lines of it that a report shows

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def keep(channel: socket.socket) -> NoReturn:
    """Read a request, have a child answer it, send the results, end. In a process that was made for this alone."""
    with contextlib.suppress(PermissionError):  # it leads a session already
        os.setsid()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # what a job leaves behind becomes a child of the keeper
    line = read_line(channel)
    if line:
        request = Request.from_line(line)
        watch = _Watch(request)
        try:
            results = watch.run(channel)
        finally:
            _end_descendants()
        with contextlib.suppress(OSError):
            channel.sendall(results_to_line(results))
    channel.close()
    os._exit(0)


@dataclass
class _Watch:
    request: Request
    pid: int = 0
    answer: bytearray = field(default_factory=bytearray)
    printed: int = 0
    tail: deque[bytes] = field(default_factory=deque)
    stopped: tuple[Status, str] | None = None  # why the keeper ended the job
    died: str | None = None

    def run(self, channel: socket.socket) -> list[Result]:
        answer_end, answer_start = os.pipe()
        output_end, output_start = os.pipe()
        start = time.monotonic()
        sys.stdout.flush()
        sys.stderr.flush()
        keeper = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            _child(self.request, keeper, answer_start, output_start)
        os.close(answer_start)
        os.close(output_start)
        self._watch(channel, answer_end, output_end)
        return [replace(r, seconds=r.seconds or time.monotonic() - start) for r in self._results()]

    def _watch(self, channel: socket.socket, answer_end: int, output_end: int) -> None:
        deadline = time.monotonic() + self.request.limits.seconds
        with selectors.DefaultSelector() as selector:
            for end in (answer_end, output_end, channel):
                selector.register(end, selectors.EVENT_READ)
            while self.died is None and self.stopped is None:
                for key, _ in selector.select(_TICK_S):
                    if key.fileobj is channel:  # nothing is sent any more: whoever asked is gone
                        _end_descendants()
                        os._exit(1)
                    if not self._take(key.fd, answer_end):
                        selector.unregister(key.fd)
                self._look(deadline)
        self._drain(answer_end, output_end)

    def _take(self, end: int, answer_end: int) -> bool:
        part = os.read(end, 2**16)
        if end == answer_end:
            self.answer += part
        else:
            self.printed += len(part)
            self.tail.append(part)
            while sum(map(len, self.tail)) - len(self.tail[0]) > _TAIL:
                self.tail.popleft()
        return bool(part)

    def _look(self, deadline: float) -> None:
        limits = self.request.limits
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            self.died = _how(status)
        elif time.monotonic() > deadline:
            self._stop(Status.TIMED_OUT, f"no answer within {limits.seconds:g} s")
        elif self.printed > limits.output:
            self._stop(Status.ERROR, f"printed more than {limits.output / MIB:g} MiB and was ended")
        elif _memory() > limits.memory:
            self._stop(Status.ERROR, f"took more than {limits.memory / GIB:.3g} GiB of memory and was ended")

    def _stop(self, status: Status, why: str) -> None:
        self.stopped = status, why
        with contextlib.suppress(OSError):
            os.kill(self.pid, SHOW_STACK)
        time.sleep(_STACK_S if status is Status.TIMED_OUT else 0)
        _end_descendants()

    def _drain(self, answer_end: int, output_end: int) -> None:
        """What is in the pipes still. Somebody else may hold them open, so their ends are not waited for."""
        for end in (answer_end, output_end):
            os.set_blocking(end, False)
            with contextlib.suppress(BlockingIOError):
                while self._take(end, answer_end) and self.printed < 2 * self.request.limits.output:
                    pass
            os.close(end)

    def _results(self) -> list[Result]:
        job = self.request.job
        output = b"".join(self.tail).decode(errors="replace")
        try:
            results = results_from_line(bytes(self.answer)) if self.stopped is None else []
        except ValueError:
            results = []
        if not results:
            status, why = self.stopped or (Status.ERROR, self.died or "ended without an answer")
            results = [job.result(status, why + _where(output))]
        return [_with_output(result, output) for result in results]


def _child(request: Request, keeper: int, answer_start: int, output_start: int) -> NoReturn:
    _prctl(_PR_SET_CHILD_SUBREAPER, 0)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != keeper:  # it was gone before this process asked to go with it
        os._exit(1)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.dup2(output_start, 1)
    os.dup2(output_start, 2)
    code = 1
    try:
        line = results_to_line(answer(request))
        while line:
            line = line[os.write(answer_start, line) :]
        code = 0
    finally:
        os._exit(code)  # exit handlers are those of the process that this one was forked from


def _prctl(option: int, value: int) -> None:
    """Linux alone has it; elsewhere the end of the channel has to do."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _descendants() -> list[psutil.Process]:
    found: list[psutil.Process] = psutil.Process().children(recursive=True)
    return found


def _memory() -> int:
    total = 0
    for process in _descendants():
        with contextlib.suppress(psutil.Error):
            total += process.memory_info().rss
    return total


def _end_descendants() -> None:
    """Kill them until there is none: orphans come to the keeper, so that none gets away."""
    for _ in range(50):
        processes = _descendants()
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.kill()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not processes:
            return
        time.sleep(0.02)


def _how(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"the process ended itself with exit code {code}"
    name = signal.Signals(-code).name
    if -code == signal.SIGKILL:
        return f"the process was killed ({name}), perhaps by the system for want of memory"
    return f"the process died of {name} ({signal.strsignal(-code)})"


def _where(output: str) -> str:
    """Where the job was, from the stack that faulthandler printed: the innermost line that is not the system's own."""
    *_, stack = output.rpartition("(most recent call first):")
    frames = re.findall(r'File "(.*?)", line (\d+) in (\S+)', stack) if stack != output else []
    if not frames:
        return ""
    path, line, function = next((f for f in frames if not f[0].startswith((sys.prefix, sys.base_prefix))), frames[0])
    return f"; it was in {function} ({Path(path).name}:{line})"


def _with_output(result: Result, output: str) -> Result:
    if result.status in (Status.PASSED, Status.NOT_RUN) or not output.strip():
        return result
    return replace(result, numbers={**result.numbers, "output": "\n".join(output.splitlines()[-_SHOWN:])})


if __name__ == "__main__":  # a keeper whose jobs find nothing imported but the standard library and psutil
    keep(socket.socket(fileno=int(sys.argv[1])))

"""Work in processes forked from this one, so that vLLM is imported once and nothing of the work is left behind."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from porting import host
from porting.processes.job import describe

# Where vLLM's ranks on the CPU exchange numbers, in files whose name begins with VLLM_DIST_IDENT.
SHARED_MEMORY = Path("/dev/shm")

SHOW_STACK = signal.SIGUSR1  # to a process that hangs, ahead of its end
LAST_WORDS = 0.5  # seconds that it has for that


class ForkFailed(Exception):
    """A process raised or died; the text is one line, `trace` is its traceback where it left one."""

    def __init__(self, text: str, trace: str = "") -> None:
        super().__init__(text)
        self.trace = trace

    @property
    def last(self) -> tuple[str, ...]:
        """The end of the traceback, line by line, for a report."""
        return tuple(self.trace.strip().splitlines()[-20:])


class ForkHangs(ForkFailed):
    """Processes were still at work when their time was over; `trace` says where."""


def forked(work: Callable[[], Any], seconds: float) -> Any:
    """What `work` returns, in a process of its own. Raises ForkFailed, ForkHangs after `seconds`."""
    with tempfile.TemporaryDirectory(prefix="vitport-") as folder:
        return _all_of({"the process": work}, seconds, Path(folder))[0]


def on_ranks(work: Callable[[int], Any], world_size: int, seconds: float, device: str = "cpu") -> list[Any]:
    """What `work(rank)` returns on each of `world_size` processes; tensors in it have to be on the CPU.

    Each process has vLLM's tensor-parallel group, over gloo on the CPU and over the device's own collectives elsewhere,
    where rank n computes on device n. vLLM has to be imported before and no accelerator used, which does not survive a
    fork. Raises as `forked_ranks`.
    """

    def rank_work(rank: int, rendezvous: Path) -> Any:
        os.environ["VLLM_DIST_IDENT"] = rendezvous.parent.name
        if device != "cpu":
            torch.accelerator.set_device_index(rank)
        host.start_groups(rank, world_size, rendezvous, torch.distributed.get_default_backend_for_device(device))
        result = work(rank)
        torch.distributed.barrier()  # the other may still be reading what this one sent last
        host.stop_groups()
        return result

    return forked_ranks(rank_work, world_size, seconds)


def forked_ranks(work: Callable[[int, Path], Any], world_size: int, seconds: float) -> list[Any]:
    """What `work(rank, rendezvous)` returns in `world_size` processes, which can meet at that file.

    Raises ForkFailed as soon as one rank fails, ForkHangs after `seconds`; no process outlives it. RuntimeError: this
    process has groups itself, see `host.stop_groups`.
    """
    if torch.distributed.is_initialized():
        raise RuntimeError("this process has groups of its own, which its forks would take for theirs")
    with tempfile.TemporaryDirectory(prefix="vitport-") as folder:
        scratch = Path(folder)
        works = {
            f"rank {rank} of {world_size}": partial(work, rank, scratch / "rendezvous") for rank in range(world_size)
        }
        try:
            return _all_of(works, seconds, scratch)
        finally:
            for left in SHARED_MEMORY.glob(f"{scratch.name}-*"):
                left.unlink()  # a rank that is ended does not, and ranks that end well do not either


def _all_of(works: Mapping[str, Callable[[], Any]], seconds: float, folder: Path) -> list[Any]:
    """Run each work in its process; what they return."""
    places = [folder / str(index) for index in range(len(works))]
    processes: list[BaseProcess] = [
        multiprocessing.get_context("fork").Process(target=_live, args=(work, place))
        for work, place in zip(works.values(), places)
    ]
    try:
        for process in processes:
            process.start()
        _await(processes, list(works), places, seconds)
    finally:
        for process in processes:
            process.kill()
            process.join()
    return [torch.load(place.with_suffix(".pt"), weights_only=False) for place in places]


def _await(processes: Sequence[BaseProcess], names: Sequence[str], places: Sequence[Path], seconds: float) -> None:
    """Return when all have ended well. Raises ForkFailed, ForkHangs."""
    deadline = time.monotonic() + seconds
    running = dict(enumerate(processes))
    while running:
        ended = wait([process.sentinel for process in running.values()], deadline - time.monotonic())
        if not ended:
            for process in running.values():
                if process.pid:
                    os.kill(process.pid, SHOW_STACK)
            time.sleep(LAST_WORDS)
            traces = [_read(places[index].with_suffix(".hang")) for index in running]
            raise ForkHangs(f"still at work after {seconds:.0f} s", "\n".join(traces))
        for index, process in list(running.items()):
            if process.sentinel in ended:
                process.join()
                if process.exitcode != 0:
                    said, _, trace = _read(places[index].with_suffix(".error")).partition("\n")
                    raise ForkFailed(f"{names[index]}: {said or f'ended with code {process.exitcode}'}", trace)
                del running[index]


def _live(work: Callable[[], Any], place: Path) -> None:
    """The life of one process."""
    with place.with_suffix(".hang").open("w") as hang:
        faulthandler.register(SHOW_STACK, file=hang)
        torch.set_num_threads(1)
        try:
            torch.save(work(), place.with_suffix(".pt"))
        except BaseException as error:
            place.with_suffix(".error").write_text(f"{describe(error)}\n{traceback.format_exc()}")
            os._exit(1)
        # No handlers of the parent's, no destructors that wait for another process.
        os._exit(0)


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""

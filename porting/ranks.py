"""Several processes that are one tensor-parallel group, forked from this one so that vLLM is imported once."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from porting import host

# Where vLLM's ranks on the CPU exchange numbers, in files whose name begins with VLLM_DIST_IDENT.
SHARED_MEMORY = Path("/dev/shm")

# A hang writes down where it is this long before its process is ended.
LAST_WORDS = 1.0


class RankFailed(Exception):
    """A rank raised or died; the text is one line, `trace` is its traceback where it left one."""

    def __init__(self, text: str, trace: str = "") -> None:
        super().__init__(text)
        self.trace = trace


class RankHangs(RankFailed):
    """The ranks were still at work when their time was over; `trace` says where."""


def on_ranks(
    work: Callable[[int], Any], world_size: int, seconds: float, device: str = "cpu", folder: Path | None = None
) -> list[Any]:
    """What `work(rank)` returns on each of `world_size` processes; tensors in it are brought to the CPU by the caller.

    Each process has vLLM's tensor-parallel group, over gloo on the CPU and over the device's own collectives elsewhere,
    where rank n computes on device n. vLLM has to be imported before and no group made, no accelerator used: they do
    not survive a fork. Raises RankFailed as soon as one rank fails, RankHangs after `seconds`; no process outlives it.
    """
    with tempfile.TemporaryDirectory(prefix="vitport-", dir=folder) as scratch:
        processes = [
            multiprocessing.get_context("fork").Process(
                target=_rank, args=(work, rank, world_size, seconds, device, Path(scratch)), daemon=True
            )
            for rank in range(world_size)
        ]
        try:
            for process in processes:
                process.start()
            _await(processes, seconds, Path(scratch))
        finally:
            for process in processes:
                process.kill()
                process.join()
            for left in SHARED_MEMORY.glob(f"{Path(scratch).name}-*"):
                left.unlink()  # a rank that is ended does not, and two that end well do not either
        return [torch.load(Path(scratch) / f"{rank}.pt", weights_only=False) for rank in range(world_size)]


def _await(processes: Sequence[BaseProcess], seconds: float, folder: Path) -> None:
    """Return when all have ended well. Raises RankFailed, RankHangs."""
    deadline = time.monotonic() + seconds
    running = dict(enumerate(processes))
    while running:
        ended = wait([process.sentinel for process in running.values()], deadline - time.monotonic())
        if not ended:
            places = [_read(folder / f"{rank}.hang") for rank in running]
            raise RankHangs(f"still at work after {seconds:.0f} s", "\n".join(places))
        for rank, process in list(running.items()):
            if process.sentinel in ended:
                process.join()
                if process.exitcode != 0:
                    trace = _read(folder / f"{rank}.error")
                    last = trace.strip().splitlines()[-1:] or [f"its process ended with code {process.exitcode}"]
                    raise RankFailed(f"rank {rank} of {len(processes)}: {last[0]}", trace)
                del running[rank]


def _rank(work: Callable[[int], Any], rank: int, world_size: int, seconds: float, device: str, folder: Path) -> None:
    """The life of one process."""
    with (folder / f"{rank}.hang").open("w") as place:
        faulthandler.dump_traceback_later(seconds - LAST_WORDS, file=place)
        os.environ["VLLM_DIST_IDENT"] = folder.name
        torch.set_num_threads(1)
        try:
            if device != "cpu":
                torch.accelerator.set_device_index(rank)
            backend = torch.distributed.get_default_backend_for_device(device)
            host.start_groups(rank, world_size, folder / "rendezvous", backend)
            torch.save(work(rank), folder / f"{rank}.pt")
            torch.distributed.barrier()  # the other may still be reading what this one sent last
        except BaseException:
            (folder / f"{rank}.error").write_text(traceback.format_exc())
            os._exit(1)
        # No handlers of the parent's, no destructors that wait for the other rank.
        os._exit(0)


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""

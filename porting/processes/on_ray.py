"""Runs jobs on the devices of a Ray cluster, each worker as LocalRunner runs those of one machine.

Files are named by their paths, so the models must lie in a file system that the whole cluster has.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from queue import SimpleQueue
from typing import Any

from porting.device import Device, attached
from porting.job import Job
from porting.levels import Level
from porting.processes.limits import Limits
from porting.processes.local import LocalRunner
from porting.processes.request import level_from_json
from porting.result import Result, Status
from porting.wrong_environment import WrongEnvironment

# What a worker takes of a machine, by the first of Ray's resources that the cluster has: one device, or one processor.
_SHARES: dict[str, dict[str, Any]] = {"GPU": {"num_gpus": 1}, "NPU": {"resources": {"NPU": 1}}, "CPU": {"num_cpus": 1}}
_STORE = 100 * 2**20  # bytes for what passes between workers: results are small


class RayRunner:
    """Answers jobs on the cluster that RAY_ADDRESS names, else on a Ray of its own on this machine."""

    def __init__(self, limits: Limits, jobs: int = 1, device: str = "auto") -> None:
        try:
            import ray
        except ImportError as error:
            raise WrongEnvironment("Ray is not installed; install ray, or leave --runner ray out") from error
        self._ray = ray
        self._ours = not ray.is_initialized()
        if self._ours:
            alone = {} if os.environ.get("RAY_ADDRESS") else _alone(jobs)
            ray.init(log_to_driver=False, logging_level="ERROR", configure_logging=False, **alone)
        have = ray.cluster_resources()
        kind = "CPU" if device == "cpu" else next((name for name in _SHARES if have.get(name)), "CPU")
        count = max(1, min(jobs, int(have.get(kind, 1))))
        worker = ray.remote(**_SHARES[kind])(_Worker)
        surroundings = {"env_vars": {"PYTHONPATH": os.pathsep.join(filter(None, map(os.path.abspath, sys.path)))}}
        options = {"runtime_env": surroundings, "max_restarts": -1}
        self._workers: SimpleQueue[Any] = SimpleQueue()
        for _ in range(count):
            self._workers.put(worker.options(**options).remote(asdict(limits)))
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="ray")

    def __enter__(self) -> RayRunner:
        return self

    def __exit__(self, *_: object) -> None:
        while not self._workers.empty():
            self._ray.kill(self._workers.get())
        if self._ours:
            self._ray.shutdown()
        self._pool.shutdown(cancel_futures=True)

    def device(self, wanted: str) -> Device:
        """The device of a worker. Raises WrongEnvironment as `attached` does."""
        said, problem = self._at_a_worker("device", wanted)
        if problem:
            raise WrongEnvironment(problem)
        return Device(**{**said, "dtypes": tuple(said["dtypes"])})

    def submit(self, level: Level, job: Job) -> Future[list[Result]]:
        """The results of a job, once it is done. The future raises WrongEnvironment as LocalRunner's does."""
        return self._pool.submit(self._answer, level, job)

    def _answer(self, level: Level, job: Job) -> list[Result]:
        try:
            said, problem = self._at_a_worker("answer", asdict(level), job.to_json())
        except self._ray.exceptions.RayActorError:
            return [job.result(Status.ERROR, "the worker of the cluster that had the job is gone")]
        if problem:
            raise WrongEnvironment(problem)
        return [Result.from_json(result) for result in said]

    def _at_a_worker(self, method: str, *arguments: object) -> tuple[Any, str]:
        worker = self._workers.get()
        try:
            answer: tuple[Any, str] = self._ray.get(getattr(worker, method).remote(*arguments))
            return answer
        finally:
            self._workers.put(worker)


def _alone(jobs: int) -> dict[str, Any]:
    """A Ray that nobody else can reach, without what a cluster needs."""
    return {
        "num_cpus": jobs,
        "include_dashboard": False,
        "object_store_memory": _STORE,
        "_node_ip_address": "127.0.0.1",
    }


class _Worker:
    """Lives in a process of Ray's. Plain data in and out; what is wrong with its machine is text."""

    def __init__(self, limits: Mapping[str, Any]) -> None:
        self._runner = LocalRunner(Limits(**limits))

    def device(self, wanted: str) -> tuple[Any, str]:
        try:
            return asdict(attached(wanted)), ""
        except WrongEnvironment as problem:
            return None, str(problem)

    def answer(self, level: Mapping[str, Any], job: Mapping[str, Any]) -> tuple[Any, str]:
        try:
            results = self._runner.answer(level_from_json(level), Job.from_json(job))
        except WrongEnvironment as problem:
            return None, str(problem)
        return [result.to_json() for result in results], ""

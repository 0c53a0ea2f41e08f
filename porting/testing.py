"""For a plugin's own test suite: ask a level of a model file in a test. `vitport-check --emit-tests` writes such tests.

    from porting.testing import prove

    def test_the_tower_computes_what_the_original_did():
        prove("my_plugin/vision.py", "parity", before="tests/originals/vision.py")

Everything runs in processes of its own, on the attached device. They are started by the first test that asks, and end
with the test run.
"""

from __future__ import annotations

import atexit
from functools import cache
from pathlib import Path

import pytest

from porting import surroundings
from porting.device import Device, attached
from porting.job import Job
from porting.levels import LEVELS
from porting.matrix import BAD
from porting.processes.limits import Limits
from porting.processes.local import LocalRunner
from porting.result import Result, Status
from porting.wrong_environment import WrongEnvironment


def prove(
    path: str | Path,
    level: str,
    *,
    before: str | Path | None = None,
    config: str | Path | None = None,
    dtype: str = "",
    backend: str = "",
) -> list[Result]:
    """Fail the test that calls this if the level finds a fault in the file; skip it if the level did not run.

    `before` is the original of the file, `config` a tiny configuration of its tower as JSON, `dtype` the name of a
    torch dtype, `backend` one of "native", "flash", "triton" and "npu"; empty: the first that the level is asked with.
    Returns the results. Raises ValueError for a level that there is not.
    """
    asked = next((each for each in LEVELS if each.name == level), None)
    if asked is None:
        raise ValueError(f"there is no level {level!r}; there are {', '.join(each.name for each in LEVELS)}")
    try:
        surroundings.release([asked])
        device = _device()
        job = Job(
            Path(path).resolve(),
            level,
            before=None if before is None else Path(before).resolve(),
            config=None if config is None else Path(config).resolve(),
            device=device.type,
            dtype=dtype or next(iter(asked.dtypes), ""),
            backend=backend or next(iter(asked.backends), ""),
        )
        results = _runner().submit(asked, job).result()
    except WrongEnvironment as problem:
        raise pytest.fail.Exception(str(problem), pytrace=False) from None
    return judged(results)


def judged(results: list[Result]) -> list[Result]:
    """The results, if they are good: some passed and none is bad. Else the test ends."""
    bad = [result for result in results if result.status in BAD]
    if bad:
        told = [f"{result.status.value}: {result.summary}\n{result.numbers.get('output', '')}" for result in bad]
        raise pytest.fail.Exception("\n".join(told).rstrip(), pytrace=False)
    if not any(result.status is Status.PASSED for result in results):
        raise pytest.skip.Exception("; ".join(result.summary for result in results), _use_item_location=True)
    return results


@cache
def _device() -> Device:
    return attached(surroundings.device_of_vllm("auto"))


@cache
def _runner() -> LocalRunner:
    runner = LocalRunner(Limits())
    atexit.register(runner.__exit__)
    return runner

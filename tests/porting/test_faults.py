"""Every faulty port is seen by the levels that docs/faults.md names, and by no other; right ports by none.

A level whose check is taken out passes, and the test of a fault that it was to see fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from porting.job import Job
from porting.levels import LEVELS, Level
from porting.processes.job import describe
from porting.result import Result, Status
from tests.porting.faults.faults import FAULTS, Fault
from tests.porting.faults.ports import ORIGINALS, ports

pytestmark = [pytest.mark.vllm, pytest.mark.usefixtures("groups")]

ASKED = [level for level in LEVELS if level.name in {"static", "load", "build", "parity", "paths", "parallel"}]
BAD = {Status.FAILED, Status.ERROR, Status.TIMED_OUT}


def asked(path: Path, tower: str) -> Iterator[tuple[str, list[Result]]]:
    """The results of every level, dtype and backend, asked in the order and on the terms of `porting.check`."""
    failed: set[str] = set()
    for level in ASKED:
        if failed & set(level.after):
            continue
        for dtype, backend, name in variants(level):
            job = Job(path, level.name, ORIGINALS[tower], dtype=dtype, backend=backend)
            try:
                results = level.run(job)
            except Exception as error:  # as in a process of its own
                results = [job.result(Status.ERROR, describe(error))]
            if any(result.status in BAD for result in results):
                failed.add(level.name)
            yield name, results


def variants(level: Level) -> Iterator[tuple[str, str, str]]:
    """The dtypes and backends of a level, float16 left out, and the names of the levels with them."""
    for dtype in [dtype for dtype in level.dtypes or ("float32",) if dtype != "float16"]:
        for backend in level.backends or ("native",):
            several = [part for part, all_parts in ((dtype, level.dtypes), (backend, level.backends)) if all_parts[1:]]
            yield dtype, backend, "/".join([level.name, *several])


@pytest.mark.parametrize("tower", ORIGINALS)
def test_a_right_port_is_seen_by_no_level(tower: str, tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(ports()[tower], encoding="utf-8")

    told = dict(asked(path, tower))

    assert {name.partition("/")[0] for name in told} == {level.name for level in ASKED}
    for results in told.values():
        assert [result.summary for result in results if result.status is not Status.PASSED] == []


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_seen(fault: Fault, tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(fault.applied_to(ports()[fault.tower]), encoding="utf-8")

    told = {
        name: [each.summary for each in results if each.status in BAD] for name, results in asked(path, fault.tower)
    }

    seen = {name: summaries[0] for name, summaries in told.items() if summaries}
    assert seen.keys() == fault.seen_by.keys(), seen
    assert {name: seen[name] for name, part in fault.seen_by.items() if part not in seen[name]} == {}

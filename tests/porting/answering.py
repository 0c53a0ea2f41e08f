"""A level that has the file itself answer, by its function `answer(job)`. For tests of what goes on around levels."""

from __future__ import annotations

import runpy

from porting.job import Job
from porting.result import Result


def run(job: Job) -> list[Result]:
    results: list[Result] = runpy.run_path(str(job.path))["answer"](job)
    return results

"""Do the whole model and the processor of its inputs, as far as the file has them, fit what vLLM calls of them?

These classes are not the vision tower, and what a release changes in them is often for a person to port. Of them only
what fails is a fault: what they compute is not what is proved here. As for `static`, nothing is imported.
"""

from __future__ import annotations

from dataclasses import replace

from codemods.findings import Severity
from porting.job import Job
from porting.levels.static import judged, look_at
from porting.result import Result


def run(job: Job) -> list[Result]:
    """The classes that plug into vLLM, for the installed one or, without one, the newest known."""
    fit = look_at(job.path)
    found = [replace(problem, certain=problem.certain and problem.severity is Severity.ERROR) for problem in fit.rest]
    return [judged(job, found, f"nothing in them fails under {fit.release}", {})]

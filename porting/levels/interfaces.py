"""Do the whole model and the processor of its inputs, as far as the file has them, fit what vLLM calls of them?

These classes are not the vision tower, and what a release changes in them is often for a person to port. Of them only
what fails is a fault: what they compute is not what is proved here. As for `static`, nothing is imported.
"""

from __future__ import annotations

from dataclasses import replace

from codemods.findings import Severity
from porting.job import Job
from porting.levels.static import judged, look_at
from porting.result import Result, Status


def run(job: Job) -> list[Result]:
    """The classes that plug into vLLM, for the installed one or, without one, the newest known."""
    fit = look_at(job)
    if fit.unread:
        return [judged(job, fit.unread, "", {})]
    if not fit.plugged:
        return [job.result(Status.NOT_RUN, "no class here plugs into vLLM as a whole model or a processor")]
    found = [replace(problem, certain=problem.certain and problem.severity is Severity.ERROR) for problem in fit.rest]
    fine = f"nothing fails under {fit.release} in {fit.plugged} classes that plug into vLLM"
    return [judged(job, found, fine, {})]

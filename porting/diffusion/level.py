"""The job of a process that is asked about a package."""

from __future__ import annotations

from porting import host
from porting.diffusion.cases import CASES, DTYPES, WAYS
from porting.diffusion.drawing import draw
from porting.diffusion.judge import judge
from porting.diffusion.package import NAME, enter, package_of, submodule
from porting.diffusion.question import IMPORT
from porting.diffusion.ranks import said
from porting.diffusion.stand_in import stand_in
from porting.job import Job
from porting.result import Result, Status

# What the ranks need, imported once ahead of them.
NEEDED = (
    "diffusion.attention.layer",
    "diffusion.data",
    "diffusion.distributed.parallel_state",
    "diffusion.hooks.sequence_parallel",
)


def run(job: Job) -> list[Result]:
    """A result for each case, way and dtype that `job.only` names; all where it names none of a kind."""
    host.prepare_process()
    package = package_of(job.path)
    enter(package)
    if job.device == "cpu":  # elsewhere ranks do it themselves: an accelerator that was looked at survives no fork
        try:
            stand_in()
            for name in NEEDED:
                submodule(name)
        except ImportError as error:
            foreign = not (error.name or "").startswith(NAME)
            return [job.at(level=IMPORT).result(Status.NOT_RUN if foreign else Status.ERROR, said(error))]
    cases = [case for case in CASES if case.name in job.only]
    ways = [way for way in WAYS if way.name in job.only]
    results: list[Result] = []
    if job.pipeline:
        results += draw(job, job.pipeline, ways)
    for dtype in DTYPES:
        if dtype in job.only:
            results += judge(job, package, cases, ways, dtype)
    return results

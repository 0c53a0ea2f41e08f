"""Does the file import under the installed vLLM?

Asked in a fresh process, which the runner of jobs makes: nothing is there that another file registered or patched.
"""

from __future__ import annotations

from porting import host
from porting.drawn_on import drawn_on, takes_from
from porting.job import Job
from porting.model_file import ModelFileError, is_member, load, load_alone
from porting.result import Result, Status
from porting.towers import structure


def run(job: Job) -> list[Result]:
    """Import the file the way it will be imported when it serves; what is missing is named by file and line.

    A file without a class of torch's modules, and without anything of vLLM's, says nothing by being importable. Of a
    member of a package it is told, as a note, if it needs its package's `__init__.py` to have run.
    """
    host.prepare_process()
    facts = {"dtype": "", "backend": ""}
    try:
        module = load(job.path)
        member = is_member(job.path)
    except ModelFileError as error:
        numbers = {"file": str(error.path), "line": error.line, "missing": error.missing}
        return [job.result(Status.FAILED, str(error), numbers=numbers, **facts)]
    if not structure.classes_in(module) and not takes_from("vllm", [job.path, *drawn_on(job.path)]):
        why = "it imports, and holds nothing to prove: no class of torch's modules, nothing of vLLM's"
        return [job.result(Status.NOT_RUN, why, **facts)]
    numbers = {"module": module.__name__ if member else ""}
    summary = f"imported as {module.__name__}" if member else "imported as a file of its own"
    return [job.result(Status.PASSED, summary, numbers=numbers, notes=_alone(job) if member else (), **facts)]


def _alone(job: Job) -> tuple[str, ...]:
    try:
        load_alone(job.path)
    except ModelFileError as error:
        # Whatever else goes wrong may be that it runs for the second time in this process.
        return (f"without its package: {error}",) if error.missing else ()
    return ()

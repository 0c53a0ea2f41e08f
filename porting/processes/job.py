"""The innermost process: answers one request, within its limits, and is gone."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from porting.environment import prepare_process
from porting.processes.guard import Guard
from porting.processes.limits import confine
from porting.processes.request import Request
from porting.result import Result, Status

_NOT_OWN = (sys.prefix, sys.base_prefix, str(Path(__file__).parents[1]), "<")

SHOW_STACK = signal.SIGUSR1  # the keeper sends it ahead of the kill, to learn where a job hangs


def answer(request: Request) -> list[Result]:
    """Run the level; whatever it raises is a result. Only a death of the process is left to the keeper."""
    os.chdir(request.folder)
    os.environ["TMPDIR"] = str(request.folder)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(request.folder / "inductor")  # else where TMPDIR was at the import
    tempfile.tempdir = None
    sys.dont_write_bytecode = True
    prepare_process()
    faulthandler.enable(all_threads=False)
    faulthandler.register(SHOW_STACK, all_threads=False)
    confine(request.limits, request.job.device)
    if not _exists(request.level.module):
        return [request.job.result(Status.NOT_RUN, f"this vitport has no level {request.level.name!r}")]
    guard = Guard(request.job.path, [request.folder])
    guard.install()
    start = time.monotonic()
    results = _run(request)
    sys.stdout.flush()
    sys.stderr.flush()
    share = (time.monotonic() - start) / len(results)
    return [_with_refusals(result if result.seconds else replace(result, seconds=share), guard) for result in results]


def _run(request: Request) -> list[Result]:
    job, level = request.job, request.level
    try:
        results = level.run(job)
    except BaseException as error:
        traceback.print_exc()
        return [job.result(Status.ERROR, describe(error))]
    if not results:  # what was not compared has not passed
        return [job.result(Status.ERROR, f"the level {level.name!r} gave no result, which is a fault of vitport")]
    return results


def describe(error: BaseException) -> str:
    """Kind, first line of the message, and the innermost line that is no installed package's and none of vitport's."""
    message = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    kind = type(error).__name__
    if isinstance(error, SystemExit):
        kind, message = "the model ended the process", f"sys.exit({error.code!r})"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(_NOT_OWN)] or frames
    where = f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""
    return f"{kind}: {message}{where}" if message else f"{kind}{where}"


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:
        return False


def _with_refusals(result: Result, guard: Guard) -> Result:
    """A model that reached out has not passed, whatever its numbers are."""
    asked = tuple(dict.fromkeys(guard.refused_to_model))
    others = tuple(f"refused: {what}" for what in dict.fromkeys(guard.refused))
    if not asked:
        return replace(result, notes=(*result.notes, *others))
    notes = (*result.notes, *(f"refused to the model: {what}" for what in asked), *others)
    if result.status is not Status.PASSED:
        return replace(result, notes=notes)
    return replace(result, status=Status.ERROR, summary=f"the model tried {asked[0]}, which was refused", notes=notes)

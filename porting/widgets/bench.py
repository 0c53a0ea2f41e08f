"""Where a notebook runs models: one runner, whose warm process serves one step after the other."""

from __future__ import annotations

import atexit
import contextlib
import shlex
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from pathlib import Path

from codemods.trial import Trial
from porting import surroundings
from porting.device import Device
from porting.discovery import Found, Model, find_models
from porting.job import Job
from porting.levels import LEVELS, Level
from porting.matrix import Question, Wishes, ask, questions
from porting.processes.limits import Limits
from porting.processes.local import LocalRunner
from porting.proving import device_for, report_of
from porting.report import Report
from porting.result import Result, Status
from porting.widgets.session import NotYet
from porting.widgets.work import Progress, Stopped

START = "or start JupyterLab under a Python that has them: make notebooks VLLM_PYTHON=PATH, or first make vllm"

Told = Callable[[Question, Sequence[Result] | None], None]


@dataclass(frozen=True)
class Port:
    """A port, what it was made of, and the vLLM that runs it."""

    before: Path
    after: Path
    release: str

    def __str__(self) -> str:
        return f"{self.before} and its port, {self.after}: what follows is run under vLLM {self.release}"


def vllm_to_run_models() -> str:
    """The release of the vLLM of this kernel. Raises WrongEnvironment, with what to do in a notebook."""
    surroundings.need_vllm("notebooks that run models", f"; {START}")
    return surroundings.release(LEVELS)


class Bench:
    """What is looked at in a notebook that runs models: a port, the questions about it, the answers until now."""

    def __init__(self) -> None:
        self._runner: LocalRunner | None = None
        self._port: Port | None = None
        self._report: Report | None = None
        self.device: Device | None = None
        atexit.register(self.close)

    # -- what is proved ------------------------------------------------------------------------------------------------

    def take(self, models: Path, folder: Path) -> Port:
        """The port of models to the installed vLLM: the copy below `folder`, which is made if it is not there.

        Raises TrialError, WrongEnvironment.
        """
        release = vllm_to_run_models()
        after = folder / models.resolve().name
        if not after.exists():
            Trial(models, release).write(folder)
        self._port, self._report = Port(models, after, release), None
        return self._port

    @property
    def port(self) -> Port:
        """Raises NotYet."""
        if self._port is None:
            raise NotYet("no port is chosen yet: run the cell that takes one, above")
        return self._port

    @property
    def report(self) -> Report:
        """Of the last check. Raises NotYet."""
        if self._report is None:
            raise NotYet("nothing is checked yet: run the cell with the matrix, above")
        return self._report

    def model(self, name: str = "") -> Model:
        """The model of that name, or the first whose tower was built. Raises NotYet."""
        report = self.report
        good = [result for result in report.results if result.status is Status.PASSED]
        built = [result.model for result in good if result.level == "build"]
        wanted = name or next(iter(built), "")
        found = next((model for model in report.models if model.name == wanted), None)
        if found is None:
            raise NotYet(f"no tower of {name or 'these models'} was built: ask for the level build, above")
        return found

    def able(self, level: Level) -> list[str]:
        """The dtypes of a level in which the device computes."""
        able = self.device.dtypes if self.device else ()
        return [dtype for dtype in level.dtypes if not able or dtype in able]

    # -- running -------------------------------------------------------------------------------------------------------

    def questions(self, levels: Collection[str], dtypes: Collection[str], wanted: str) -> tuple[Found, list[Question]]:
        """What will be asked, in order. Raises NotYet, WrongEnvironment, and ValueError for a level that is not."""
        chosen = [level for level in LEVELS if level.name in levels]
        if unknown := set(levels) - {level.name for level in LEVELS}:
            raise ValueError(f"there is no level {', '.join(sorted(unknown))}")
        found = find_models([self.port.after], self.port.before, self.port.release)
        if not found.models:
            raise NotYet(f"no model with vision attention in {self.port.after}: choose other models")
        self.device = device_for(chosen, self._at_work(), wanted)
        wishes = Wishes(self.device.type, self.device.dtypes, dtypes)
        return found, questions(found.models, chosen, wishes)

    def check(self, found: Found, asked: Sequence[Question], told: Told, options: Sequence[str] = ()) -> Report:
        """Ask everything; `told` as in `porting.matrix.ask`, and what it raises ends it. Raises Stopped.

        `options` are those of the command that gives the same at a terminal.
        """
        start = time.monotonic()
        assert self.device is not None
        try:
            answers = ask(asked, self._at_work(), told)
        except CancelledError as end:
            raise Stopped from end
        levels = list(dict.fromkeys(question.level for question in asked))
        command = ["vitport-check", str(self.port.after), "--before", str(self.port.before), *options]
        seconds = time.monotonic() - start
        self._report = report_of(answers, found, levels, self.device, shlex.join(command), seconds)
        return self._report

    def look(self, level: Level, model: Model, dtype: str, progress: Progress) -> list[Result]:
        """The figures of a level of `porting.close_look`. Raises Stopped."""
        assert self.device is not None
        job = Job(model.path.resolve(), level.name, before=model.before and model.before.resolve(), dtype=dtype)
        return self.answer(level, job.at(device=self.device.type), progress)

    def answer(self, level: Level, job: Job, progress: Progress) -> list[Result]:
        """What a single question comes to. Raises Stopped."""
        progress(0, 1)
        try:
            results = self._at_work().submit(level, job).result()
        except CancelledError as end:
            raise Stopped from end
        progress(1, 1)
        return results

    def close(self) -> None:
        """End all that is running; the next question starts anew."""
        runner, self._runner = self._runner, None
        if runner is not None:
            with contextlib.suppress(OSError):
                runner.__exit__(None, None, None)

    def _at_work(self) -> LocalRunner:
        if self._runner is None:
            self._runner = LocalRunner(Limits())
        return self._runner

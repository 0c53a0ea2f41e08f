"""The matrix of a check: which questions are asked of which model, in what order, and what came back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from porting.device import Device
from porting.discovery import Model
from porting.job import Job
from porting.levels import Level
from porting.result import Result, Status

BAD = frozenset({Status.FAILED, Status.ERROR, Status.TIMED_OUT})


class Runner(Protocol):
    """What answers jobs, somewhere. To leave it ends all that is running."""

    def __enter__(self) -> Runner: ...

    def __exit__(self, *_: object) -> None: ...

    def device(self, wanted: str) -> Device: ...

    def submit(self, level: Level, job: Job) -> Future[list[Result]]: ...


@dataclass(frozen=True)
class Question:
    """One level for one model. `moot` is why it is not asked, empty if it is."""

    model: Model
    level: Level
    job: Job
    moot: str = ""

    @property
    def label(self) -> str:
        """For a line of progress."""
        return " ".join(filter(None, (self.model.name, self.level.name, self.job.backend, self.job.dtype)))


@dataclass(frozen=True)
class Wishes:
    """What the user narrows the matrix to; empty: everything. `able` are the dtypes that the device computes in."""

    device: str = "cpu"
    able: Collection[str] = ()
    dtypes: Collection[str] = ()
    backends: Collection[str] = ()
    before_release: str = ""
    config: Path | None = None


def questions(models: Sequence[Model], levels: Sequence[Level], wishes: Wishes) -> list[Question]:
    """Every question, model by model, in the order of the levels."""
    found = []
    for model in models:
        start = Job(
            model.path.resolve(),
            "",
            before=model.before and model.before.resolve(),
            before_release=wishes.before_release,
            config=wishes.config and wishes.config.resolve(),
            device=wishes.device,
            given=tuple(path.resolve() for path in model.given),
        )
        for level in levels:
            for dtype, backend, moot in _variants(level, wishes):
                found.append(Question(model, level, start.at(level=level.name, dtype=dtype, backend=backend), moot))
    return found


def _variants(level: Level, wishes: Wishes) -> Iterator[tuple[str, str, str]]:
    """(dtype, backend, why it is not asked). What is not wished for is left out, but a level never in silence."""
    backends = [name for name in level.backends if not wishes.backends or name in wishes.backends]
    if level.backends and not backends:
        yield "", "", f"not asked with --backend {','.join(wishes.backends)}"
        return
    dtypes = (wishes.dtypes or level.dtypes) if level.dtypes else ()
    for backend in backends or [""]:
        for dtype in dtypes or [""]:
            unable = dtype and wishes.able and dtype not in wishes.able
            yield dtype, backend, f"this {wishes.device} does not compute in {dtype}" if unable else ""


def ask(
    asked: Sequence[Question], runner: Runner, tell: Callable[[Question, Sequence[Result] | None], None]
) -> list[tuple[Question, list[Result]]]:
    """The results of every question, in the order of the questions whatever the order of the answers.

    `tell` is called when a question is put to the runner (None) and when it is answered.
    """
    answers: dict[int, list[Result]] = {}
    running: dict[Future[list[Result]], int] = {}
    waiting = list(range(len(asked)))
    while waiting or running:
        for index in list(waiting):
            question = asked[index]
            first = [
                i
                for i in range(index)
                if asked[i].model == question.model and asked[i].level.name in question.level.after
            ]
            if question.moot or all(i in answers for i in first):
                waiting.remove(index)
                moot = question.moot or _fault(asked[i].level.name for i in first if _bad(answers[i]))
                if moot:
                    answers[index] = [_named(question, question.job.result(Status.NOT_RUN, moot))]
                    tell(question, answers[index])
                else:
                    tell(question, None)
                    running[runner.submit(question.level, question.job)] = index
        done, _ = wait(running, return_when=FIRST_COMPLETED) if running else (set(), set())
        for future in sorted(done, key=running.__getitem__):
            index = running.pop(future)
            answers[index] = [_named(asked[index], result) for result in future.result()]
            tell(asked[index], answers[index])
    return [(question, answers[index]) for index, question in enumerate(asked)]


def _bad(results: Sequence[Result]) -> bool:
    return any(result.status in BAD for result in results)


def _fault(levels: Iterator[str]) -> str:
    name = next(levels, "")
    return f"not asked: {name} found a fault" if name else ""


def _named(question: Question, result: Result) -> Result:
    """Levels know a model by its file alone; two files of a run may have one name."""
    return replace(result, model=question.model.name)

"""From answers to a report, for whoever asks: the command, a notebook."""

from __future__ import annotations

from collections.abc import Sequence

from porting import surroundings
from porting.device import Device, processor
from porting.discovery import Found
from porting.levels import Level
from porting.matrix import Question, Runner
from porting.report import Report
from porting.reports.words import place
from porting.result import Result

Answers = list[tuple[Question, list[Result]]]


def device_for(levels: Sequence[Level], runner: Runner, wanted: str) -> Device:
    """The device on which levels are asked: the wanted one where something is computed. Raises WrongEnvironment."""
    if any(level.needs_vllm for level in levels):
        return runner.device(surroundings.device_of_vllm(wanted))
    return processor()


def report_of(
    answers: Answers, found: Found, levels: Sequence[Level], device: Device, command: str, seconds: float
) -> Report:
    """What a run came to. `command` is what gives the same again at a terminal."""
    return Report(
        tuple(result for _, results in answers for result in results),
        found.models,
        tuple(levels),
        device,
        surroundings.versions(),
        command,
        seconds,
        tuple(map(place, found.others)),
        asked=len(answers),
    )

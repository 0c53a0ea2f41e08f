"""The command `vitport-check`, also `python -m porting.check`: models in, each proved level by level, a matrix out.

This module imports neither torch nor vLLM, and no model: those run in processes of their own.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from codemods.migrate import show
from codemods.usage import Parser
from porting import surroundings
from porting.arguments import parser
from porting.commands import cannot_be_written, ended, guarded, unwritten
from porting.levels import LEVELS, Level
from porting.processes.limits import GIB, Limits
from porting.wrong_environment import WrongEnvironment

if TYPE_CHECKING:
    from porting.discovery import Found
    from porting.matrix import Runner
    from porting.proving import Answers
    from porting.report import Report


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code. Raises SystemExit for --help, --version and bad usage."""
    made = parser()
    arguments = made.parse_args(argv)
    command = shlex.join(["vitport-check", *(sys.argv[1:] if argv is None else argv)])
    return guarded(made, lambda: _check(made, arguments, command))


def _check(parser: Parser, arguments: argparse.Namespace, command: str) -> int:
    start = time.monotonic()
    levels = tuple(level for level in LEVELS if not arguments.levels or level.name in arguments.levels)
    _look_at_files(parser, arguments)
    release = surroundings.release(levels)
    surroundings.look_for_room()
    from porting.discovery import find_models

    found = find_models(arguments.paths, arguments.before, release)
    if found.errors:
        parser.error("; ".join(found.errors))
    if not found.models:
        parser.error(f"no model with vision attention in {', '.join(map(str, arguments.paths))}")
    if arguments.before and not any(model.before for model in found.models):
        parser.error(f"--before {arguments.before} has no file at the place of {found.models[0].path}")
    if arguments.before_release and any(level.name == "parity" for level in levels):
        _make_release(parser, arguments.before_release)
    return _tell(*_prove(arguments, command, levels, found, start), arguments)


def _make_release(parser: Parser, release: str) -> None:
    """The environment of an old vLLM, which jobs use and do not make: it may take minutes, and a network."""
    from codemods.vllm_api import resolve
    from porting import releases

    try:
        releases.make(resolve(release))
    except ValueError as problem:
        parser.error(f"--before-release: {problem}")
    except releases.Unavailable as problem:
        raise WrongEnvironment(f"--before-release {release}: {problem}") from problem


def _look_at_files(parser: Parser, arguments: argparse.Namespace) -> None:
    """What can be told of the given files before anything costs time."""
    if arguments.before and not arguments.before.exists():
        parser.error(f"--before {arguments.before}: no such file or folder")
    if (
        arguments.before
        and arguments.before.is_file()
        and not (len(arguments.paths) == 1 and arguments.paths[0].is_file())
    ):
        parser.error(f"--before {arguments.before} is a file: give one file as PATH, or a folder as --before")
    if arguments.config:
        try:
            good = isinstance(json.loads(arguments.config.read_text(encoding="utf-8")), dict)
        except (OSError, ValueError) as error:
            parser.error(f"--config {arguments.config} cannot be read: {error}")
        if not good:
            parser.error(f"--config {arguments.config} holds no JSON object")


def _prove(
    arguments: argparse.Namespace, command: str, levels: tuple[Level, ...], found: Found, start: float
) -> tuple[Report, Answers]:
    from porting.matrix import Wishes, ask, questions
    from porting.proving import device_for, report_of
    from porting.reports.progress import Watcher

    with _runner(arguments) as runner:
        device = device_for(levels, runner, arguments.device)
        wishes = Wishes(
            device.type, device.dtypes, arguments.dtype, arguments.backend, arguments.before_release, arguments.config
        )
        asked = questions(found.models, levels, wishes)
        with Watcher(len(asked), sys.stderr) as watcher:
            answers = ask(asked, runner, watcher)
    return report_of(answers, found, levels, device, command, time.monotonic() - start), answers


def _runner(arguments: argparse.Namespace) -> Runner:
    limits = Limits(arguments.timeout, int(arguments.memory * GIB))
    if arguments.runner == "ray":
        from porting.processes.on_ray import RayRunner

        return RayRunner(limits, arguments.jobs, arguments.device)
    from porting.processes.local import LocalRunner

    return LocalRunner(limits, arguments.jobs)


def _tell(report: Report, answers: Answers, arguments: argparse.Namespace) -> int:
    from porting.emit_tests import emit_tests
    from porting.reports import console, pull_request

    # Written before anything is printed: a reader that goes away must not lose them. What cannot be is said last.
    problems = unwritten(report, arguments.report)
    if arguments.emit_tests:
        try:
            written = emit_tests(arguments.emit_tests, answers)
            told = ", ".join(map(str, written)) or "none: neither parity nor paths nor embeddings ran"
            print(f"tests written: {told}", file=sys.stderr)
        except OSError as error:
            problems.append(cannot_be_written(error.filename or arguments.emit_tests, error))
    if arguments.pull_request:
        sys.stderr.write(console.render(report, sys.stderr.isatty()))
        show(pull_request.render(report))
    else:
        show(console.render(report, sys.stdout.isatty()))
    return ended(report, problems, "vitport-check")


if __name__ == "__main__":
    sys.exit(main())

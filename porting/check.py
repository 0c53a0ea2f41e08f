"""The command `vitport-check`, also `python -m porting.check`: models in, each proved level by level, a matrix out.

This module imports neither torch nor vLLM, and no model: those run in processes of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from codemods import __version__
from porting import surroundings
from porting.levels import BACKENDS, DTYPES, LEVELS, Level
from porting.processes.limits import GIB, Limits
from porting.reports import FORMS, write_report
from porting.wrong_environment import WrongEnvironment

if TYPE_CHECKING:
    from porting.discovery import Found
    from porting.report import Report

BAD_USAGE = 2
INTERRUPTED = 130  # what a shell expects of a program ended by Ctrl-C

_DESCRIPTION = """\
Prove ported vLLM vision-language models on the device that is attached: that they import, build, compute what their
originals computed, call every kernel as it insists on, and serve. Each model runs in a process of its own.
"""

_EPILOG = """\
examples:
  vitport-check models/ --before old/          all levels, beside the originals
  vitport-check models/ --levels static        what can be said without vLLM
  vitport-check models/ --report check.html    the matrix with the numbers behind it, as a page

exit codes:
  0    nothing failed and something passed; what did not run is named
  1    something failed, or nothing could be proved
  2    bad usage, or this environment lacks something: one line says what, and the remedy
  130  interrupted; no process is left
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, not the whole usage: the message says what to do."""
        self.exit(BAD_USAGE, f"vitport-check: {message} (vitport-check --help explains)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code. Raises SystemExit for --help, --version and bad usage."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    command = shlex.join(["vitport-check", *(sys.argv[1:] if argv is None else argv)])
    try:
        return _check(parser, arguments, command)
    except WrongEnvironment as problem:
        parser.exit(BAD_USAGE, f"vitport-check: {problem}\n")
    except KeyboardInterrupt:
        print("vitport-check: interrupted; no process is left", file=sys.stderr)
        return INTERRUPTED


def _parser() -> _Parser:
    parser = _Parser(
        prog="vitport-check",
        usage="vitport-check [options] PATH...",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("paths", nargs="+", type=Path, metavar="PATH", help="a ported model file, or a folder that holds some")
    add("--version", action="version", version=f"vitport {__version__}")

    what = parser.add_argument_group("what to ask")
    add = what.add_argument
    add("--before", type=Path, metavar="PATH", help="the originals: a file for a file, or a folder laid out as PATH")
    add("--before-release", metavar="VLLM", default="", help="the vLLM of the originals, run for real beside the ports")
    add(
        "--levels",
        type=_names([level.name for level in LEVELS]),
        metavar="NAMES",
        default=(),
        help=f"of {', '.join(level.name for level in LEVELS)}; default: all",
    )
    add(
        "--device",
        choices=("auto", "cpu", "cuda", "npu", "xpu", "mps"),
        default="auto",
        help="default: the one attached; ROCm is cuda",
    )
    add(
        "--dtype",
        type=_names(DTYPES),
        metavar="NAMES",
        default=(),
        help=f"of {', '.join(DTYPES)}; default: those of each level",
    )
    add("--backend", type=_names(BACKENDS), metavar="NAMES", default=(), help=f"of {', '.join(BACKENDS)}; default: all")
    add(
        "--config",
        type=Path,
        metavar="FILE",
        help="a tiny configuration of the vision tower, as JSON, for a family that is not known",
    )

    how = parser.add_argument_group("how to run")
    add = how.add_argument
    add("--jobs", type=_positive(int), metavar="N", default=1, help="jobs at a time; default: 1")
    add(
        "--timeout",
        type=_positive(float),
        metavar="S",
        default=Limits.seconds,
        help="seconds for each job; default: %(default)g",
    )
    add(
        "--memory",
        type=_positive(float),
        metavar="GIB",
        default=Limits.memory / GIB,
        help="memory for each job; default: %(default)g",
    )

    telling = parser.add_argument_group("reports")
    add = telling.add_argument
    add(
        "--report",
        type=_report_file,
        metavar="FILE",
        action="append",
        default=[],
        help="also write the report as .html, .md or .json; may be repeated",
    )
    return parser


def _names(known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """A list with commas, in the order of what is known."""

    def parse(text: str) -> tuple[str, ...]:
        given = {name.strip() for name in text.split(",")}
        if unknown := sorted(given - set(known)):
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(known)}")
        return tuple(name for name in known if name in given)

    return parse


def _positive(kind: type[int] | type[float]) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = 0
        if not 0 < value < 2**31:
            raise argparse.ArgumentTypeError(f"{text!r} is no {'whole ' if kind is int else ''}number above 0")
        return value

    return parse


def _report_file(text: str) -> Path:
    path = Path(text)
    if path.suffix not in FORMS:
        raise argparse.ArgumentTypeError(f"{text!r} names no form of report; end it in {', '.join(FORMS)}")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"the folder of {text!r} does not exist")
    return path


def _check(parser: _Parser, arguments: argparse.Namespace, command: str) -> int:
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
    return _tell(_prove(arguments, command, levels, found, start), arguments.report)


def _look_at_files(parser: _Parser, arguments: argparse.Namespace) -> None:
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
) -> Report:
    from porting.device import attached, processor
    from porting.matrix import Wishes, ask, questions
    from porting.processes.local import LocalRunner
    from porting.report import Report
    from porting.reports.progress import Watcher
    from porting.reports.words import place

    computes = any(level.needs_vllm for level in levels)
    device = attached(surroundings.device_of_vllm(arguments.device)) if computes else processor()
    wishes = Wishes(
        device.type, device.dtypes, arguments.dtype, arguments.backend, arguments.before_release, arguments.config
    )
    asked = questions(found.models, levels, wishes)
    limits = Limits(arguments.timeout, int(arguments.memory * GIB))
    with LocalRunner(limits, arguments.jobs) as runner, Watcher(len(asked), sys.stderr) as watcher:
        answers = ask(asked, runner, watcher)
    return Report(
        tuple(result for _, results in answers for result in results),
        found.models,
        levels,
        device,
        surroundings.versions(),
        command,
        time.monotonic() - start,
        tuple(map(place, found.others)),
    )


def _tell(report: Report, files: Sequence[Path]) -> int:
    from porting.reports.console import show

    code = report.exit_code
    for path in files:  # before anything is printed: a reader that goes away must not lose them
        try:
            write_report(report, path)
        except OSError as error:
            print(f"vitport-check: {path} cannot be written: {error.strerror or error}", file=sys.stderr)
            code = BAD_USAGE
    try:
        show(report, sys.stdout)
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes once more at its end; give it somewhere to flush to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


if __name__ == "__main__":
    sys.exit(main())

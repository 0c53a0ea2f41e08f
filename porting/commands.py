"""What the commands of this package have in common: how they end, and that their reports are written."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from traceback import print_exc
from typing import TYPE_CHECKING

from codemods.usage import BAD_USAGE, Parser
from porting.reports import write_report
from porting.wrong_environment import WrongEnvironment

if TYPE_CHECKING:
    from porting.report import Report

INTERRUPTED = 130  # what a shell expects of a program ended by Ctrl-C


def guarded(parser: Parser, work: Callable[[], int]) -> int:
    """The exit code of a command's work, however it ends. Raises SystemExit for a wrong environment."""
    try:
        return work()
    except WrongEnvironment as problem:
        parser.exit(BAD_USAGE, f"{parser.prog}: {problem}\n")
    except KeyboardInterrupt:
        print(f"{parser.prog}: interrupted; no process is left", file=sys.stderr)
        return INTERRUPTED
    except Exception:
        # Left to itself Python would end with 1, which says that what was asked about is wrong.
        print_exc()
        print(f"{parser.prog}: broke off, which is a fault of vitport", file=sys.stderr)
        return BAD_USAGE


def unwritten(report: Report, paths: Sequence[Path]) -> list[str]:
    """Write the report to each path. A line for each that cannot be written, which keeps no other back."""
    problems = []
    for path in paths:
        try:
            write_report(report, path)
        except OSError as error:
            problems.append(cannot_be_written(path, error))
    return problems


def cannot_be_written(path: Path | str, error: OSError) -> str:
    return f"{path} cannot be written: {error.strerror or error}"


def ended(report: Report, problems: Sequence[str], program: str) -> int:
    """The exit code. Said last of all is what could not be written."""
    for problem in problems:
        print(f"{program}: {problem}", file=sys.stderr)
    return BAD_USAGE if problems else report.exit_code

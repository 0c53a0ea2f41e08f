"""The arguments of `vitport-check`, and those that other proofs have too."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from codemods import __version__
from codemods.usage import Parser, given_path, report_file
from porting.levels import BACKENDS, DTYPES, LEVELS
from porting.processes.limits import GIB, Limits
from porting.reports import FORMS

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
  2    bad usage, or this environment lacks something: one line says what, and the remedy; or
       a report or a test could not be written
  130  interrupted; no process is left
"""


def parser() -> Parser:
    made = Parser("vitport-check", _DESCRIPTION, _EPILOG)
    add = made.add_argument
    add("paths", nargs="+", type=given_path, metavar="PATH", help="a ported model file, or a folder that holds some")
    add("--version", action="version", version=f"vitport {__version__}")

    what = made.add_argument_group("what to ask")
    add = what.add_argument
    add(
        "--before",
        type=given_path,
        metavar="PATH",
        help="the originals: a file for a file, or a folder laid out as PATH",
    )
    add("--before-release", metavar="VLLM", default="", help="the vLLM of the originals, run for real beside the ports")
    add(
        "--levels",
        type=names([level.name for level in LEVELS]),
        metavar="NAMES",
        default=(),
        help=f"of {', '.join(level.name for level in LEVELS)}; default: all",
    )
    add_device(add, "cpu", "cuda", "npu", "xpu", "mps")
    add(
        "--dtype",
        type=names(DTYPES),
        metavar="NAMES",
        default=(),
        help=f"of {', '.join(DTYPES)}; default: those of each level",
    )
    add("--backend", type=names(BACKENDS), metavar="NAMES", default=(), help=f"of {', '.join(BACKENDS)}; default: all")
    add(
        "--config",
        type=Path,
        metavar="FILE",
        help="a tiny configuration of the vision tower, as JSON, for a family that is not known",
    )

    how = made.add_argument_group("how to run")
    add = how.add_argument
    add("--jobs", type=positive(int), metavar="N", default=1, help="jobs at a time; default: 1")
    add(
        "--runner",
        choices=("local", "ray"),
        default="local",
        help="where jobs run: here, or on the devices of a Ray cluster (RAY_ADDRESS); default: local",
    )
    add_limits(add, "job")

    telling = made.add_argument_group("reports")
    add = telling.add_argument
    add_report(add)
    add(
        "--emit-tests",
        type=Path,
        metavar="DIR",
        help="also write a pytest file for each model into DIR, to be committed beside it",
    )
    add(
        "--pull-request",
        action="store_true",
        help="print the text of a pull request, as vLLM's template asks; the report goes to the error stream",
    )
    return made


Add = Callable[..., argparse.Action]


def add_device(add: Add, *types: str) -> None:
    add("--device", choices=("auto", *types), default="auto", help="default: the one attached; ROCm is cuda")


def add_limits(add: Add, what: str) -> None:
    """How long each of what is asked may take, and how much memory."""
    told = f"for each {what}; default: %(default)g"
    add("--timeout", type=positive(float), metavar="S", default=Limits.seconds, help=f"seconds {told}")
    add("--memory", type=positive(float), metavar="GIB", default=Limits.memory / GIB, help=f"memory {told}")


def add_report(add: Add) -> None:
    add(
        "--report",
        type=report_file(tuple(FORMS)),
        metavar="FILE",
        action="append",
        default=[],
        help="also write the report as .html, .md or .json; may be repeated",
    )


def names(known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """A list with commas, in the order of what is known."""

    def parse(text: str) -> tuple[str, ...]:
        given = {name.strip() for name in text.split(",")}
        if unknown := sorted(given - set(known)):
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(known)}")
        return tuple(name for name in known if name in given)

    return parse


def positive(kind: type[int] | type[float]) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = 0
        if not 0 < value < 2**31:
            raise argparse.ArgumentTypeError(f"{text!r} is no {'whole ' if kind is int else ''}number above 0")
        return value

    return parse

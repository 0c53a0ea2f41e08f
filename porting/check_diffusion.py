"""`python -m porting.check_diffusion`: attention that ranks share, of a vllm_omni package, proved; a matrix out.

This module imports neither torch nor vLLM, and no package that is asked about: those run in processes of their own.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from codemods import __version__
from codemods.migrate import show
from codemods.usage import Parser, given_path
from porting import surroundings
from porting.arguments import add_device, add_limits, add_report, names
from porting.commands import ended, guarded, unwritten
from porting.diffusion.cases import CASES, DTYPES, ONE_RANK, WAYS
from porting.diffusion.package import Package, package_of
from porting.diffusion.question import IMPORT, LEVEL, PROMPT, RANKS, job
from porting.levels import Level
from porting.processes.limits import GIB, Limits
from porting.wrong_environment import WrongEnvironment

if TYPE_CHECKING:
    from porting.report import Report
    from porting.result import Result

_DESCRIPTION = """\
Prove that the attention of diffusion models in a vllm_omni package gives, on several ranks that share a sequence, what
it gives on one: by Ulysses, by a ring and by both, under collectives that insist on what Ascend's HCCL insists on. On a
CPU the ranks are processes over gloo, and a platform that says it is an NPU stands in.
"""

_EPILOG = """\
examples:
  python -m porting.check_diffusion vllm_omni/                        on two and on four ranks
  python -m porting.check_diffusion vllm_omni/ --before original/     the same, beside the package before it was ported
  python -m porting.check_diffusion vllm_omni/ --ranks 2 --report check.html

exit codes:
  0    nothing failed and something passed; what the package declines is named, with its reason
  1    something failed, or nothing could be proved
  2    bad usage, or this environment lacks something: one line says what, and the remedy
  130  interrupted; no process is left
"""


def parser() -> Parser:
    made = Parser("python -m porting.check_diffusion", _DESCRIPTION, _EPILOG)
    add = made.add_argument
    add(
        "path",
        type=given_path,
        metavar="PATH",
        help="a vllm_omni package: its folder, one that holds it, or a file in it",
    )
    add("--version", action="version", version=f"vitport {__version__}")
    add(
        "--before",
        type=given_path,
        metavar="PATH",
        help="the package before it was ported; what it does is told beside",
    )
    add(
        "--ranks",
        type=names([str(number) for number in sorted({way.ranks for way in WAYS})]),
        metavar="NUMBERS",
        default=tuple(map(str, RANKS)),
        help=f"of 2, 3, 4; default: {','.join(map(str, RANKS))}",
    )
    cases = [case.name for case in CASES]
    add("--cases", type=names(cases), metavar="NAMES", default=(), help=f"of {', '.join(cases)}; default: all")
    add("--dtype", type=names(DTYPES), metavar="NAMES", default=(), help=f"of {', '.join(DTYPES)}; default: both")
    add("--pipeline", type=Path, metavar="DIR", help="also draw, with a Qwen-Image pipeline as diffusers saves one")
    add("--prompt", default=PROMPT, help="what to draw; default: %(default)s")
    add_device(add, "cpu", "cuda", "npu", "xpu")
    add_limits(add, "package")
    add_report(add)
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code. Raises SystemExit for --help, --version and bad usage."""
    made = parser()
    arguments = made.parse_args(argv)
    command = shlex.join([*made.prog.split(), *(sys.argv[1:] if argv is None else argv)])
    return guarded(made, lambda: _check(made, arguments, command))


def _check(parser: Parser, arguments: argparse.Namespace, command: str) -> int:
    start = time.monotonic()
    try:
        package = package_of(arguments.path)
        before = package_of(arguments.before) if arguments.before else None
        job(package.root, pipeline=arguments.pipeline)
    except ValueError as problem:
        parser.error(str(problem))
    surroundings.need_vllm("the ranks")
    if arguments.pipeline:
        packages = ("diffusers", "cache_dit", "PIL", "accelerate")
        surroundings.need(packages, "--pipeline needs", "install diffusers, cache-dit, pillow and accelerate")
    surroundings.look_for_room()
    report = _prove(arguments, command, package, before)
    report = replace(report, seconds=time.monotonic() - start)
    problems = unwritten(report, arguments.report)
    from porting.reports import console

    show(console.render(report, sys.stdout.isatty()))
    return ended(report, problems, parser.prog)


def _prove(arguments: argparse.Namespace, command: str, package: Package, before: Package | None) -> Report:
    from porting.discovery import Model
    from porting.processes.local import LocalRunner
    from porting.report import Report

    limits = Limits(arguments.timeout, int(arguments.memory * GIB))
    with LocalRunner(limits) as runner:
        device = runner.device(surroundings.device_of_vllm(arguments.device))
        ranks = tuple(map(int, arguments.ranks))

        def asked(of: Package) -> Sequence[Result]:
            drawing = arguments.pipeline, arguments.prompt
            wanted = job(of.root, ranks, arguments.cases, arguments.dtype, device.type, *drawing)
            return _importable(of, runner.answer(LEVEL, wanted))

        results = asked(package)
        if before:
            results = _beside(results, asked(before))
    ways = [ONE_RANK, *(way for way in WAYS if way.ranks in ranks)]
    rows = dict.fromkeys(result.model for result in results)
    return Report(
        tuple(results),
        tuple(Model(package.root, name, before.root if before else None) for name in rows),
        tuple(Level(way.name, way.question, LEVEL.module) for way in ways),
        device,
        {**surroundings.versions(), "vllm-omni": package.version or "of no known version"},
        command,
        row="case",
    )


def _importable(package: Package, results: Sequence[Result]) -> Sequence[Result]:
    """Raises WrongEnvironment where the installed vLLM, or another package, has not what this one imports."""
    from porting.result import Status

    if results[0].level == IMPORT and results[0].status is Status.NOT_RUN:
        installed = surroundings.versions().get("vLLM", "")
        raise WrongEnvironment(
            f"{package.root} ({package.version}) cannot be imported under vLLM {installed}: {results[0].summary}; "
            "run this in an environment that it is for"
        )
    return results


def _beside(results: Sequence[Result], original: Sequence[Result]) -> list[Result]:
    """Each result with a word on what the package before the port does there, where that is another matter."""
    before = {(result.model, result.level, result.dtype): result for result in original}
    told = []
    for result in results:
        there = before.get((result.model, result.level, result.dtype), original[0])
        note = f"before the port: {there.status.value}, {there.summary}"
        told.append(result if there.status is result.status else replace(result, notes=(*result.notes, note)))
    return told


if __name__ == "__main__":
    sys.exit(main())

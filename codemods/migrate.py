"""The command `vitport`, also `python -m codemods.migrate`: arguments in, one run, its report and exit code out.

This module and what it imports at the top stay free of LibCST and rich: `--help` and mistakes are answered at once.
"""

from __future__ import annotations

import argparse
import gc
import io
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from codemods import __version__
from codemods.reports import SUFFIXES, write_report
from codemods.reports.progress import Progress
from codemods.usage import Parser, given_path, report_file

if TYPE_CHECKING:
    from codemods.findings import Report
    from codemods.rule import Rule
    from codemods.run import Options

BROKE_OFF = UNWRITTEN = 2
INTERRUPTED = 130  # what a shell expects of a program ended by Ctrl-C

_DESCRIPTION = """\
Port vLLM vision-language model files between vLLM versions, in place: every vision attention becomes
MMEncoderAttention. What a program must not decide is left as it is and reported, line by line, with what to do.
"""

_EPILOG = """\
examples:
  vitport --diff models/                     show what would change, write nothing
  vitport models/ --target 0.32              port to vLLM 0.32
  vitport models/ --report report.sarif      the same report for a code host
  vitport --check --quiet models/            for CI: names what is left, and fails

exit codes:
  0    nothing left to do
  1    findings remain for a person; with --check or --diff also: files would change
  2    some input could not be read, parsed or written, or bad usage; other files are done
  130  interrupted; every file is whole, either as it was or as ported
"""


class OutputError(Exception):
    """Standard output cannot be written."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code. Raises SystemExit for --help, --version and bad usage."""
    parser = _parser()
    return guarded(lambda: _main(parser, parser.parse_args(argv)))


def guarded(command: Callable[[], int]) -> int:
    """The exit code of a command, whatever happens to it; bad usage and --help raise SystemExit."""
    _tolerate_any_text()
    try:
        try:
            return command()
        except SystemExit:
            show("")  # what --help printed, if it can be
            raise
    except OutputError as error:
        complain(f"error: {error}\n")
        return UNWRITTEN
    except KeyboardInterrupt:
        print("vitport: interrupted; every file is whole, as it was or as ported: run again to go on", file=sys.stderr)
        return INTERRUPTED
    except Exception:
        # Left to itself Python would end with 1, which says that all went well and findings remain.
        from traceback import print_exc

        print_exc()
        print("vitport: broke off, which is a fault of vitport; every file is whole", file=sys.stderr)
        return BROKE_OFF


def _main(parser: Parser, arguments: argparse.Namespace) -> int:
    if arguments.list_rules or arguments.explain:
        return _tell_rules(parser, arguments)
    if not arguments.paths:
        parser.error("give at least one file or folder")
    options, why_target = _options(parser, arguments)
    return _tell(_run(arguments.paths, options), arguments, why_target)


def _run(paths: Sequence[Path], options: Options) -> Report:
    from codemods.run import migrate

    progress = Progress(sys.stderr)
    gc.disable()  # syntax trees are kept to the end anyway; to look through them for cycles takes a fifth of the time
    try:
        return migrate(paths, options, progress)
    finally:
        gc.enable()
        progress.close()


def _parser() -> Parser:
    parser = Parser("vitport", _DESCRIPTION, _EPILOG)
    add = parser.add_argument
    add(
        "paths",
        nargs="*",
        type=given_path,
        metavar="PATH",
        help="a Python file or notebook, or a folder to search for *.py and *.ipynb",
    )
    add("--version", action="version", version=f"vitport {__version__}")

    add_versions(parser, several=True)

    what = parser.add_argument_group("what to do")
    add = what.add_argument
    add("--diff", action="store_true", help="print a patch for 'git apply', the report on stderr; write nothing")
    add("--check", action="store_true", help="judge only; write nothing")
    add("--select", metavar="CODES", action="append", default=[], help="only these rules: codes or their beginnings")
    add("--ignore", metavar="CODES", action="append", default=[], help="all rules but these (both: a,b or repeated)")
    add(
        "--keep-params",
        action="store_true",
        help="go on accepting constructor parameters that are no longer used, for callers outside the given files",
    )
    add(
        "--keep-guards",
        action="store_true",
        help="leave 'if' and 'try' statements that ask for vLLM's version, and what is in them, as they are",
    )
    add("--jobs", metavar="N", type=_jobs, default=_processors(), help="worker processes; default: one a processor")

    telling = parser.add_argument_group("reports and rules")
    add = telling.add_argument
    add(
        "--report",
        metavar="FILE",
        type=report_file(SUFFIXES),
        action="append",
        default=[],
        help=f"also write the report to FILE, in the form its suffix names ({', '.join(SUFFIXES)}); may be repeated",
    )
    add("--quiet", action="store_true", help="print only what is left to do; with --diff only the patch; errors always")
    add("--list-rules", action="store_true", help="list the rules and end")
    add("--explain", metavar="CODE", help="print a rule's page: what it does, why, and examples; and end")
    return parser


def add_versions(parser: argparse.ArgumentParser, several: bool = False) -> None:
    """The arguments that say between which versions to go."""
    add = parser.add_argument_group("versions").add_argument
    add(
        "--target",
        metavar="VLLM",
        action="append" if several else "store",
        help="the vLLM to port to: a release such as 0.32, 'latest', or 'installed'; "
        "default: the one installed here, else the latest known"
        + ("; given several times: one text that serves all of them" if several else ""),
    )
    add(
        "--source",
        metavar="VLLM",
        default="auto",
        help="the vLLM the files were written for; default 'auto': inferred for each file from the API it uses",
    )


def _jobs(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of processes; give 1 or more")
    return int(text)


def _processors() -> int:
    """Those this process may use, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _options(parser: Parser, arguments: argparse.Namespace) -> tuple[Options, str]:
    """The run's options, and how its target was chosen."""
    from codemods.run import Options, active_rules

    targets, why_target, source = versions(parser, arguments, arguments.target or [None])
    options = Options(
        target=targets[-1],
        also=targets[:-1],
        source=source,
        write=not (arguments.diff or arguments.check),
        jobs=arguments.jobs,
        select=_codes(parser, "--select", arguments.select),
        ignore=_codes(parser, "--ignore", arguments.ignore),
        keep_params=arguments.keep_params,
        keep_guards=arguments.keep_guards,
    )
    if not any(options.asks_for(rule) for rule in active_rules(options)):
        parser.error("argument --ignore: with these, no rule that is asked for is left to run")
    return options, why_target


def versions(
    parser: Parser, arguments: argparse.Namespace, specs: Sequence[str | None]
) -> tuple[tuple[str, ...], str, str | None]:
    """The targets, the oldest first, how they were chosen, and the source if one is named; bad ones end the program."""
    from codemods.target import release_key

    try:
        chosen = dict(map(_target, specs))
        targets = tuple(sorted(chosen, key=release_key))
        return targets, ", ".join(dict.fromkeys(chosen.values())), _source(arguments.source, targets[0])
    except ValueError as error:
        parser.error(str(error))


def _target(spec: str | None) -> tuple[str, str]:
    """A full release, and why that one. Raises ValueError where there is none to port to."""
    from codemods import vllm_api
    from codemods.target import target

    if spec not in (None, "installed"):
        release, why = vllm_api.resolve(spec), "the newest known" if spec == "latest" else "as given"
    elif found := vllm_api.installed():
        try:
            release, why = vllm_api.resolve(found), "as installed here"
        except ValueError as error:
            raise ValueError(f"vLLM {found} is installed here, but {error}; name a release with --target") from error
    elif spec == "installed":
        raise ValueError("argument --target: no vLLM is installed here; name a release")
    else:
        release, why = vllm_api.resolve("latest"), "the newest known; no vLLM is installed here"
    target(release)
    return release, why


def _source(spec: str, target: str) -> str | None:
    """A full release, or None to infer it. Raises ValueError where it is unknown or newer than the target."""
    if spec == "auto":
        return None
    from codemods import vllm_api

    source = vllm_api.resolve(spec)
    releases = vllm_api.releases()
    if releases.index(source) > releases.index(target):
        raise ValueError(
            f"argument --source: {source} is newer than the target {target}; files are only ported forward"
        )
    return source


def _codes(parser: Parser, flag: str, values: Sequence[str]) -> frozenset[str]:
    if not values:
        return frozenset()
    from codemods.rules import RULES

    codes = frozenset(code.strip().upper() for value in values for code in value.split(","))
    for code in sorted(codes):
        if not code or not any(rule.code.startswith(code) for rule in RULES):
            parser.error(f"argument {flag}: {_unknown(code, RULES)}")
    return codes


def _unknown(code: str, rules: Sequence[Rule]) -> str:
    from difflib import get_close_matches

    near = [rule.code for rule in rules if rule.code.startswith(code.strip().upper())][:3] if code.strip() else []
    near = near or get_close_matches(code.upper(), [rule.code for rule in rules], n=3)
    near += [rule.code for rule in rules if rule.name.casefold() == code.casefold()]
    return f"no rule has the code {code!r}; " + (f"near: {', '.join(near)}" if near else "--list-rules names them all")


def _tell_rules(parser: Parser, arguments: argparse.Namespace) -> int:
    from codemods.rule_pages import page
    from codemods.rules import RULES

    if arguments.explain:
        code = arguments.explain.strip().upper()
        rule = next((rule for rule in RULES if rule.code == code), None)
        if rule is None:
            parser.error(f"argument --explain: {_unknown(arguments.explain, RULES)}")
        show(page(rule))
    else:
        show("".join(f"{rule.code}  {rule.name}: {rule.summary} [{rule.safety}]\n" for rule in RULES))
    return 0


def _tell(report: Report, arguments: argparse.Namespace, why_target: str) -> int:
    from codemods.reports import console, diff
    from codemods.source_file import SourceError

    errors = console.failures(report)
    patch: str | bytes = b""
    try:
        patch = diff.render(report) if arguments.diff else b""
    except SourceError as error:
        errors += f"error: {error}\n"
        report = replace(report, incomplete=True)
    # Before anything is printed: a reader that goes away must not lose the reports.
    if unwritten := _write_reports(report, arguments.report):
        errors += "".join(unwritten.values())
        report = replace(report, incomplete=True)
        _write_reports(report, [path for path in arguments.report if path not in unwritten])
    if not report.files:
        errors += _nothing_found(arguments.paths)

    def text() -> str:
        return console.problems(report) if arguments.quiet else console.render(report, why_target)

    try:
        show(patch if arguments.diff else text())
    except OutputError as error:
        errors += f"error: {error}\n"
        report = replace(report, incomplete=True)
    complain((text() if arguments.diff and not arguments.quiet else "") + errors)
    return report.exit_code


def _write_reports(report: Report, paths: Sequence[Path]) -> dict[Path, str]:
    """Write the report's files; of those that cannot be written, why."""
    failed = {}
    for path in paths:
        try:
            write_report(report, path)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            failed[path] = f"error: {path}: the report cannot be written: {why}\n"
    return failed


def _nothing_found(paths: Sequence[Path]) -> str:
    from codemods.discover import discover

    skipped = [f"{skipped.path} ({skipped.reason})" for skipped in discover(paths).skipped]
    names = ", ".join(map(str, paths))
    return f"vitport: no Python files in {names}" + (f"; skipped {', '.join(skipped)}" if skipped else "") + "\n"


def show(what: str | bytes) -> None:
    """To standard output. A reader that has gone away, as `head` does, is no error: the work itself is done.

    Raises OutputError where it cannot be written, as on a full disk.
    """
    try:
        if isinstance(what, bytes):
            sys.stdout.flush()
            sys.stdout.buffer.write(what)
        else:
            sys.stdout.write(what)
        sys.stdout.flush()
    except OSError as error:
        _give_up(sys.stdout)
        if not isinstance(error, BrokenPipeError):
            raise OutputError(f"standard output cannot be written: {(error.strerror or str(error)).lower()}") from error


def complain(what: str) -> None:
    """To the error stream. Where that cannot be written either, the exit code has to do."""
    try:
        sys.stderr.write(what)
        sys.stderr.flush()
    except OSError:
        _give_up(sys.stderr)


def _give_up(stream: TextIO) -> None:
    """The interpreter flushes once more at its end; give it somewhere to flush to."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _tolerate_any_text() -> None:
    """A file name or message the terminal cannot show is escaped; it must not end the run."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    sys.exit(main())

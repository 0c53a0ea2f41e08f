"""`python -m codemods.what_breaks PATH --target 0.32`: what that vLLM changes for the files, as Markdown for an issue.

The same run as `vitport --check`; nothing is written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from codemods import migrate
from codemods.reports import console, what_breaks

_EPILOG = """\
exit codes, as of vitport --check:
  0    the target changes nothing for these files
  1    it does
  2    some input could not be read or parsed, or bad usage
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code. Raises SystemExit for --help and bad usage."""
    parser = migrate.Parser(
        prog="python -m codemods.what_breaks",
        usage="python -m codemods.what_breaks [options] PATH...",
        description="What of a plugin a vLLM breaks, as Markdown: bases, constructors, calls, imports, patches.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="a Python file, or a folder of them")
    migrate.add_versions(parser)
    return migrate.guarded(lambda: _run(parser, parser.parse_args(argv)))


def _run(parser: migrate.Parser, arguments: argparse.Namespace) -> int:
    from codemods.breakage import changes
    from codemods.run import Options, examine

    target, _, source = migrate.versions(parser, arguments)
    report, plan = examine(arguments.paths, Options(target, source, write=False))
    plans = {str(file.file.path): file for file in plan.files}
    found = {file.path: changes(plan, plans[file.path], file.findings) for file in report.files if file.path in plans}
    migrate.show(what_breaks.render(report, found))
    sys.stderr.write(console.failures(report))
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())

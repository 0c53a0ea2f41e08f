"""`python -m codemods.what_breaks PATH --target 0.32`: what that vLLM changes for the files, as Markdown for an issue.

The same run as `vitport --check`; nothing is written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from codemods import migrate
from codemods.findings import Change, Finding
from codemods.notebook import SUFFIX, Notebook
from codemods.reports import console, what_breaks
from codemods.source_file import SourceFile
from codemods.usage import Parser, given_path

_EPILOG = """\
exit codes:
  0    the target changes nothing for these files
  1    it does
  2    some input could not be read or parsed, or bad usage
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code. Raises SystemExit for --help and bad usage."""
    parser = Parser(
        "python -m codemods.what_breaks",
        "What of a plugin a vLLM breaks, as Markdown: bases, constructors, calls, imports, patches.",
        _EPILOG,
    )
    parser.add_argument(
        "paths", nargs="+", type=given_path, metavar="PATH", help="a Python file or notebook, or a folder of them"
    )
    migrate.add_versions(parser)
    return migrate.guarded(lambda: _run(parser, parser.parse_args(argv)))


def _run(parser: Parser, arguments: argparse.Namespace) -> int:
    from codemods.breakage import changes
    from codemods.run import Options, examine

    (target,), _, source = migrate.versions(parser, arguments, [arguments.target])
    report, plan = examine(arguments.paths, Options(target, source, write=False))
    plans = {str(file.file.path): file for file in plan.files}
    found: dict[str, list[Change]] = {}
    for told in report.files:
        file = plans.get(told.path)
        if file is not None and told.error is None:
            cells = _Cells(file.file.path)
            made = changes(plan, file, [cells.flat(finding) for finding in told.findings])
            found[told.path] = [cells.placed(change) for change in made]
    if any(file.error is None for file in report.files):
        migrate.show(what_breaks.render(report, found))
    migrate.complain(console.failures(report))
    if any(file.error is not None for file in report.files):
        return 2
    return 1 if any(found.values()) else 0


class _Cells:
    """Between the lines of a notebook's cells, which people are told, and those of all its code, which are planned."""

    def __init__(self, path: Path) -> None:
        self._notebook = Notebook(SourceFile.read(path).text) if path.suffix == SUFFIX else None

    def flat(self, finding: Finding) -> Finding:
        if self._notebook is None or finding.cell is None:
            return finding
        return replace(finding, line=self._notebook.line(finding.cell, finding.line), cell=None)

    def placed(self, change: Change) -> Change:
        if self._notebook is None:
            return change
        cell, line = self._notebook.place(change.line)
        return replace(change, cell=cell, line=line)


if __name__ == "__main__":
    sys.exit(main())

"""Write docs/findings.md: what is left for a person when vision files of real vLLM releases are ported.

    python docs/make_findings.py            # write the page
    python docs/make_findings.py --check    # exit 1 if the page is not what would be written

The wheels of the releases are downloaded once into the cache of the tests.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from codemods.findings import FileReport, Report, Severity  # noqa: E402
from docs.made_page import main  # noqa: E402
from tests import wheels  # noqa: E402
from tests.corpus.port import run  # noqa: E402
from tests.corpus.vision_files import NUMBER, RELEASES, lay_out_alone  # noqa: E402

PAGE = ROOT / "docs" / "findings.md"
TARGETS = ("0.13", "0.14", "0.20", "0.28", "0.32")

INTRODUCTION = f"""\
# What is left for a person

The {NUMBER} files of five vLLM releases that have a part in vision attention, each release's as a package of its own,
ported to five targets: the number of findings that remain in each file. Errors fail at import, construction or a call;
**w** are warnings, *n* notes. An empty cell means that nothing is left to do. `vitport --explain CODE` tells of a
finding.

The page is made by `python docs/make_findings.py`.
"""


@dataclass(frozen=True)
class Column:
    """What the page says of a release ported to one target: how many files need nobody, and a cell for each file."""

    done: str
    cells: dict[str, str]


Columns = dict[tuple[str, str], Column]  # by release and target


def page() -> str:
    return written({(release, target): ported(release, target) for release in RELEASES for target in TARGETS})


def written(columns: Columns) -> str:
    head = [" | ".join(TARGETS) + " |", "|---|" + "---|" * len(TARGETS)]
    parts = [INTRODUCTION.rstrip("\n"), f"| files left with nothing to do | {head[0]}\n{head[1]}"]
    for release in RELEASES:
        parts[-1] += f"\n| from {release} | {' | '.join(columns[release, target].done for target in TARGETS)} |"
    for release in RELEASES:
        of = [columns[release, target].cells for target in TARGETS]
        rows = [f"| {name} | {' | '.join(cells[name] for cells in of)} |" for name in of[0]]
        parts += [f"## From {release}", "\n".join([f"| file | {head[0]}", head[1], *rows])]
    return "\n\n".join(parts) + "\n"


def read(text: str) -> Columns:
    """The columns of a page as it was written."""
    done, found = {}, {}
    for part in text.split("\n## From ")[1:]:
        release, *lines = part.splitlines()
        (totals,) = re.findall(rf"^\| from {re.escape(release)} \| (.*) \|$", text, re.MULTILINE)
        rows = [line[2:-2].split(" | ") for line in lines if line.startswith("| ")][1:]
        for place, target in enumerate(TARGETS):
            done[release, target] = totals.split(" | ")[place]
            found[release, target] = {name: cells[place] for name, *cells in rows}
    return {key: Column(done[key], cells) for key, cells in found.items()}


def ported(release: str, target: str) -> Column:
    with TemporaryDirectory() as scratch:
        return column(run([lay_out_alone(wheels.model_files(release), Path(scratch) / "ported")], target))


def column(report: Report) -> Column:
    files = {Path(file.path).name: file for file in report.files}
    del files["__init__.py"]
    done = sum(all(finding.severity is Severity.NOTE for finding in file.findings) for file in files.values())
    return Column(f"{done} of {len(files)}", {name: cell(file) for name, file in files.items()})


def cell(file: FileReport) -> str:
    count = Counter(finding.severity for finding in file.findings)
    forms = ((Severity.ERROR, "{}"), (Severity.WARNING, "**{}w**"), (Severity.NOTE, "*{}n*"))
    return " ".join(form.format(count[severity]) for severity, form in forms if count[severity])


if __name__ == "__main__":
    sys.exit(main(PAGE, page, "Count what is left for a person."))

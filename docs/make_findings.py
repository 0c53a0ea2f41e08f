"""Write docs/findings.md: what is left for a person when vision files of real vLLM releases are ported.

    python docs/make_findings.py            # write the page
    python docs/make_findings.py --check    # exit 1 if the page is not what would be written

The wheels of the releases are downloaded once into the cache of the tests.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from codemods.findings import FileReport, Severity  # noqa: E402
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


def page() -> str:
    reports = {(release, target): ported(release, target) for release in RELEASES for target in TARGETS}
    written = [INTRODUCTION, summary(reports)]
    for release in RELEASES:
        columns = [reports[release, target] for target in TARGETS]
        written += [f"## From {release}", table(columns)]
    return "\n\n".join(part.rstrip("\n") for part in written) + "\n"


def ported(release: str, target: str) -> dict[str, FileReport]:
    """The reports of a release's vision files by their names."""
    with TemporaryDirectory() as scratch:
        folder = lay_out_alone(wheels.model_files(release), Path(scratch) / "ported")
        files = {Path(file.path).name: file for file in run([folder], target).files}
    del files["__init__.py"]
    return files


def summary(reports: dict[tuple[str, str], dict[str, FileReport]]) -> str:
    """How many of a release's files need nobody."""
    rows = [f"| files left with nothing to do | {' | '.join(TARGETS)} |", "|---|" + "---|" * len(TARGETS)]
    for release in RELEASES:
        cells = []
        for target in TARGETS:
            files = reports[release, target].values()
            done = sum(all(finding.severity is Severity.NOTE for finding in file.findings) for file in files)
            cells.append(f"{done} of {len(files)}")
        rows.append(f"| from {release} | {' | '.join(cells)} |")
    return "\n".join(rows)


def table(columns: Sequence[dict[str, FileReport]]) -> str:
    rows = [f"| file | {' | '.join(TARGETS)} |", "|---|" + "---|" * len(TARGETS)]
    rows += [f"| {name} | {' | '.join(cell(column[name]) for column in columns)} |" for name in columns[0]]
    return "\n".join(rows)


def cell(file: FileReport) -> str:
    count = Counter(finding.severity for finding in file.findings)
    forms = ((Severity.ERROR, "{}"), (Severity.WARNING, "**{}w**"), (Severity.NOTE, "*{}n*"))
    return " ".join(form.format(count[severity]) for severity, form in forms if count[severity])


if __name__ == "__main__":
    sys.exit(main(PAGE, page, "Count what is left for a person."))

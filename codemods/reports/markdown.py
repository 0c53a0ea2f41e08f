"""The report for an issue or a pull request: what is left, as boxes to tick, then what was done, folded away."""

from __future__ import annotations

import re
from collections.abc import Iterator

from codemods.findings import FileReport, Finding, Report, Rewrite, Severity
from codemods.reports import counts

_CODE_SPAN = re.compile(r"(`[^`]*`)")
_SPECIAL = re.compile(r"([\\*<\[]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")  # an underscore inside a word is itself


def render(report: Report) -> str:
    sections = [_head(report), _findings(report), _failures(report), _rewrites(report)]
    return "\n\n".join("\n".join(lines) for lines in map(list, sections) if lines) + "\n"


def _head(report: Report) -> Iterator[str]:
    yield f"# Port to vLLM {report.target}"
    yield ""
    yield f"By vitport {report.version}: {counts.result(report)}."
    yield ""
    yield f"- files: {counts.files(report)}"
    yield f"- sites: {counts.sites(report)}"
    yield f"- findings: {counts.findings(report)}"


def _findings(report: Report) -> Iterator[str]:
    files = [file for file in report.files if file.findings]
    if files:
        yield "## Left for a person"
    for file in files:
        yield ""
        yield f"### {code(file.path)}"
        yield ""
        for finding in file.findings:
            box = "" if finding.severity is Severity.NOTE else "[ ] "
            grade = f"**{finding.severity.value}** {code(finding.code)}"
            yield f"- {box}{_where(finding)}, {grade}: {text(finding.message)}"
            yield f"  - to do: {text(finding.remedy)}"


def _failures(report: Report) -> Iterator[str]:
    files = [file for file in report.files if file.error is not None]
    if files:
        yield "## Failed, left as they were"
        yield ""
    for file in files:
        yield f"- [ ] {text(file.error or '')}"


def _rewrites(report: Report) -> Iterator[str]:
    files = [file for file in report.files if file.rewrites]
    if not files:
        return
    total = sum(len(file.rewrites) for file in files)
    yield "## Rewritten" if not report.dry_run else "## Would be rewritten"
    yield ""
    yield f"<details><summary>{total} rewrites in {len(files)} files</summary>"
    for file in files:
        yield ""
        yield from _file(file)
    yield ""
    yield "</details>"


def _file(file: FileReport) -> Iterator[str]:
    yield f"### {code(file.path)}" + (f", written for vLLM {file.source}" if file.source else "")
    yield ""
    for rewrite in file.rewrites:
        about = text(f"{rewrite.safety}; follows {rewrite.follows}")
        yield f"- {_where(rewrite)}, {code(rewrite.code)}: {text(rewrite.message)} ({about})"


def _where(told: Finding | Rewrite) -> str:
    return f"line {told.line}" if told.cell is None else f"cell {told.cell}, line {told.line}"


def code(plain: str) -> str:
    fence = "``" if "`" in plain else "`"
    return f"{fence}{plain}{fence}"


def text(plain: str) -> str:
    """Names such as __init__ stay themselves outside code spans."""
    parts = _CODE_SPAN.split(plain)
    return "".join(part if part.startswith("`") else _SPECIAL.sub(r"\\\1", part) for part in parts)

"""The report for the person at the terminal: what was done and why, what is left to do, and counts that add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from codemods.findings import FileReport, Finding, Report, Severity, Status
from codemods.reports import counts


def render(report: Report, why_target: str) -> str:
    """The whole report. `why_target` says how the target was chosen."""
    lines = [f"vitport {report.version}, target vLLM {report.target} ({why_target})", ""]
    told = [file for file in report.files if file.rewrites or file.findings]
    for file in told:
        lines += [*_file(file, report.dry_run), ""]
    if told:
        lines += [*_rules(report), ""] if any(file.rewrites for file in told) else []
    return "\n".join([*lines, *_summary(report)]) + "\n"


def problems(report: Report) -> str:
    """Only what keeps the exit code from being 0, failed files aside: `failures` names those."""
    lines: list[str] = []
    for file in report.files:
        lines += [
            line
            for finding in file.findings
            if finding.severity is not Severity.NOTE
            for line in _finding(file, finding)
        ]
        if report.dry_run and file.status is Status.REWRITTEN:
            lines.append(f"{file.path}: would be rewritten")
    return "".join(f"{line}\n" for line in lines)


def failures(report: Report) -> str:
    """One line for each file that failed, as it goes to the error stream."""
    return "".join(f"{_error(file)}\n" for file in report.files if file.error is not None)


def _error(file: FileReport) -> str:
    error = file.error or ""
    return f"error: {error}" if error.startswith(file.path) else f"error: {file.path}: {error}"


def _file(file: FileReport, dry_run: bool) -> Iterator[str]:
    written_for = f", written for vLLM {file.source}" if file.source else ""
    yield f"{file.path}: {_outcome(file, dry_run)}{written_for}"
    width = max((len(str(rewrite.line)) for rewrite in file.rewrites), default=0)
    for rewrite in file.rewrites:
        cell = f"cell {rewrite.cell} " if rewrite.cell is not None else ""
        yield f"  {cell}line {rewrite.line:>{width}}  {rewrite.code}  {rewrite.message}"
        if rewrite.safety != "safe":
            yield f"       {'':>{width}}  {rewrite.safety}"
    for finding in file.findings:
        for line in _finding(file, finding):
            yield f"  {line}"


def _outcome(file: FileReport, dry_run: bool) -> str:
    done = "would be rewritten" if dry_run else "rewritten"
    if file.status is Status.FAILED:
        return "failed, left as it was"
    if file.status is Status.NEEDS_ATTENTION:
        return f"{done} in part" if file.changed else "not rewritten"
    return done if file.changed else "nothing to rewrite"


def _finding(file: FileReport, finding: Finding) -> Iterator[str]:
    cell = f"cell {finding.cell}:" if finding.cell is not None else ""
    where = f"{file.path}:{cell}{finding.line}:{finding.column}"
    yield f"{where}: {finding.severity.value} {finding.code}: {finding.message}"
    yield f"    to do: {finding.remedy}"


def _rules(report: Report) -> Iterator[str]:
    used = Counter((r.code, r.follows) for file in report.files for r in file.rewrites)
    yield "rules used"
    for (code, follows), times in sorted(used.items()):
        yield f"  {code}  {times}x, follows {follows}"


def _summary(report: Report) -> Iterator[str]:
    yield f"files     {counts.files(report)}"
    yield f"sites     {counts.sites(report)} (uses of the old API)"
    yield f"findings  {counts.findings(report)}"
    yield f"result    {counts.result(report)}"

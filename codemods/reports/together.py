"""One report of a file from those of several targets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from codemods.findings import FileReport, Finding, Rewrite

Told = TypeVar("Told", Rewrite, Finding)


def together(reports: Mapping[str, FileReport], more: Sequence[Finding]) -> FileReport:
    """What is said for each target; a finding that not all have names its target."""
    *others, newest = reports.values()
    if not others:
        return newest
    return replace(
        newest,
        rewrites=_in_order({rewrite for report in reports.values() for rewrite in report.rewrites}),
        findings=_in_order({*more, *_findings({release: report.findings for release, report in reports.items()})}),
    )


def _findings(told: Mapping[str, Sequence[Finding]]) -> Iterator[Finding]:
    """What all targets find at one place is said once, as the newest says it."""
    newest = list(told)[-1]
    places = [{_place(f) for f in findings} for findings in told.values()]
    for release, findings in told.items():
        for finding in findings:
            if not all(_place(finding) in known for known in places):
                yield replace(finding, message=f"for vLLM {release}: {finding.message}")
            elif release == newest:
                yield finding


def _place(finding: Finding) -> tuple[object, ...]:
    return finding.code, finding.severity, finding.cell, finding.line, finding.column


def _in_order(items: set[Told]) -> tuple[Told, ...]:
    return tuple(sorted(items, key=lambda item: (item.cell or 0, item)))

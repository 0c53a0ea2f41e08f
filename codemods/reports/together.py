"""One report of a file from those of several targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from codemods.findings import FileReport, Finding, Rewrite

Told = TypeVar("Told", Rewrite, Finding)


def together(reports: Mapping[str, FileReport], more: Sequence[Finding]) -> FileReport:
    """What is said for each target; a finding that not all have names its target."""
    *others, newest = reports.values()
    if not others:
        return newest
    told = {release: report.findings for release, report in reports.items()}
    return replace(
        newest,
        rewrites=_in_order({rewrite for report in reports.values() for rewrite in report.rewrites}),
        findings=_in_order({*more, *(_named(f, release, told) for release in told for f in told[release])}),
    )


def _named(finding: Finding, release: str, told: Mapping[str, Sequence[Finding]]) -> Finding:
    common = all(finding in findings for findings in told.values())
    return finding if common else replace(finding, message=f"for vLLM {release}: {finding.message}")


def _in_order(items: set[Told]) -> tuple[Told, ...]:
    return tuple(sorted(items, key=lambda item: (item.cell or 0, item)))

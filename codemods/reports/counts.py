"""The sums of a report as sentences, the same in every form of it."""

from __future__ import annotations

from collections import Counter

from codemods.findings import Report, Severity, Status


def files(report: Report) -> str:
    statuses = Counter(file.status for file in report.files)
    return f"{len(report.files)} = " + ", ".join(f"{statuses[status]} {status.value}" for status in Status)


def sites(report: Report) -> str:
    sum_ = report.sites
    return f"{sum_.total} = {sum_.rewritten} rewritten, {sum_.refused} refused, {sum_.irrelevant} irrelevant"


def findings(report: Report) -> str:
    severities = Counter(finding.severity for file in report.files for finding in file.findings)
    return f"{severities.total()} = " + ", ".join(f"{severities[severity]} {severity.value}" for severity in Severity)


def result(report: Report) -> str:
    """Why the exit code is what it is."""
    needs_attention = any(file.status is Status.NEEDS_ATTENTION for file in report.files)
    remain = "findings remain for a person" if needs_attention else "files would change"
    failed = any(file.status is Status.FAILED for file in report.files)
    wrong = (
        "some files failed, each named in an error"
        if failed
        else "what is told could not all be written, see the error"
    )
    reason = ("nothing left to do", remain, wrong)[report.exit_code]
    return f"{reason}{'; nothing was written' if report.dry_run else ''} (exit code {report.exit_code})"

"""What a look found: a row for each file, and what is left for a person."""

from __future__ import annotations

from collections import Counter
from html import escape

from codemods.findings import FileReport, Severity, Status
from codemods.reports import counts
from codemods.trial import Trial
from porting.widgets import markup
from porting.widgets.panel import Panel, html, show
from porting.widgets.session import Session

_OUTCOMES = {
    Status.REWRITTEN: "will be ported",
    Status.UNCHANGED: "nothing to do",
    Status.NEEDS_ATTENTION: "needs a person",
    Status.FAILED: "cannot be read",
}


def found(trial: Trial) -> str:
    """A table of the files, what is left to do by hand, and sums that add up, as HTML."""
    rows = [_row(trial, file) for file in trial.seen.files if file.status is not Status.UNCHANGED]
    rest = sum(file.status is Status.UNCHANGED for file in trial.seen.files)
    left = [_finding(trial, file) for file in trial.seen.files if file.findings or file.error]
    headings = ("file", "written for vLLM", "outcome", "rewrites", "rules")
    caption = f"What a port to vLLM {trial.target} changes" + (f"; in {rest} more files nothing" if rest else "")
    sums = f"uses of the old API: {counts.sites(trial.seen)}; findings: {counts.findings(trial.seen)}"
    return (
        markup.scrolling("what was found", markup.table(caption, headings, rows))
        + (f"<p>Left for a person:</p>{''.join(left)}" if left else "<p>Nothing is left for a person.</p>")
        + f'<p class="quiet">{escape(sums)}</p>'
    )


def _row(trial: Trial, file: FileReport) -> tuple[str, ...]:
    rules = Counter(rewrite.code for rewrite in file.rewrites)
    return (
        f"<code>{escape(trial.name(file))}</code>",
        escape(file.source or ""),
        _OUTCOMES[file.status] + (" in part" if file.changed and file.status is Status.NEEDS_ATTENTION else ""),
        str(len(file.rewrites)),
        ", ".join(f"{code} {times}x" for code, times in sorted(rules.items())),
    )


def _finding(trial: Trial, file: FileReport) -> str:
    name = escape(trial.name(file))
    if file.error:
        return markup.line(file.error, bad=True)
    lines = "".join(
        f"<li>line {finding.line}: <strong>{finding.severity.value} {finding.code}</strong>: {escape(finding.message)} "
        f"<em>To do:</em> {escape(finding.remedy)}</li>"
        for finding in file.findings
    )
    bad = sum(finding.severity is not Severity.NOTE for finding in file.findings)
    told = f"<code>{name}</code>: {bad} to do, {len(file.findings) - bad} to know"
    return markup.folded(told, f"<ul>{lines}</ul>")


class Findings(Panel):
    """The table; it follows the session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.shown = html()
        super().__init__([self.shown])
        session.listen(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        show(self.shown, self.story())

    def story(self) -> str:
        return found(self.session.trial)

    def plain(self) -> str:
        return f"files: {counts.files(self.session.trial.seen)}"

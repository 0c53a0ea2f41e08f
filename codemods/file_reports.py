"""What a run says of one file, once all is planned and checked; a changed file is written here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from codemods import edits as E
from codemods.findings import FileReport, Finding, Rewrite, Severity
from codemods.inputs import Input
from codemods.leftovers import RULE as LEFTOVER
from codemods.leftovers import account
from codemods.liveness import RULE as UNREACHED
from codemods.notebook import Notebook
from codemods.plan import FilePlan, Plan
from codemods.rules import RULES
from codemods.source_file import SourceError
from codemods.source_version import describe


def marked(report: FileReport, live: bool | None) -> FileReport:
    """With a note where nothing of its plugin reaches a file."""
    if live is not False:
        return replace(report, live=live)
    note = Finding(
        1,
        1,
        UNREACHED.code,
        Severity.NOTE,
        "no registry or entry point of this plugin reaches this file",
        "Register what it defines if it is to run; if not, its findings need not concern you.",
    )
    return replace(report, live=False, findings=tuple(sorted({*report.findings, note})))


def report_of(
    entry: Input,
    run: Plan,
    plan: FilePlan | None,
    frozen: dict[Path, Finding],
) -> FileReport:
    if entry.error is not None or entry.source is None:
        return FileReport(str(entry.path), error=entry.error)
    if plan is None:
        return FileReport(str(entry.path))
    failure = frozen.get(entry.path)
    rewrites = () if entry.after is None else tuple(sorted(set(plan.rewrites)))
    findings = [*plan.findings, *([failure] if failure else [])]
    sites, left = account(run, plan, frozenset(name for rule in RULES for name in rule.names))
    told = tuple(sorted({*findings, *left}))
    if entry.notebook is not None:
        rewrites = tuple(_in_cell(entry.notebook, rewrite) for rewrite in rewrites)
        skipped = _skipped_cells(entry.notebook) if LEFTOVER.code in run.active else ()
        told = (*(_in_cell(entry.notebook, finding) for finding in told), *skipped)
    return FileReport(
        str(entry.path),
        source=describe(plan.source),
        rewrites=rewrites,
        findings=told,
        sites=sites,
        before=entry.source.text if entry.after is not None else None,
        after=entry.text_after,
    )


def in_arms(report: FileReport, plan: FilePlan | None) -> FileReport:
    """Of the rewrites for one target of several, those in its own arms of guards: the rest is the newest target's."""
    kept = plan.view.kept if plan is not None and plan.view is not None else []
    places = [E.Ref.of(guard) for guard in kept]
    inside = (r for r in report.rewrites if any(p.line <= r.line <= p.end_line for p in places))
    return replace(report, rewrites=tuple(inside))


def written(entry: Input, report: FileReport, write: bool, roots: Sequence[Path]) -> FileReport:
    """Write what changed, or in a dry run see whether it could be."""
    if entry.source is not None and report.changed and report.after is not None:
        try:
            if write:
                entry.source.write(report.after, roots)
            else:
                entry.source.check_write(report.after, roots)
        except SourceError as error:
            return replace(report, error=str(error), after=None, before=None, rewrites=())
    return report


Told = TypeVar("Told", Rewrite, Finding)


def _in_cell(notebook: Notebook, told: Told) -> Told:
    cell, line = notebook.place(told.line)
    return replace(told, cell=cell, line=line)


def _skipped_cells(notebook: Notebook) -> Iterator[Finding]:
    """Cells that are not Python, but may import from vLLM all the same."""
    for cell in notebook.skipped:
        if re.search(r"\b(?:from|import)\s+vllm\b", cell.source):
            message = "this cell is not plain Python and is left as it is, though it imports from vLLM"
            yield Finding(1, 1, LEFTOVER.code, Severity.WARNING, message, "Port it by hand.", cell.number)

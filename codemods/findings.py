"""What a run says: rewrites done, findings left for a person, and the counts that must add up."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from codemods import __version__


class Severity(str, Enum):
    """How bad it is to leave a finding alone at the target vLLM."""

    ERROR = "error"  # the file fails at import, construction or call
    WARNING = "warning"  # it runs, but may compute or choose something else than before
    NOTE = "note"  # worth knowing; nothing has to be done


class Status(str, Enum):
    """What became of one file."""

    REWRITTEN = "rewritten"  # changed (or would change), nothing left for a person
    UNCHANGED = "unchanged"  # nothing to do; bytes and modification time are kept
    NEEDS_ATTENTION = "needs-attention"  # a finding above NOTE remains, whether or not the file changed
    FAILED = "failed"  # not read, not parsed or not written; the file is as it was


@dataclass(frozen=True, order=True)
class Rewrite:
    """One change made by one rule. `line` is 1-based, in the text before the change.

    In a notebook, `cell` is the number of the cell among all of them, from 1, and `line` is the line in it.
    """

    line: int
    code: str
    message: str
    safety: str  # "safe", or "review: <why>"
    follows: str  # the upstream change it follows, with the vLLM version
    cell: int | None = None


@dataclass(frozen=True, order=True)
class Finding:
    """Something a program must not decide. `line` is 1-based, `column` 1-based, both in the text before any change.

    In a notebook, `cell` is the number of the cell among all of them, from 1, and `line` is the line in it.
    """

    line: int
    column: int
    code: str
    severity: Severity
    message: str
    remedy: str
    cell: int | None = None


class Use(str, Enum):
    """What a file does with something of vLLM's."""

    SUBCLASSES = "subclasses"
    CONSTRUCTS = "constructs"
    CALLS = "calls"
    IMPORTS = "imports"
    PATCHES = "patches"
    OTHER = "other"


@dataclass(frozen=True, order=True)
class Change:
    """What the target vLLM changes for one use of something of vLLM's, whether or not a rule follows it."""

    line: int
    use: Use
    name: str
    what: str
    breaking: bool  # it fails at import, construction or a call; else it only may do something else
    fixed_by: str | None  # the code of the rule that follows it; "" where several do; None where a person has to
    remedy: str = ""  # for that person
    cell: int | None = None  # of a notebook, as in a finding


@dataclass(frozen=True)
class Sites:
    """Uses of the old API in one file (or a whole run); each is exactly one of the three."""

    rewritten: int = 0
    refused: int = 0
    irrelevant: int = 0

    @property
    def total(self) -> int:
        return self.rewritten + self.refused + self.irrelevant

    def __add__(self, other: Sites) -> Sites:
        return Sites(
            self.rewritten + other.rewritten,
            self.refused + other.refused,
            self.irrelevant + other.irrelevant,
        )


@dataclass(frozen=True)
class FileReport:
    """The outcome for one file. `path` is as the user gave it or found below it; `error` is one line, set when
    FAILED."""

    path: str
    source: str | None = None  # the vLLM the file was written for, as inferred or given
    rewrites: tuple[Rewrite, ...] = ()
    findings: tuple[Finding, ...] = ()
    sites: Sites = Sites()
    error: str | None = None
    before: str | None = None  # text before and after, None where the file does not change
    after: str | None = None
    live: bool | None = None  # whether a registry or entry point of its plugin reaches it; None if that is not known

    @property
    def changed(self) -> bool:
        return self.after is not None and self.after != self.before

    @property
    def status(self) -> Status:
        if self.error is not None:
            return Status.FAILED
        if any(finding.severity is not Severity.NOTE for finding in self.findings):
            return Status.NEEDS_ATTENTION
        return Status.REWRITTEN if self.changed else Status.UNCHANGED


@dataclass(frozen=True)
class Report:
    """The outcome of a run over files, in path order."""

    target: str
    files: tuple[FileReport, ...]
    dry_run: bool = False  # --check or --diff: nothing was written
    incomplete: bool = False  # a file with the report, or the patch, could not be written
    version: str = field(default=__version__)

    @property
    def sites(self) -> Sites:
        return sum((file.sites for file in self.files), Sites())

    @property
    def exit_code(self) -> int:
        """0 nothing left to do; 1 findings remain (or, in a dry run, files would change); 2 some input or output
        failed."""
        statuses = {file.status for file in self.files}
        if Status.FAILED in statuses or self.incomplete:
            return 2
        if Status.NEEDS_ATTENTION in statuses:
            return 1
        return 1 if self.dry_run and any(file.changed for file in self.files) else 0

    def to_json(self) -> dict[str, Any]:
        """The machine-readable report, as documented in docs/report.md."""
        counts = {status.value: 0 for status in Status}
        for file in self.files:
            counts[file.status.value] += 1
        return {
            "version": self.version,
            "target": self.target,
            "files": [_file_json(file) for file in self.files],
            "summary": {
                "files": len(self.files),
                **counts,
                "rewrites": sum(len(file.rewrites) for file in self.files),
                "findings": sum(len(file.findings) for file in self.files),
                "sites": {
                    "total": self.sites.total,
                    "rewritten": self.sites.rewritten,
                    "refused": self.sites.refused,
                    "irrelevant": self.sites.irrelevant,
                },
                "exit_code": self.exit_code,
            },
        }


def _file_json(file: FileReport) -> dict[str, Any]:
    return {
        "path": file.path,
        "source": file.source,
        "status": file.status.value,
        "live": file.live,
        "rewrites": [
            {
                "code": r.code,
                **({"cell": r.cell} if r.cell is not None else {}),
                "line": r.line,
                "message": r.message,
                "safety": r.safety,
                "follows": r.follows,
            }
            for r in file.rewrites
        ],
        "findings": [
            {
                "code": f.code,
                "severity": f.severity.value,
                **({"cell": f.cell} if f.cell is not None else {}),
                "line": f.line,
                "column": f.column,
                "message": f.message,
                "remedy": f.remedy,
            }
            for f in file.findings
        ],
        **({"error": file.error} if file.error else {}),
    }

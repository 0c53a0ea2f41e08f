"""The report of a check in its forms; each module renders one."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from codemods.reports import write_text
from porting.report import Report

FORMS = {".html": "html", ".md": "markdown", ".json": "json"}


def write_report(report: Report, path: Path) -> None:
    """Write the report in the form that the suffix names; an earlier one is replaced whole. Raises OSError."""
    form = import_module(f"porting.reports.{FORMS[path.suffix]}")
    write_text(form.render(report), path)

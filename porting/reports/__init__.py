"""The report of a check in its forms; each module renders one."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from porting.report import Report

FORMS = {".html": "html", ".md": "markdown", ".json": "json"}


def write_report(report: Report, path: Path) -> None:
    """Write the report in the form that the suffix names. Raises OSError."""
    form = import_module(f"porting.reports.{FORMS[path.suffix]}")
    path.write_text(form.render(report), encoding="utf-8")

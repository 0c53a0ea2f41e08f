"""One report, told to a person, a machine, a code host or an issue tracker."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from codemods.source_file import replace_file

if TYPE_CHECKING:
    from codemods.findings import Report

SUFFIXES = (".json", ".sarif", ".md")


def write_report(report: Report, path: Path) -> None:
    """Write the report in the form `path`'s suffix (one of SUFFIXES) names; an earlier one is replaced whole.

    Raises OSError where the file cannot be written.
    """
    from codemods.reports import json, markdown, sarif

    render = dict(zip(SUFFIXES, (json.render, sarif.render, markdown.render), strict=True))[path.suffix]
    write_text(render(report), path)


def write_text(text: str, path: Path) -> None:
    """Put a report in a file, or in place of an earlier one, whole or not at all. Raises OSError."""
    real = Path(os.path.realpath(path))
    # A file name that is no text is kept as \udcXX, which JSON reads back as the same name.
    data = text.encode("utf-8", "backslashreplace")
    replace_file(real, data, like=real.stat() if real.exists() else None)

"""The rewrites as a patch, in the bytes of the files themselves: `git apply` takes it where the command was run."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from codemods.findings import FileReport, Report
from codemods.reports.paths import absolute, relative
from codemods.source_file import SourceError, SourceFile

_NO_NEWLINE = "\n\\ No newline at end of file\n"
_QUOTED = {"\\": "\\\\", '"': '\\"', "\t": "\\t", "\n": "\\n"}


def render(report: Report) -> bytes:
    """The patch of a dry run. Raises SourceError where a file is no longer what the run read."""
    return b"".join(_file(file) for file in report.files if file.changed)


def _file(file: FileReport) -> bytes:
    # The report holds text; only the file knows its encoding and whether it starts with a byte order mark.
    source = SourceFile.read(Path(file.path))
    if source.text != file.before:
        raise SourceError(source.path, None, "changed on disk while it was being migrated", "run again")
    name = _name(file.path)
    lines = difflib.unified_diff(
        _lines(source.raw), _lines(source.encode(file.after or "")), f"{_quote('a/' + name)}", f"{_quote('b/' + name)}"
    )
    patch = "".join(line if line.endswith("\n") else line + _NO_NEWLINE for line in lines)
    return patch.encode("latin-1")


def _lines(data: bytes) -> list[str]:
    """Lines as git counts them: ended by a line feed alone. One character for each byte, which difflib can compare."""
    *lines, last = data.decode("latin-1").split("\n")
    return [f"{line}\n" for line in lines] + ([last] if last else [])


def _name(path: str) -> str:
    """One character for each byte, as in `_lines`. A file elsewhere is named from `/`: `git apply` must run there."""
    return os.fsencode(relative(path) or absolute(path).as_posix().lstrip("/")).decode("latin-1")


def _quote(name: str) -> str:
    if any(character in name for character in _QUOTED):
        return '"' + "".join(_QUOTED.get(character, character) for character in name) + '"'
    return f"{name}\t" if " " in name else name  # a tab ends a name that holds spaces

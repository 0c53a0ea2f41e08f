"""New code as text: one argument a line, as the formatters of vLLM and its plugins leave it."""

from __future__ import annotations

from collections.abc import Sequence

LINE = 88  # columns; the formatter default of vLLM and of most plugins


def call(function: str, arguments: Sequence[str], target: str | None = None) -> str:
    """`target = function(arguments)`, with a trailing comma."""
    start = f"{target} = {function}(" if target else f"{function}("
    return "\n".join([start, *(f"    {argument}," for argument in arguments), ")"])

"""The command of a page that a program makes from real vLLM releases: write it, or see whether it is stale."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from tests import wheels


def main(page: Path, make: Callable[[], str], purpose: str) -> int:
    """Write the page, or check it. Exits 1 if it is stale, or a release cannot be had."""
    program = Path(sys.argv[0])
    parser = argparse.ArgumentParser(description=purpose)
    parser.add_argument("--check", action="store_true", help="exit 1 if the page is not what would be written")
    options = parser.parse_args()
    try:
        text = make()
    except wheels.Unavailable as reason:
        print(f"{program.name}: {reason}", file=sys.stderr)
        return 1
    if not options.check:
        page.write_text(text, encoding="utf-8")
        return 0
    if page.is_file() and page.read_text(encoding="utf-8") == text:
        return 0
    print(f"docs/{page.name} is stale: run `python docs/{program.name}`", file=sys.stderr)
    return 1

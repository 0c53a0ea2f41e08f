"""The page that compares the codemod's ports with upstream's own is up to date."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_is_what_would_be_written(model_files: Callable[[str], Path]) -> None:
    for release in ("0.12.0", "0.13.0", "0.14.0"):
        model_files(release)
    command = [sys.executable, ROOT / "docs" / "make_against_upstream.py", "--check"]
    done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")

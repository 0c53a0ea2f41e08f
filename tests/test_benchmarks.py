"""The benchmark measures every tool it names; figures are printed, never judged here."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.corpus
def test_every_tool_is_measured(model_files: Callable[[str], Path]) -> None:
    model_files("0.12.0")  # so that a download is no part of the time limit
    command = [sys.executable, "-m", "benchmarks", "--repeat", "1", "--no-runner", "--only", "q*.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    number = r"(\d+\.\d) \|"
    both = (1, 2)
    measured = {"vitport": both, "vitport: vision attention alone": (1,), "LibCST: parse and print": both}
    for tool, numbers in measured.items():
        for jobs in numbers:
            row = re.search(rf"^\| {tool} \| {jobs} \| {number} {number} (\d+) \|$", done.stdout, re.M)
            assert row and all(float(figure) > 0 for figure in row.groups())
    assert "| LibCST's codemod runner: rename | | left out by --no-runner" in done.stdout

"""Draws docs/images/check.svg: the end of a check of the ported example plugin, from what the command really prints.

Run it under the Python of an environment that has vLLM. tests/porting/test_example.py fails when it is stale.
"""

from __future__ import annotations

import hashlib
import io
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from make_picture import EXAMPLE, FRAME, ROOT, prompt
from rich.console import Console
from rich.text import Text

PICTURE = ROOT / "docs" / "images" / "check.svg"
COLUMNS = 110
LEVELS = "static,load,build,parity,paths"  # the others take minutes, and have tests of their own
STYLES = {r"\bpass\b": "green", r"\b(?:FAIL|ERROR|TIME)\b": "bold red", r"\bnot run\b": "yellow"}


def shown(report: str) -> list[str]:
    """The matrix and the verdict of what the command printed, without the time it took and the machine it ran on."""
    lines = report[report.index("\nmodel ") :].strip().splitlines()
    return [re.sub(r", in \d+ s$", "", line.rstrip()) for line in lines if not line.startswith(("device", "note"))]


def digest(report: str) -> str:
    return hashlib.sha256("\n".join(shown(report)).encode()).hexdigest()[:16]


def draw(report: str) -> str:
    """The picture as SVG."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), highlight=False)
    prompt(console, f"vitport-check models/ --before old/ --levels {LEVELS}")
    console.print("...", style="bright_black")
    for line in shown(report):
        text = Text(line, overflow="crop", no_wrap=True)
        for words, style in STYLES.items():
            text.highlight_regex(words, style)
        console.print(text)
    frame = FRAME.replace("make_picture.py", "make_check_picture.py").replace("DIGEST", digest(report))
    svg = console.export_svg(title="examples/orchard_vl_plugin", unique_id="check", code_format=frame)
    return "\n".join(line.rstrip() for line in svg.splitlines() if line.strip()) + "\n"


def check_of_the_example(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Port a copy of the example plugin in `folder` for the installed vLLM, and prove it."""
    for name in ("models", "old"):
        shutil.copytree(EXAMPLE, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for command in (
        ["codemods.migrate", "models"],
        ["porting.check", "models", "--before", "old", "--levels", LEVELS, *options],
    ):
        done = subprocess.run([sys.executable, "-m", *command], cwd=folder, capture_output=True, text=True, check=False)
    return done


if __name__ == "__main__":
    with TemporaryDirectory() as scratch:
        PICTURE.write_text(draw(check_of_the_example(Path(scratch)).stdout), encoding="utf-8")

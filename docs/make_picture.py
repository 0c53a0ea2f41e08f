"""Draws docs/images/migrate.svg: a terminal with a run on the example plugin, from what the command really prints.

python docs/make_picture.py            draw it
python docs/make_picture.py --check    exit code 1 if the command no longer prints what the picture shows
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.style import Style
from rich.text import Text

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "orchard_vl_plugin" / "orchard_vl"
PICTURE = ROOT / "docs" / "images" / "migrate.svg"
COLUMNS = 112
CONTEXT = 2  # unchanged lines shown around the change

DIM = Style(color="bright_black")
BOLD = Style(bold=True)
LINE_STYLES = {"+": Style(color="green"), "-": Style(color="red"), "@": Style(color="cyan")}

# Rich's own frame asks a font server for its font. A picture in a repository should load nothing: any monospaced
# font will do, because every run of text carries its own width.
FRAME = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<!-- Made by `python docs/make_picture.py`; it shows DIGEST. -->
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
    font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-family: system-ui, sans-serif; font-size: 18px; font-weight: bold; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def main(arguments: list[str]) -> int:
    """Draw the picture, or with `--check` compare it. Returns the exit code."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), highlight=False)
    show(console)
    shown = console.export_text(clear=False, styles=True)
    digest = hashlib.sha256(shown.encode()).hexdigest()[:16]
    if arguments == ["--check"]:
        if PICTURE.is_file() and digest in PICTURE.read_text(encoding="utf-8"):
            return 0
        print(f"{PICTURE.relative_to(ROOT)} is stale: run `python docs/make_picture.py`", file=sys.stderr)
        return 1
    svg = console.export_svg(
        title="examples/orchard_vl_plugin", unique_id="run", code_format=FRAME.replace("DIGEST", digest)
    )
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text("\n".join(line.rstrip() for line in svg.splitlines() if line.strip()) + "\n", encoding="utf-8")
    return 0


def show(console: Console) -> None:
    """The longest change of the patch, then the report's head, its first file and its counts."""
    with TemporaryDirectory() as folder:
        shutil.copytree(EXAMPLE, Path(folder, "models"), ignore=shutil.ignore_patterns("__pycache__"))
        patch = vitport(folder, "--diff", "--quiet").splitlines()
        head, first_file, *_, counts = vitport(folder).split("\n\n")
    start, end = longest_change(patch)
    file, hunk = (next(line for line in reversed(patch[:start]) if line.startswith(mark)) for mark in ("+++", "@@"))

    prompt(console, "vitport --diff models/ --target 0.32")
    for line in ("...", file, hunk, "...", *patch[start - CONTEXT : end + CONTEXT], "..."):
        style = BOLD if line == file else DIM if line == "..." else LINE_STYLES.get(line[:1], "")
        console.print(Text(line, style=style, overflow="crop", no_wrap=True))
    prompt(console, "vitport models/ --target 0.32")
    console.print(Text(f"{head}\n\n{first_file}", overflow="crop", no_wrap=True))
    console.print("...", style=DIM)
    console.print(Text(counts.rstrip()))


def longest_change(patch: list[str]) -> tuple[int, int]:
    """Where the longest run of added and removed lines starts and ends."""
    runs, start = [(0, 0)], None
    for number, line in enumerate([*patch, ""]):
        changed = line.startswith(("+", "-")) and not line.startswith(("+++", "---"))
        if changed and start is None:
            start = number
        elif not changed and start is not None:
            runs.append((start, number))
            start = None
    return max(runs, key=lambda run: run[1] - run[0])


def prompt(console: Console, command: str) -> None:
    console.print(Text.assemble(("$ ", DIM), (command, BOLD)))


def vitport(folder: str, *options: str) -> str:
    """What the command prints when it is run in `folder` on `models/`. Raises where it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "codemods.migrate", "models/", "--target", "0.32", *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stderr)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

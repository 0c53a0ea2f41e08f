"""How a file is named to tools that run where the command was run."""

from __future__ import annotations

import os
from pathlib import Path


def relative(path: str) -> str | None:
    """`path` from the current folder, with forward slashes; None where it lies elsewhere."""
    name = os.path.relpath(path).replace(os.sep, "/")
    return None if name.split("/", 1)[0] == os.pardir else name


def absolute(path: str) -> Path:
    """From the root, without `..`; symbolic links stay as they are."""
    return Path(os.path.normpath(Path(path).absolute()))

"""Old vLLM releases, kept in `${XDG_CACHE_HOME:-~/.cache}/vitport` and fetched when asked for."""

from __future__ import annotations

import os
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vitport"


def files_of(release: str) -> Path | None:
    """The `vllm/` folder of a release where its files are at hand. Nothing is fetched."""
    folder = CACHE / "vllm-files" / release / "vllm"
    return folder if folder.is_dir() else None

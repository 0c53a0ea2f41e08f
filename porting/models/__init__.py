"""Whole models in small: for each architecture that vLLM knows a `config.json`, and what makes a checkpoint of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CONFIGS = Path(__file__).parent


def architectures() -> list[str]:
    """The architectures of which there is a tiny configuration."""
    return sorted(path.stem for path in CONFIGS.glob("*.json"))


def config(architecture: str) -> dict[str, Any]:
    """The `config.json` of a tiny model. Raises FileNotFoundError where there is none."""
    values: dict[str, Any] = json.loads((CONFIGS / f"{architecture}.json").read_text(encoding="utf-8"))
    return values

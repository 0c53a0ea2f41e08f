"""A package that plugs into vLLM: what its `pyproject.toml` says vLLM shall call, made known without installing it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GROUP = "vllm.general_plugins"


@dataclass(frozen=True)
class Plugin:
    """`entry_points` as in the `vllm.general_plugins` group, name to "module:function"; `root` holds their modules."""

    root: Path
    entry_points: Mapping[str, str]

    def announce(self, folder: Path) -> list[Path]:
        """Make in `folder` what an installation leaves, so that vLLM finds the entry points as it always does.

        Returns what has to be ahead on the import path, in this order.
        """
        described = folder / "vitport_plugin-0.dist-info"
        described.mkdir(parents=True)
        (described / "METADATA").write_text("Metadata-Version: 2.1\nName: vitport-plugin\nVersion: 0\n")
        lines = [f"[{GROUP}]", *(f"{name} = {value}" for name, value in self.entry_points.items())]
        (described / "entry_points.txt").write_text("\n".join(lines) + "\n")
        return [folder, self.root]


def plugin_of(path: Path, root: Path) -> Plugin | None:
    """The plugin that a file below the import root belongs to; None where no `pyproject.toml` above declares one."""
    for folder in path.resolve().parents:
        project = folder / "pyproject.toml"
        if project.is_file():
            entry_points = _toml(project).get("project", {}).get("entry-points", {}).get(GROUP, {})
            return Plugin(root, entry_points) if entry_points else None
    return None


def _toml(path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    values: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    return values

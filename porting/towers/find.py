"""The towers of a loaded module, each with the recipe that it can be built and run with."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from porting.towers import structure
from porting.towers.attempts import as_its_own_family, as_known_family, said, with_configuration
from porting.towers.found import Found as Found
from porting.towers.found import UnknownConfiguration
from porting.towers.found import UnknownTower as UnknownTower
from porting.towers.found import make as make


class NoTower(LookupError):
    """A module defines no vision tower. Not a fault of the port; the message says where the tower is, if anywhere."""


def find(module: ModuleType, config: Path | None = None) -> list[Found]:
    """Every tower that a module defines. Needs `host.prepare_process` and `host.start_groups` before.

    Raises NoTower, and UnknownTower for the first tower that no recipe fits.
    """
    classes = structure.towers_of(module)
    if not classes:
        raise NoTower(structure.no_tower(module))
    return [find_class(cls, config) for cls in classes]


def find_class(cls: type[nn.Module], config: Path | None = None) -> Found:
    """The recipe that a tower can be built and run with: its family's by name, else the first that fits.

    Where nothing is known of what a class wants, its part that holds the layers is taken, if that can be built.
    Raises UnknownTower.
    """
    if config:
        return with_configuration(cls, config.name, _read(config))
    if found := as_known_family(cls):
        return found
    try:
        return as_its_own_family(cls)
    except UnknownConfiguration as unknown:
        for part in structure.layered_parts(cls):
            try:
                inner = as_known_family(part) or as_its_own_family(part)
            except UnknownTower:
                continue
            return replace(inner, inside=f"part of {cls.__name__}, which cannot be built by itself: {unknown}")
        raise


def _read(config: Path) -> dict[str, Any]:
    """The values of a configuration file. Raises UnknownTower with what is wrong with it."""
    try:
        values = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError) as failure:
        raise UnknownTower(f"{config} cannot be read: {said(failure)}") from failure
    if not isinstance(values, dict):
        raise UnknownTower(f"{config} is not a JSON object with the attributes of a vision configuration")
    return values

"""Tiny vision towers: for each family a configuration of a few parameters, and the pictures that its forward takes."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from porting.towers.tower import Tower


@cache
def families() -> tuple[Tower, ...]:
    """Every `Tower` that a module of this package defines, by family name."""
    from porting.towers.tower import Tower

    modules = [import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    found = {id(value): value for module in modules for value in vars(module).values() if isinstance(value, Tower)}
    return tuple(sorted(found.values(), key=lambda tower: tower.family))

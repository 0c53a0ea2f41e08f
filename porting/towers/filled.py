"""What pictures are made from where the configuration of a tower does not say all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from porting.towers import general
from porting.towers.make import config_of
from porting.towers.pictures import first_of
from porting.towers.tower import Config, Grid, Inputs, MakeInputs, Shape

SIDE = 8  # patches in a row, and rows, of a picture whose size is not given
PIXELS = ("image_size", "img_size")


def needed(way: MakeInputs, given: Mapping[str, Any], shape: Shape) -> dict[str, Any]:
    """What a way of making pictures reads, and is not given: from the general configuration."""
    usual, more = general.config(shape), dict[str, Any]()
    while True:
        config = _Reads({**given, **more})
        try:
            way(config, [Grid(1, 2, 2)], torch.float32, torch.Generator())
            return more
        except AttributeError:
            name = next(name for name in config.missing if name in usual)
            sized = name in PIXELS and "patch_size" in given
            more[name] = SIDE * first_of(config, "patch_size") if sized else usual[name]


def filled(way: MakeInputs, given: Mapping[str, Any], shape: Shape) -> MakeInputs:
    """The same way, made from what is given and what else it needs, whatever the configuration of the tower."""

    def make(_: Config, grids: Sequence[Grid], dtype: torch.dtype, generator: torch.Generator) -> Inputs:
        return way(config_of({**given, **needed(way, given, shape)}), grids, dtype, generator)

    return make


class _Reads:
    """A configuration that notes what was read of it and is not there."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.missing: list[str] = []
        vars(self).update(values)

    def __getattr__(self, name: str) -> Any:
        self.missing.append(name)
        raise AttributeError(name)

"""A tower class with the recipe that it can be built and shown pictures with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from porting.towers.make import config_of, make_with
from porting.towers.tower import Grid, Inputs, Shape, Tower


class UnknownTower(LookupError):
    """A tower that could not be built or shown pictures; the message says why and what to do."""


class UnknownConfiguration(UnknownTower):
    """Nothing is known of what a class wants to be constructed with."""


@dataclass(frozen=True)
class Found:
    """A tower class and how to build and feed it; `shape` is one that it can be built in.

    `guessed` are the configuration values made up by their names, for a tower of no known family. `fixed`: the
    configuration is the one of a file, so that all shapes are the same. `inside` says of which class it is a part that
    could not be built itself, and why.
    """

    cls: type[nn.Module]
    tower: Tower
    shape: Shape = Shape()  # noqa: RUF009 - immutable
    guessed: tuple[str, ...] = ()
    fixed: bool = False
    inside: str = ""

    @property
    def name(self) -> str:
        return self.cls.__name__

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know of how it was built."""
        guesses = f"made up for its configuration: {', '.join(self.guessed)}" if self.guessed else ""
        return tuple(filter(None, (f"{self.name} built as {self.tower.family}", guesses, self.inside)))

    def inputs(self, shape: Shape, grids: Sequence[Grid], dtype: torch.dtype, seed: int = 0) -> Inputs:
        """Pictures for a tower of this shape, on the CPU; the same in every dtype but for rounding."""
        generator = torch.Generator().manual_seed(seed)
        return self.tower.inputs(config_of(self.tower.config(shape)), grids, dtype, generator)

    def inputs_one_by_one(self, shape: Shape, grids: Sequence[Grid], dtype: torch.dtype, seed: int = 0) -> list[Inputs]:
        """The same pictures, each for a call of its own."""
        generator = torch.Generator().manual_seed(seed)
        config = config_of(self.tower.config(shape))
        return [self.tower.inputs(config, [grid], dtype, generator) for grid in grids]


def make(found: Found, shape: Shape, dtype: torch.dtype, device: str = "cpu", data_parallel: bool = False) -> nn.Module:
    """A tower of this shape, filled by parameter name and ready to run; see `host.build`."""
    return make_with(found.cls, found.tower.config(shape), dtype, device, data_parallel)

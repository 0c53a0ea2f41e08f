"""The towers of a loaded module, each with the family recipe that it can be built and run with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from porting.host import output_tensor
from porting.towers import families, general, structure
from porting.towers.make import MissingAttribute, config_of, make_with
from porting.towers.pictures import WAYS
from porting.towers.tower import SEVERAL, Grid, Inputs, Shape, Tower, run

REMEDY = "give a tiny configuration of the tower with --config FILE.json, or add a family (docs/adding-a-tower.md)"

LIKE = 0.75  # the part of a family's configuration that a class names, below which the family is not tried


class NoTower(LookupError):
    """A module defines no vision tower. Not a fault of the port; the message says where the tower is, if anywhere."""


class UnknownTower(LookupError):
    """A tower that could not be built or shown pictures; the message says why and what to do."""


@dataclass(frozen=True)
class Found:
    """A tower class and how to build and feed it.

    `guessed` are the configuration values made up by their names, for a tower of no known family. `fixed`: the
    configuration is the one of a file, so that all shapes are the same.
    """

    cls: type[nn.Module]
    tower: Tower
    guessed: tuple[str, ...] = ()
    fixed: bool = False

    @property
    def name(self) -> str:
        return self.cls.__name__

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know of how it was built."""
        guesses = (f"made up for its configuration: {', '.join(self.guessed)}",) if self.guessed else ()
        return (f"{self.name} built as {self.tower.family}", *guesses)

    def inputs(self, shape: Shape, grids: Sequence[Grid], dtype: torch.dtype, seed: int = 0) -> Inputs:
        """Pictures for a tower of this shape, on the CPU; the same in every dtype but for rounding."""
        generator = torch.Generator().manual_seed(seed)
        return self.tower.inputs(config_of(self.tower.config(shape)), grids, dtype, generator)

    def inputs_one_by_one(self, shape: Shape, grids: Sequence[Grid], dtype: torch.dtype, seed: int = 0) -> list[Inputs]:
        """The same pictures, each for a call of its own."""
        generator = torch.Generator().manual_seed(seed)
        config = config_of(self.tower.config(shape))
        return [self.tower.inputs(config, [grid], dtype, generator) for grid in grids]


def find(module: ModuleType, config: Path | None = None) -> list[Found]:
    """Every tower that a module defines. Needs `host.prepare_process` and `host.start_groups` before.

    Raises NoTower, and UnknownTower for the first tower that no recipe fits.
    """
    classes = structure.towers_of(module)
    if not classes:
        raise NoTower(structure.no_tower(module))
    return [find_class(cls, config) for cls in classes]


def find_class(cls: type[nn.Module], config: Path | None = None) -> Found:
    """The recipe that a tower can be built and run with: its family's by name, else the first that fits."""
    if config:
        values = _read(config)
        return _first_way(Found(cls, Tower(config.name, (), lambda shape: values, WAYS["packed patches"]), fixed=True))
    for tower in _by_likeness(cls):
        found = Found(cls, tower)
        failure = _failure(found)
        if not failure:
            return found
        if cls.__name__ in tower.classes and _has_all_it_reads(cls, tower):  # its own family: the class is at fault
            raise UnknownTower(f"{cls.__name__} cannot be built and run: {_said(failure)}") from failure
    return _generally(cls)


def make(found: Found, shape: Shape, dtype: torch.dtype, device: str = "cpu", data_parallel: bool = False) -> nn.Module:
    """A tower of this shape, filled by parameter name and ready to run; see `host.build`."""
    return make_with(found.cls, found.tower.config(shape), dtype, device, data_parallel)


def _by_likeness(cls: type[nn.Module]) -> list[Tower]:
    """Families by name first, then by how much of their configuration the class names."""
    names = structure.names_in(cls)

    def likeness(tower: Tower) -> tuple[bool, float]:
        values = tower.config(Shape())
        return cls.__name__ in tower.classes, len(names & set(values)) / len(values)

    return [tower for tower in sorted(families(), key=likeness, reverse=True) if max(likeness(tower)) >= LIKE]


def _has_all_it_reads(cls: type[nn.Module], tower: Tower) -> bool:
    """Whether the class names every entry of a family's configuration: a class of the same name may be another."""
    return set(tower.config(Shape())) <= structure.names_in(cls)


def _failure(found: Found, built: nn.Module | None = None) -> Exception | None:
    """Why a tower cannot be built, or shown several pictures; None where it can."""
    shape, dtype = Shape(), torch.float32
    try:
        tower = built or make(found, shape, dtype)
        output = output_tensor(run(tower, found.inputs(shape, SEVERAL, dtype)))
    except Exception as failure:  # whatever a class that may be anything raises
        return failure
    return None if len(output) else ValueError("its output is empty")


def _generally(cls: type[nn.Module]) -> Found:
    """A tower of no known family: a configuration of the field's names; what that lacks is guessed by name."""
    guesses: dict[str, Any] = {}
    while True:
        try:
            return _first_way(_guessing(cls, dict(guesses)))
        except MissingAttribute as missing:
            name = str(missing)
            value = general.guess(name)
            if value is None or name in guesses:
                raise UnknownTower(f"{cls.__name__} reads `{name}` of its configuration; {REMEDY}") from missing
            guesses[name] = value


def _guessing(cls: type[nn.Module], guesses: Mapping[str, Any]) -> Found:
    tower = Tower("a family of its own", (), lambda shape: {**general.config(shape), **guesses}, WAYS["packed patches"])
    return Found(cls, tower, guessed=tuple(f"{name}={value}" for name, value in guesses.items()))


def _first_way(found: Found) -> Found:
    """The same tower with the first way of showing it pictures that it takes. Raises MissingAttribute, UnknownTower."""
    try:
        built = make(found, Shape(), torch.float32)
    except MissingAttribute:
        raise
    except Exception as failure:
        raise UnknownTower(f"{found.name} cannot be built: {_said(failure)}; {REMEDY}") from failure
    failures = []
    for name, way in WAYS.items():
        attempt = replace(found, tower=replace(found.tower, inputs=way))
        wrong = _failure(attempt, built)
        if not wrong:
            return attempt
        if isinstance(wrong, MissingAttribute) and not found.fixed:
            raise wrong
        failures.append(f"{name}: {_said(wrong)}")
    raise UnknownTower(f"{found.name} takes none of the known forms of pictures ({'; '.join(failures)}); {REMEDY}")


def _read(config: Path) -> dict[str, Any]:
    """The values of a configuration file. Raises UnknownTower with what is wrong with it."""
    try:
        values = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError) as failure:
        raise UnknownTower(f"{config} cannot be read: {_said(failure)}") from failure
    if not isinstance(values, dict):
        raise UnknownTower(f"{config} is not a JSON object with the attributes of a vision configuration")
    return values


def _said(failure: Exception) -> str:
    """An exception in one short line."""
    line = " ".join(str(failure).split())
    return f"{type(failure).__name__}: {line}"[:300]

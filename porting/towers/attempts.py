"""Trying to build and run a tower class: as a known family, as one of its own, with a given configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from porting.host import output_tensor
from porting.towers import families, general, structure
from porting.towers.found import Found, UnknownConfiguration, UnknownTower, make
from porting.towers.make import MissingAttribute
from porting.towers.pictures import WAYS
from porting.towers.tower import SEVERAL, Shape, Tower, run

REMEDY = "give a tiny configuration of the tower with --config FILE.json, or add a family (docs/adding-a-tower.md)"
LIKE = 0.75  # the part of a family's configuration that a class names, below which the family is not tried
# Not every class can be built with every size of head: rotary positions in two or three dimensions divide it.
SHAPES = (Shape(), Shape(head_dim=64))


def as_known_family(cls: type[nn.Module]) -> Found | None:
    """The first family whose recipe fits, by name and then by likeness; None where the class is of none.

    Raises UnknownTower where the class has the name and the configuration of a family, and fails all the same.
    """
    for tower in _by_likeness(cls):
        failure = None
        for shape in SHAPES:
            found = Found(cls, tower, shape)
            wrong = _failure(found)
            if not wrong:
                return found
            failure = failure or wrong
        if cls.__name__ in tower.classes and set(tower.config(Shape())) <= structure.names_in(cls):
            raise UnknownTower(f"{cls.__name__} cannot be built and run: {said(failure)}") from failure
    return None


def as_its_own_family(cls: type[nn.Module]) -> Found:
    """With a configuration of the names that the field uses, and guesses for what it lacks. Raises UnknownTower."""
    failures: list[UnknownTower] = []
    for variant in general.VARIANTS:
        for shape in SHAPES:
            try:
                return _guessing(cls, shape, variant)
            except UnknownTower as unknown:
                failures.append(unknown)
    raise failures[0]


def with_configuration(cls: type[nn.Module], name: str, values: Mapping[str, Any]) -> Found:
    """With these values, and the first way of showing it pictures that it takes. Raises UnknownTower."""
    try:
        return _first_way(Found(cls, Tower(name, (), lambda shape: values, WAYS["packed patches"]), fixed=True))
    except MissingAttribute as missing:
        raise UnknownTower(f"{cls.__name__} reads `{missing}`, which {name} does not have") from missing


def said(failure: BaseException | None) -> str:
    """An exception in one short line."""
    return f"{type(failure).__name__}: {' '.join(str(failure).split())}"[:300]


def _by_likeness(cls: type[nn.Module]) -> Iterator[Tower]:
    names = structure.names_in(cls)

    def likeness(tower: Tower) -> tuple[bool, float]:
        values = tower.config(Shape())
        return cls.__name__ in tower.classes, len(names & set(values)) / len(values)

    for tower in sorted(families(), key=likeness, reverse=True):
        if max(likeness(tower)) >= LIKE:
            yield tower


def _failure(found: Found, built: nn.Module | None = None) -> Exception | None:
    """Why a tower cannot be built, or shown several pictures; None where it can."""
    try:
        tower = built or make(found, found.shape, torch.float32)
        output = output_tensor(run(tower, found.inputs(found.shape, SEVERAL, torch.float32)))
    except Exception as failure:  # whatever a class that may be anything raises
        return failure
    return None if len(output) else ValueError("its output is empty")


def _guessing(cls: type[nn.Module], shape: Shape, variant: Mapping[str, Any]) -> Found:
    guesses: dict[str, Any] = {}
    grouped = bool({"num_key_value_heads", "num_kv_heads"} & structure.names_in(cls))
    while True:
        extra = {**variant, **guesses}
        tower = Tower(
            "a family of its own",
            (),
            lambda shape, extra=extra: {**general.config(shape), **extra},  # type: ignore[misc]
            WAYS["packed patches"],
            grouped_query=grouped,
        )
        try:
            return _first_way(Found(cls, tower, shape, tuple(f"{name}={value}" for name, value in guesses.items())))
        except MissingAttribute as missing:
            name = str(missing)
            value = general.guess(name)
            if value is None or name in guesses:
                what = f"{cls.__name__} reads `{name}` of its configuration"
                raise UnknownConfiguration(f"{what}; {REMEDY}") from missing
            guesses[name] = value


def _first_way(found: Found) -> Found:
    """The same tower with the first way of showing it pictures that it takes. Raises MissingAttribute, UnknownTower."""
    try:
        built = make(found, found.shape, torch.float32)
    except MissingAttribute:
        raise
    except Exception as failure:
        raise UnknownConfiguration(f"{found.name} cannot be built: {said(failure)}; {REMEDY}") from failure
    failures = []
    for name, way in WAYS.items():
        attempt = replace(found, tower=replace(found.tower, inputs=way))
        wrong = _failure(attempt, built)
        if not wrong:
            return attempt
        if isinstance(wrong, MissingAttribute):
            raise wrong
        failures.append(f"{name}: {said(wrong)}")
    raise UnknownTower(f"{found.name} takes none of the known forms of pictures ({'; '.join(failures)}); {REMEDY}")

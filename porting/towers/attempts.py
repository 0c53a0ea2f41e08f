"""Trying to build and run a tower class: as a known family, as one of its own, with a given configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from porting.host import output_tensor
from porting.towers import families, general, structure
from porting.towers.filled import filled, needed
from porting.towers.found import Found, UnknownConfiguration, UnknownTower, make
from porting.towers.make import MissingAttribute, MissingParameters
from porting.towers.pictures import WAYS
from porting.towers.tower import SEVERAL, MakeInputs, Shape, Tower, run

FAMILY = "add a family (docs/adding-a-tower.md)"
REMEDY = f"give a tiny configuration of the tower with --config FILE.json, or {FAMILY}"
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
    """With these values, and the first way of showing it pictures that it takes. Raises UnknownTower.

    What the values do not say of its pictures is what its constructor takes by itself, else the general configuration.
    """
    shape = Shape()
    given = {**structure.defaults(cls), **values}
    tower = Tower(name, (), lambda shape: values, WAYS["packed patches"])
    ways = {label: filled(way, given, shape) for label, way in WAYS.items()}
    try:
        found, label = _first_way(Found(cls, tower, fixed=True), ways, f"give what is otherwise in {name}, or {FAMILY}")
    except MissingAttribute as missing:
        raise UnknownTower(f"{cls.__name__} reads `{missing}`, which {name} does not have") from missing
    except MissingParameters as missing:
        raise UnknownTower(f"{cls.__name__} {missing}, which {name} does not have") from missing
    made_up = needed(WAYS[label], given, shape)
    return replace(found, guessed=tuple(f"{name}={value}" for name, value in made_up.items()))


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
            guessed = tuple(f"{name}={value}" for name, value in guesses.items())
            return _first_way(Found(cls, tower, shape, guessed), WAYS, REMEDY)[0]
        except MissingParameters as missing:
            what = f"{cls.__name__} {missing}, of which nothing is known"
            raise UnknownConfiguration(f"{what}; {REMEDY}") from missing
        except MissingAttribute as missing:
            name = str(missing)
            value = general.guess(name)
            if value is None or name in guesses:
                what = f"{cls.__name__} reads `{name}` of its configuration"
                raise UnknownConfiguration(f"{what}; {REMEDY}") from missing
            guesses[name] = value


def _first_way(found: Found, ways: Mapping[str, MakeInputs], remedy: str) -> tuple[Found, str]:
    """The same tower with the first way of showing it pictures that it takes, and that way's name.

    Raises MissingAttribute, MissingParameters, UnknownTower.
    """
    try:
        built = make(found, found.shape, torch.float32)
    except (MissingAttribute, MissingParameters):
        raise
    except Exception as failure:
        raise UnknownConfiguration(f"{found.name} cannot be built: {said(failure)}; {remedy}") from failure
    failures = []
    for name, way in ways.items():
        attempt = replace(found, tower=replace(found.tower, inputs=way))
        wrong = _failure(attempt, built)
        if not wrong:
            return attempt, name
        if isinstance(wrong, MissingAttribute):
            raise wrong
        failures.append(f"{name}: {said(wrong)}")
    raise UnknownTower(f"{found.name} takes none of the known forms of pictures ({'; '.join(failures)}); {remedy}")

"""The towers of a ported file, each beside that of its original, for the levels that compare them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from torch import nn

from porting import host
from porting.job import Job
from porting.model_file import ModelFileError, load
from porting.result import Result, Status
from porting.shim import Original, UnknownRelease, load_original
from porting.shim.installed import installed_release
from porting.towers import structure
from porting.towers.find import Found, UnknownTower, find_class
from porting.upstream_changes import UpstreamChange, changes


@dataclass(frozen=True)
class Pair:
    """A ported tower, and its original with the same recipe, of a loaded file; `alone` is why there is none."""

    ported: Found
    original: Found | None = None
    file: Original | None = None
    alone: str = ""

    @property
    def name(self) -> str:
        return self.ported.name

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know of both."""
        return (*self.ported.notes, *(self.file.notes if self.file else ()))

    @property
    def changes(self) -> tuple[UpstreamChange, ...]:
        """What vLLM changed in this tower since its original."""
        if not self.file or not self.original:
            return ()
        return changes(self.original.cls, self.file.release, installed_release())


def each_tower(job: Job, ask: Callable[[Pair], list[Result]]) -> list[Result]:
    """What `ask` finds of each tower of the job's file, or why it could not be asked. Starts vLLM's groups."""
    host.start_groups()
    try:
        module = load(job.path)
    except ModelFileError as error:
        return [job.result(Status.ERROR, f"the file cannot be imported: {error}")]
    classes = structure.towers_of(module)
    if not classes:
        return [job.result(Status.NOT_RUN, structure.no_tower(module))]
    file, alone = _original_file(job)
    return [result for cls in classes for result in _ask(job, cls, file, alone, ask)]


def _ask(
    job: Job, cls: type[nn.Module], file: Original | None, alone: str, ask: Callable[[Pair], list[Result]]
) -> list[Result]:
    original = _original_class(cls, file.module) if file else None
    try:
        ported = find_class(cls, job.config)
    except UnknownTower as unknown:
        builds = _built_as(original, job)
        if not builds:
            return [job.result(Status.ERROR, str(unknown))]
        return [job.result(Status.FAILED, f"{unknown}; its original can, as {builds.tower.family}")]
    if original:
        return ask(Pair(ported, replace(ported, cls=original), file))
    return ask(Pair(ported, alone=alone or f"the original has no class {cls.__name__}"))


def _original_file(job: Job) -> tuple[Original | None, str]:
    """The original, or why there is none."""
    if not job.before:
        return None, "no original was given, with --before"
    try:
        return load_original(job.before, job.before_release), ""
    except (ModelFileError, UnknownRelease, ValueError) as error:
        return None, f"the original cannot be loaded: {error}"


def _original_class(cls: type[nn.Module], module: ModuleType) -> type[nn.Module] | None:
    """The class of the same name, or the only tower of a file where the port has given it another."""
    same: Any = getattr(module, cls.__name__, None)
    if structure.is_module_class(same):
        return same  # type: ignore[no-any-return]
    towers = structure.towers_of(module)
    return towers[0] if len(towers) == 1 else None


def _built_as(original: type[nn.Module] | None, job: Job) -> Found | None:
    try:
        return find_class(original, job.config) if original else None
    except UnknownTower:
        return None

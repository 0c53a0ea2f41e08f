"""Which files of a folder are models, and which original belongs to which: read as text, nothing is imported."""

from __future__ import annotations

import ast
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from codemods.discover import discover
from codemods.inputs import Input, read_all
from codemods.parsed_file import ParsedFile
from codemods.project import Class, Project
from codemods.target import target
from codemods.vision_attention import vocabulary as V
from codemods.vision_attention.attention_class import attention_classes

_A_TOWER = 2  # layers above the attention: a block holds the attention, a tower holds the blocks


@dataclass(frozen=True)
class Model:
    """A file to prove. `name` is short and no other model's of the run; `before` is the file it was ported from.

    `given` are the files and folders among which it was found.
    """

    path: Path
    name: str
    before: Path | None = None
    given: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Found:
    """`others` are files that were looked at and hold no tower; `errors` is one line for each path that is no good."""

    models: tuple[Model, ...]
    others: tuple[Path, ...] = ()
    errors: tuple[str, ...] = ()


def find_models(paths: Sequence[Path], before: Path | None, release: str) -> Found:
    """The models among files and folders. A file that is given by name is a model; in a folder its structure decides.

    A file that cannot be parsed is an error where it is given by name, and may be a model in a folder.

    `release` is the vLLM that the files are for. `before` is a folder laid out as the given one, or a file for a file.
    """
    found = discover([path for path in paths if not _is_other(path)])
    errors = [f"{path}: only .py files can be imported; give one, or a folder" for path in paths if _is_other(path)]
    errors += [str(error) for error in found.errors]
    named = {os.path.abspath(path) for path in paths}
    inputs = read_all([path for path in found.files if path.suffix == ".py"], paths, {"vllm"})
    towers = set(_with_towers([i.parsed for i in inputs if i.parsed is not None], release))
    models, others = [], []
    for entry in inputs:
        if entry.error is not None and os.path.abspath(entry.path) in named:
            errors.append(entry.error)
        elif os.path.abspath(entry.path) in named or entry.path in towers or _unreadable(entry):
            models.append(entry.path)
        else:
            others.append(entry.path)
    names = _names(models)
    return Found(
        tuple(Model(path, names[path], _original(path, paths, before), tuple(paths)) for path in models),
        tuple(others),
        tuple(errors),
    )


def _is_other(path: Path) -> bool:
    """Something that is there, and is neither a folder nor a file that could be imported."""
    return path.exists() and not path.is_dir() and path.suffix != ".py"


def _unreadable(entry: Input) -> bool:
    """It may be a model; what is wrong with it is for the levels to say."""
    return entry.error is not None


def _with_towers(files: Sequence[ParsedFile], release: str) -> Iterator[Path]:
    """Files with a class that holds, over some layers, vision attention; or one that no other file's class holds."""
    project = Project(files)
    holds = {cls.qualified: set(_held(project, cls)) for cls in project.classes.values()}
    height = dict.fromkeys(_attention_classes(project, release), 0)
    while True:
        above = {
            name: 1 + max(height[part] for part in parts if part in height)
            for name, parts in holds.items()
            if name not in height and not parts.isdisjoint(height)
        }
        if not above:
            break
        height.update(above)
    for file in project.files:
        own = {Class(file, node).qualified for node in file.classes.values()} & height.keys()
        elsewhere = {part for name, parts in holds.items() if project.classes[name].file is not file for part in parts}
        if any(height[name] >= _A_TOWER for name in own) or own - elsewhere - _held_inside(own, holds):
            yield file.path


def _held_inside(own: set[str], holds: dict[str, set[str]]) -> set[str]:
    """Classes of a file that a class of it holds which is held elsewhere: parts of a part."""
    return {part for name in own for part in holds[name]}


def _held(project: Project, cls: Class) -> Iterator[str]:
    """Classes of the project of which the attributes of a class may be instances."""
    for member in project.bases(cls):
        for values in project.assigned(member).values():
            for value in values:
                yield from (held.qualified for held in project.instances(member.file, value))


def _attention_classes(project: Project, release: str) -> Iterator[str]:
    """Classes that name vLLM's vision attention, or dispatch over its kernels by hand."""
    for file in project.files:
        if not V.VISION.search(file.text):
            continue
        for node in project.standing_for(file, V.ENCODER_ATTENTION, V.MULTI_HEAD_ATTENTION):
            cls = file.class_of(node)
            if cls is not None and not _is_annotation(file, node):
                yield Class(file, cls).qualified
        for attention in attention_classes(project, file, target(release), ()):
            yield attention.cls.qualified


def _is_annotation(file: ParsedFile, node: ast.AST) -> bool:
    above = file.parents[node]
    return isinstance(above, ast.arg) or (isinstance(above, ast.AnnAssign) and above.annotation is node)


def _names(paths: Sequence[Path]) -> dict[Path, str]:
    """The stem, with as many folders before it as it takes to tell it from the others; a package by its folder."""
    parts = {path: (*path.resolve().parent.parts, path.stem) for path in paths}
    names = {path: path.stem for path in paths}
    for count in range(2, max(map(len, parts.values()), default=0) + 1):
        often = Counter(names.values())
        doubled = [path for path, name in names.items() if often[name] > 1]
        if not doubled:
            break
        names.update({path: "/".join(parts[path][-count:]) for path in doubled})
    return names


def _original(path: Path, paths: Sequence[Path], before: Path | None) -> Path | None:
    """The file of the same place below `before`, seen from the given folder that the path lies in."""
    if before is None:
        return None
    if before.is_file():
        return before if path in paths else None
    for given in paths:
        place = Path(path.name) if path == given else path.relative_to(given) if given in path.parents else None
        if place is not None and (before / place).is_file():
            return before / place
    return None

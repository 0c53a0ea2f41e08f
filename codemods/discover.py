"""Which files a run reads: the given ones, and every `*.py` and `*.ipynb` below the given folders, each real file
once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from codemods.source_file import SourceError

SUFFIXES = (".py", ".ipynb", ".pyi")  # what may be given by name
SEARCHED = (".py", ".ipynb")  # what folders are searched for
SKIPPED_FOLDERS = {"__pycache__": "compiled Python", "node_modules": "JavaScript packages"}
ENVIRONMENT_MARKS = {"pyvenv.cfg": "virtual environment", "conda-meta": "conda environment"}


@dataclass(frozen=True, order=True)
class Skipped:
    """A file or folder below a given folder that is not looked at, and why."""

    path: Path
    reason: str


@dataclass(frozen=True)
class Discovery:
    """What a search found. `roots` are the real paths inside which files may be written."""

    files: tuple[Path, ...] = ()
    errors: tuple[SourceError, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    roots: tuple[Path, ...] = ()


@dataclass
class _Search:
    files: list[Path] = field(default_factory=list)
    errors: list[SourceError] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)


def discover(paths: Sequence[Path]) -> Discovery:
    """Find the files of a run. Paths come back as given or as found below a given one, in path order.

    Nothing is raised: a given path that is missing or is no Python file, and a folder that cannot be listed, are in
    `errors`. A given folder is always searched, even a hidden one; below it, hidden files and folders, environments and
    caches are skipped, and symbolic links to folders are not followed.
    """
    search = _Search()
    roots = []
    for path in paths:
        if _is_folder(path):
            roots.append(Path(os.path.realpath(path)))
            _walk(path, search)
        elif not os.path.lexists(path):
            search.errors.append(SourceError(path, None, "no such file or folder", "check the path"))
        elif path.suffix not in SUFFIXES:
            search.errors.append(
                SourceError(
                    path, None, "is not a Python file", "give .py, .pyi or .ipynb files, or folders that hold some"
                )
            )
        else:
            # A given link is not its own target: what it leads to must lie inside a given path too.
            roots.append(Path(os.path.realpath(path.parent), path.name))
            search.files.append(path)
    return Discovery(
        files=tuple(_once(search.files)),
        errors=tuple(
            sorted({error.path: error for error in search.errors}.values(), key=lambda error: error.path.parts)
        ),
        skipped=tuple(sorted(set(search.skipped))),
        roots=tuple(sorted(set(roots))),
    )


def _walk(folder: Path, search: _Search) -> None:
    try:
        children = sorted(folder.iterdir())
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        search.errors.append(SourceError(folder, None, f"cannot be listed: {reason}", "check its permissions"))
        return
    for path in children:
        if _is_folder(path):
            if why := _folder_skip_reason(path):
                search.skipped.append(Skipped(path, why))
            else:
                _walk(path, search)
        elif path.suffix in SEARCHED:
            if path.name.startswith("."):
                search.skipped.append(Skipped(path, "hidden"))
            else:
                search.files.append(path)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False  # below a folder that may not be entered


def _folder_skip_reason(folder: Path) -> str | None:
    if folder.name.startswith("."):
        return "hidden"
    if folder.is_symlink():
        # Inside a given path the folder is searched under its own name; outside, it is none of this run's business.
        return "symbolic link to a folder"
    if folder.name in SKIPPED_FOLDERS:
        return SKIPPED_FOLDERS[folder.name]
    return next((what for mark, what in ENVIRONMENT_MARKS.items() if os.path.lexists(folder / mark)), None)


def _once(paths: Iterable[Path]) -> Iterator[Path]:
    """Path order, each real file once; under its own name rather than a link's where both were found."""
    chosen: dict[str, Path] = {}
    for path in sorted(paths, key=lambda path: (path.is_symlink(), path.parts)):
        chosen.setdefault(os.path.realpath(path), path)
    yield from sorted(chosen.values(), key=lambda path: path.parts)

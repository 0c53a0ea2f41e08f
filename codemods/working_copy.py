"""`python -m codemods.working_copy MODELS build/migrated`: the copy that `make migrate` ports.

What lies around a file or folder is copied with it, so that its port sees its callers as it would where they are. Three
lines are printed: where the models are in the copy, where their report goes, and what became of an earlier copy, if
that is worth telling. Where nothing may be copied, the only line says why, and the exit code is 2.
"""

from __future__ import annotations

import argparse
import os
import shutil
import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from codemods.discover import ENVIRONMENT_MARKS, SKIPPED_FOLDERS
from codemods.project import VLLM_MODELS


class CopyError(Exception):
    """What was asked cannot be done; the text is one line with the remedy."""


@dataclass(frozen=True)
class WorkingCopy:
    """What is to be ported, the folder that is copied for it, and where the copy goes."""

    models: Path
    around: Path  # the folder that is copied: the models themselves, or the package they are in
    alone: bool  # a file of no package: of the folder, only the modules beside it are copied
    top: Path  # names the copy
    folder: Path

    @classmethod
    def of(cls, models: str, folder: Path) -> WorkingCopy:
        """Raises CopyError where nothing may be copied."""
        source = Path(os.path.realpath(models))
        if not models.strip() or not source.exists():
            raise CopyError(f"MODELS={models} does not exist; give a file or a folder")
        if not source.is_file() and not source.is_dir():
            raise CopyError(f"MODELS={models} is neither a file nor a folder; give one")
        copies = Path(os.path.realpath(folder))
        if copies in source.parents:
            raise CopyError(f"MODELS={models} is itself a ported copy; give the original")
        around, top = _around(source)
        alone = source.is_file() and not (around / "__init__.py").is_file() and around == top
        for what, name in ((copies, str(folder)), (Path.cwd().resolve(), "this checkout")):
            if not alone and around in (what, *what.parents):
                raise CopyError(f"MODELS={models}: {around} holds {name}; give the folder of the models alone")
        if not top.name:
            raise CopyError(f"MODELS={models} lies in no folder of its own; move it into one")
        return cls(source, around, alone, top, folder)

    @property
    def root(self) -> Path:
        return self.folder / self.top.name

    @property
    def place(self) -> Path:
        """The models in the copy."""
        return self.root / self.models.relative_to(self.top)

    @property
    def report(self) -> Path:
        return _beside(self.root, ".report.md")

    @property
    def _origin(self) -> Path:
        """A file that says what the copy was made from."""
        return _beside(self.root, ".origin")

    def make(self) -> str:
        """Copy, in place of an earlier copy. One that was worked on since, or is of other models, is kept; the line
        that says so is given back. Raises CopyError."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            said = self._clear()
            self._copy()
            self._origin.write_bytes(os.fsencode(self.models))
        except shutil.Error as error:
            source, _, why = error.args[0][0]
            raise CopyError(f"{source} cannot be copied: {why}") from error
        except OSError as error:
            raise CopyError(f"{error.filename or self.root} cannot be copied: {error.strerror or error}") from error
        return said

    def _clear(self) -> str:
        """Make room for the copy; the line that tells where an earlier one is now, if it is kept."""
        if not self.root.exists() or self._is_as_ported():
            shutil.rmtree(self.root, ignore_errors=True)
            for suffix in _BESIDE:
                _beside(self.root, suffix).unlink(missing_ok=True)
            return ""
        number = 1
        while any(_beside(self.root, f".{number}{suffix}").exists() for suffix in ("", *_BESIDE)):
            number += 1
        kept = self.root.rename(_beside(self.root, f".{number}"))
        for suffix in _BESIDE:
            if (file := _beside(self.root, suffix)).exists():
                file.rename(_beside(kept, suffix))
        return f"The earlier copy was changed by hand, or is of other models: it is kept as {kept}."

    def _is_as_ported(self) -> bool:
        """Whether the earlier copy is of these models, and no file in it is newer than its report."""
        if not self._origin.exists() or self._origin.read_bytes() != os.fsencode(self.models):
            return False
        since = (self.report if self.report.exists() else self._origin).stat().st_mtime_ns
        return all(file.stat().st_ctime_ns <= since for file in _files(self.root))

    def _copy(self) -> None:
        to = self.root / self.around.relative_to(self.top)
        if self.alone:
            to.mkdir(parents=True)
            for path in {self.models, *self.around.glob("*.py")}:
                if path.is_file() and (path == self.models or not path.name.startswith(".")):
                    _copied(str(path), str(to / path.name))
            return
        shutil.copytree(self.around, to, ignore=self._left_out, copy_function=_copied)
        for folder, _, _ in os.walk(to):
            Path(folder).chmod(Path(folder).stat().st_mode | stat.S_IRWXU)

    def _left_out(self, folder: str, names: list[str]) -> set[str]:
        """What no port needs: hidden files, environments, caches; and what cannot be copied: pipes, links that lead
        nowhere or back."""
        here = Path(folder)
        walked = [here, *(parent for parent in here.parents if self.around in (parent, *parent.parents))]
        above = {real for path in walked for real in (path.resolve(), *path.resolve().parents)}
        return {name for name in names if here / name != self.models and _is_left_out(here / name, above)}


_BESIDE = (".report.md", ".check.html", ".origin")  # what goes with a copy


def _around(source: Path) -> tuple[Path, Path]:
    """The folder to copy for a file or folder, and the one by which its modules are named: its outermost package."""
    around = source if source.is_dir() else source.parent
    for folder in (around, *around.parents):
        if folder.parts[-3:] == tuple(VLLM_MODELS.split(".")):
            return folder, folder.parents[1]  # its files are known by where they lie, without the rest of vLLM
    while all((folder / "__init__.py").is_file() for folder in (around, around.parent)):
        around = around.parent
    return around, around


def _is_left_out(path: Path, above: set[Path]) -> bool:
    if path.name.startswith(".") or path.name in SKIPPED_FOLDERS:
        return True
    if path.is_dir():
        return path.resolve() in above or any((path / mark).exists() for mark in ENVIRONMENT_MARKS)
    return not path.is_file()


def _copied(source: str, to: str) -> None:
    shutil.copy2(source, to)
    Path(to).chmod(Path(to).stat().st_mode | stat.S_IRUSR | stat.S_IWUSR)


def _files(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in SKIPPED_FOLDERS]
        yield from (Path(folder, name) for name in names)


def _beside(root: Path, suffix: str) -> Path:
    return root.with_name(root.name + suffix)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m codemods.working_copy", description=__doc__)
    parser.add_argument("models", help="a file or folder to be ported")
    parser.add_argument("folder", type=Path, help="where copies go")
    parser.add_argument("--where", action="store_true", help="copy nothing; print where the copy would be")
    arguments = parser.parse_args(argv)
    try:
        copy = WorkingCopy.of(arguments.models, arguments.folder)
        said = "" if arguments.where else copy.make()
    except CopyError as error:
        print(error)
        return 2
    print(copy.place, copy.report, said, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A migration that is looked at before it is written: rules left out one by one, written as a copy or in place, undone.

What is written is what was seen, to the byte:

    trial = Trial(Path("models"), "0.32", left_out=["VA303"])
    trial.look()                         # a report; trial.changed, trial.hunks(file), trial.rules()
    trial.write(Path("build/ported"))    # a whole ported copy; trial.write() ports in place
    trial.undo()
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from codemods import vllm_api
from codemods.carry_out import Progress
from codemods.discover import SKIPPED_FOLDERS, SUFFIXES
from codemods.findings import FileReport, Report
from codemods.hunks import Hunk, hunks
from codemods.plan import FilePlan
from codemods.rule import Rule
from codemods.rules import RULES
from codemods.run import Options, active_rules, examine
from codemods.source_file import SourceError, SourceFile, replace_file
from codemods.target import target as shape_of


class TrialError(Exception):
    """What was asked cannot be done; the text is one line with the remedy."""


@dataclass(frozen=True)
class Written:
    """What a write left on the disk: where, whether that is a copy, and of each file its bytes before and after.

    `kept` is where an earlier copy went that somebody had edited.
    """

    place: Path
    is_copy: bool
    files: dict[Path, tuple[bytes, bytes]]
    kept: Path | None = None


class Trial:
    """A file or a folder, a target, and the rules that are left out. Nothing is written but by `write`."""

    def __init__(self, path: Path, target: str, left_out: Iterable[str] = ()) -> None:
        """`target` as the command takes it, less "installed". Raises TrialError."""
        if not path.exists():
            raise TrialError(f"{path}: no such file or folder; check the path")
        try:
            self.target = vllm_api.resolve(target)
            shape_of(self.target)
        except ValueError as problem:
            raise TrialError(str(problem)) from problem
        self.path = path
        self.left_out = frozenset(left_out)
        unknown = self.left_out - {rule.code for rule in RULES}
        if unknown:
            raise TrialError(f"no rule has the code {', '.join(sorted(unknown))}; docs/rules has them all")
        self.report: Report | None = None
        self.written: Written | None = None
        self._plans: dict[str, FilePlan] = {}

    def look(self, progress: Progress | None = None) -> Report:
        """What a run would do now; what `progress` raises is passed on."""
        options = Options(self.target, write=False, ignore=self.left_out)
        self.report, plan = examine([self.path], options, progress)
        self._plans = {str(file.file.path): file for file in plan.files}
        return self.report

    @property
    def seen(self) -> Report:
        """The report of the last look, which is made if there is none."""
        return self.report or self.look()

    @property
    def changed(self) -> list[FileReport]:
        """The files that would change, in path order."""
        return [file for file in self.seen.files if file.changed]

    def hunks(self, file: FileReport) -> list[Hunk]:
        """The changes of a file of the report."""
        return hunks(file, self._plans[file.path]) if file.changed else []

    def name(self, file: FileReport) -> str:
        """A file as seen from the given folder."""
        return os.path.relpath(file.path, self.path) if self.path.is_dir() else Path(file.path).name

    def rules(self) -> list[tuple[Rule, int]]:
        """The rules that rewrite or find something here, and those that are left out, each with how often."""
        files = self.seen.files
        told = Counter(rewrite.code for file in files for rewrite in file.rewrites)
        told += Counter(finding.code for file in files for finding in file.findings)
        return [(rule, told[rule.code]) for rule in RULES if told[rule.code] or rule.code in self.left_out]

    def needing(self, code: str) -> list[str]:
        """The other rules that do not run without this one."""
        alone = {rule.code for rule in active_rules(Options(self.target, ignore=frozenset({code})))}
        return [rule.code for rule in RULES if rule.code not in alone and rule.code != code]

    # -- writing -------------------------------------------------------------------------------------------------------

    def write(self, folder: Path | None = None) -> Written:
        """Write what was looked at: into a copy below `folder`, or in place.

        An earlier copy is replaced, and kept aside where it was edited. Raises TrialError where nothing may be written;
        no file is then changed.
        """
        changed = self.changed
        sources = [self._source(file) for file in changed]
        place, kept = (self.path, None) if folder is None else self._copied(folder)
        root = Path(os.path.realpath(place))
        done: dict[Path, tuple[bytes, bytes]] = {}
        for file, source in zip(changed, sources):
            to = place / self.name(file) if self.path.is_dir() else place
            try:
                SourceFile.read(to).write(file.after or "", [root])
            except SourceError as problem:
                _put_back(done)
                raise TrialError(str(problem)) from problem
            done[to] = (source.raw, to.read_bytes())
        if folder is not None:
            _seal(place).write_text(_digest(place))
        self.written = Written(place, folder is not None, done, kept)
        return self.written

    def undo(self) -> str:
        """Take the last write back; one line says what was done. Raises TrialError, and does nothing, where a written
        file has been changed since."""
        if self.written is None:
            raise TrialError("nothing is written yet: there is nothing to undo")
        since = [str(path) for path, (_, after) in self.written.files.items() if _bytes(path) != after]
        if since:
            raise TrialError(
                f"nothing is undone, for what was edited since would be lost: {', '.join(since)}; "
                "save those edits elsewhere, take them out, and undo again"
            )
        written, self.written = self.written, None
        if written.is_copy:
            _remove(written.place)
            _seal(written.place).unlink(missing_ok=True)
            if written.kept is not None:
                written.kept.rename(written.place)
                return f"{written.place} is taken away, and the earlier copy is back"
            return f"{written.place} is taken away"
        _put_back(written.files)
        return f"{len(written.files)} files are as they were before"

    def _source(self, file: FileReport) -> SourceFile:
        try:
            source = SourceFile.read(Path(file.path))
        except SourceError as problem:
            raise TrialError(str(problem)) from problem
        if self.written is not None and self.written.files.get(source.path, (b"", b""))[1] == source.raw:
            raise TrialError(f"{file.path} is ported already: there is nothing to write; Undo takes it back")
        if source.text != file.before:
            raise TrialError(f"{file.path} was changed since it was looked at; look again")
        return source

    def _copied(self, folder: Path) -> tuple[Path, Path | None]:
        """A fresh copy of what is ported, below the folder; and where an edited one went that was there."""
        place = folder / self.path.resolve().name
        here, there = self.path.resolve(), place.resolve()
        if here == there or here in there.parents or there in here.parents:
            raise TrialError(f"{place} lies in {self.path}, or around it; write to another folder")
        try:
            kept = _put_aside(place)
            _remove(place)
            folder.mkdir(parents=True, exist_ok=True)
            if self.path.is_dir():
                shutil.copytree(self.path, place, ignore=shutil.ignore_patterns(*SKIPPED_FOLDERS, ".*"))
            else:
                shutil.copy2(self.path, place)
        except OSError as problem:
            raise TrialError(f"{place} cannot be written: {problem.strerror or problem}") from problem
        return place, kept


def _seal(place: Path) -> Path:
    """The file beside a copy that says what was written there."""
    return place.with_name(f".{place.name}.sha256")


def _digest(place: Path) -> str:
    """Of the files of a copy that a port may change, and their names."""
    files = [path for path in place.rglob("*") if path.suffix in SUFFIXES] if place.is_dir() else [place]
    found = hashlib.sha256()
    for file in sorted(files):
        found.update(f"{file.relative_to(place.parent)}\0".encode() + file.read_bytes() + b"\0")
    return found.hexdigest()


def _put_aside(place: Path) -> Path | None:
    """Give a copy another name where it is not as it was written; None where it is, or there is none."""
    seal = _seal(place)
    if not place.exists() or (seal.exists() and seal.read_text() == _digest(place)):
        return None
    number = 1
    while (kept := place.with_name(f"{place.name}.kept-{number}")).exists():
        number += 1
    return place.rename(kept)


def _put_back(files: dict[Path, tuple[bytes, bytes]]) -> None:
    for path, (before, _) in files.items():
        replace_file(path, before, like=path.stat())


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _remove(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)

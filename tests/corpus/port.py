"""One run of the codemod over the models folder of a real vLLM release."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from codemods import vllm_api
from codemods.findings import FileReport, Report
from codemods.run import Options, migrate
from tests.corpus.old_api import WORDS, Source, source

MODELS = Path("vllm", "model_executor", "models")
PROVIDER = "vision.py"  # defines part of the old API and is no user of it


@dataclass(frozen=True)
class File:
    """A file of the folder before and after the run, what the run says of it, and its two modification times in ns."""

    name: str
    before: str
    after: str
    report: FileReport
    stamps: tuple[int, int]

    @property
    def old(self) -> Source:
        return source(self.before)

    @property
    def new(self) -> Source:
        return source(self.after)


@dataclass(frozen=True)
class Port:
    """A run over a copy of a release's models. `target` is a series such as `0.15`."""

    release: Path
    folder: Path
    target: str
    report: Report
    files: tuple[File, ...]

    @property
    def vision(self) -> list[File]:
        """Files in which a name of the old API or of what takes its place stands, before or after."""
        users = (file for file in self.files if file.name != PROVIDER)
        return [file for file in users if WORDS.search(file.before) or WORDS.search(file.after)]


def lay_out(release: Path, folder: Path) -> Path:
    """A copy of a release's models as they lie in vLLM; `release` is its `vllm/` folder."""
    models = folder / MODELS
    shutil.copytree(release.parent / MODELS, models)
    return models


def port(release: Path, target: str, folder: Path, jobs: int = 1) -> Port:
    """Copy a release's models below `folder` and run the codemod over the copy."""
    models = lay_out(release, folder)
    before, stamps = texts(models), times(models)
    report = run([models], target, jobs)
    after, later = texts(models), times(models)
    reports = {name_in(models, Path(file.path)): file for file in report.files}
    files = [File(name, before[name], after[name], reports[name], (stamps[name], later[name])) for name in before]
    return Port(release, models, target, report, tuple(files))


def run(paths: Sequence[Path], target: str, jobs: int = 1) -> Report:
    return migrate(paths, Options(target=vllm_api.resolve(target), jobs=jobs))


def texts(models: Path) -> dict[str, str]:
    return {name_in(models, path): path.read_bytes().decode() for path in sorted(models.rglob("*.py"))}


def times(models: Path) -> dict[str, int]:
    return {name_in(models, path): path.stat().st_mtime_ns for path in sorted(models.rglob("*.py"))}


def name_in(models: Path, path: Path) -> str:
    return path.relative_to(models).as_posix()

"""Loading an original: its text runs as it is, and only its `import` statements are answered differently."""

from __future__ import annotations

import ast
import itertools
import re
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from codemods import calls
from codemods.parsed_file import ParsedFile
from codemods.project import Project
from codemods.source_version import source_versions
from codemods.target import release_key
from codemods.vllm_api import Api, resolve
from codemods.vllm_api import releases as indexed
from porting import releases
from porting.model_file import ModelFileError, explain
from porting.private_modules import MODELS, PrivateModules, package_of, with_neighbours
from porting.shim.installed import installed_release
from porting.shim.views import Release

_counter = itertools.count()

_REMEDY = "the original is loaded as one of vLLM {}: say so if it was written for another (--before-release)"


_FETCH = "for the files of {0} are not at hand (python -m porting.releases {0} --files)"


class UnknownRelease(Exception):
    """The text of an original does not tell which vLLM it was written for; the message is one line with the remedy."""


@dataclass(frozen=True)
class Original:
    """A loaded original. `release` is the vLLM whose names and behaviour it sees."""

    module: ModuleType
    release: str
    _views: Release

    @property
    def stubbed(self) -> tuple[str, ...]:
        """Names of vLLM and transformers that it imports, and that neither is installed nor supplied.

        It grows where the original imports while it runs. None of them can have had a part in a number: using one to
        compute raises `porting.shim.stubs.StubUsed`.
        """
        return tuple(self._views.stubs)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know of what it was compared with; it grows as `stubbed` does."""
        stubs, newer = self.stubbed, self._views.newer
        return (
            f"original of vLLM {self.release}",
            *([f"not in this vLLM, and not computed with: {', '.join(stubs)}"] if stubs else []),
            *([f"{', '.join(newer)}: as in this vLLM, {_FETCH.format(self.release)}"] if newer else []),
        )


def load_original(path: Path, release: str = "") -> Original:
    """Run the original of a model file inside the installed vLLM.

    `release` is the vLLM it was written for, empty to read that from its imports and calls. What it imports of its own
    package, or for a stock file of vLLM's models, is taken from the files beside it first, under the same shim. Nothing
    in vLLM is changed, and the modules have a private name: a ported package of the same name can be loaded beside.
    Of packages around the file, `__init__.py` runs only if the original imports a name from it.

    Raises UnknownRelease, ModelFileError, and ValueError for a release that is not indexed.
    """
    path = path.resolve()
    if not path.is_file():
        raise ModelFileError(path, None, "no such file", remedy="check the path of the original")
    version = resolve(release) if release else release_of(path)
    views = Release(version, installed_release())
    name = f"vitport_original_{next(_counter)}"
    modules, tail = PrivateModules.around(name, path, views.import_)
    views.sources = [modules]
    if (files := releases.files_of(version)) is not None:
        views.sources.append(
            PrivateModules(f"{name}_stock", MODELS, files / "model_executor" / "models", views.import_)
        )
    try:
        module = modules.module(tail)
    except Exception as error:
        raise explain(error, path, modules.folder, _REMEDY.format(version)) from error
    return Original(module, version, views)


def release_of(path: Path) -> str:
    """The newest release, no newer than the installed one, that a file and what it imports beside it may be for.

    A file in a checkout or a copy of vLLM is of that vLLM. Raises UnknownRelease.
    """
    folder, package = package_of(path)
    if package == MODELS and (version := _version_of_tree(folder)):
        return version
    files = []
    for file in with_neighbours(path):
        text = file.read_text(encoding="utf-8")
        name = ".".join((package, *file.relative_to(folder).with_suffix("").parts))
        files.append(ParsedFile(file, name, text, ast.parse(text, filename=str(file))))
    project = Project(files)
    fitting = [_fitting(project, file) for file in files]
    until = [release for release in indexed() if release_key(release) <= release_key(installed_release())]
    for release in reversed(until):
        if all(release in some for some in fitting):
            return release
    raise UnknownRelease(
        f"{path}: no known vLLM has every name that it imports; say which it is for, with --before-release"
    )


def _fitting(project: Project, file: ParsedFile) -> tuple[str, ...]:
    """Releases that a file may be for: by its vision attention, and if that does not tell, by all that it imports; of
    these the ones that take its calls, if there are any."""
    wanted = [(i.module, i.name) for i in file.imports if i.name not in (None, "*") and i.module.startswith("vllm.")]
    named = source_versions(project, file) or tuple(
        release for release in indexed() if all(Api.of(release).has(m, n or "") is not False for m, n in wanted)
    )
    made = [
        (name, node)
        for node in file.nodes[ast.Call]
        if isinstance(node, ast.Call) and (name := project.vllm(file, node.func)) is not None
    ]
    taken = [r for r in named if all(calls.why_not(Api.of(r), name, node) is None for name, node in made)]
    return tuple(taken) or named


def _version_of_tree(models: Path) -> str:
    try:
        text = (models.parents[1] / "_version.py").read_text(encoding="utf-8")
    except (OSError, IndexError):
        return ""
    found = re.search(r"^__version__ = (?:version = )?['\"]([^'\"]+)['\"]", text, re.MULTILINE)
    try:
        return resolve(found.group(1)) if found else ""
    except ValueError:
        return ""

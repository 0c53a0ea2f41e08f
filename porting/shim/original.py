"""Loading an original: its text runs as it is, and only its `import` statements are answered differently."""

from __future__ import annotations

import ast
import itertools
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from codemods.parsed_file import ParsedFile
from codemods.project import Project
from codemods.source_version import newest_source, source_versions
from codemods.vllm_api import resolve
from porting.model_file import ModelFileError, explain
from porting.private_modules import PrivateModules, package_of
from porting.shim.installed import installed_release
from porting.shim.views import Release

_counter = itertools.count()

_REMEDY = "the original is loaded as one of vLLM {}: say so if it was written for another (--before-release)"


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
    views.own = modules
    try:
        module = modules.module(tail)
    except Exception as error:
        raise explain(error, path, modules.folder, _REMEDY.format(version)) from error
    return Original(module, version, views)


def release_of(path: Path) -> str:
    """The newest release, no newer than the installed one, that a file may be written for. Raises UnknownRelease."""
    folder, package = package_of(path)
    tail = path.stem if folder == path.parent else ".".join((*path.parent.relative_to(folder).parts, path.stem))
    text = path.read_text(encoding="utf-8")
    file = ParsedFile(path, f"{package}.{tail}", text, ast.parse(text, filename=str(path)))
    project = Project([file])
    found = newest_source(project, file, source_versions(project, file), installed_release())
    if found is None:
        raise UnknownRelease(f"{path}: no known vLLM has every name that it imports; say which it is for (0.12.0, ...)")
    return found

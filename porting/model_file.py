"""Importing a ported model file under the installed vLLM, the way it will be imported when it serves."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from codemods.vllm_api import Api, installed, resolve
from porting.private_modules import MODELS, Importer, PrivateModules, package_of

_counter = itertools.count()


class ModelFileError(Exception):
    """A model file cannot be imported. The message is one line: where, what, and what to do.

    `line` is the line of the file, or of one of its own package, that failed; `missing` the full name that was not
    there, empty where something else went wrong.
    """

    def __init__(self, path: Path, line: int | None, what: str, missing: str = "", remedy: str = "") -> None:
        super().__init__(f"{path}{f':{line}' if line else ''}: {what}{f'; {remedy}' if remedy else ''}")
        self.path, self.line, self.what, self.missing, self.remedy = path, line, what, missing, remedy


def load(path: Path) -> ModuleType:
    """Import a model file, as a member of its package where it has one.

    Then it is imported by its full name from the folder that holds the package, so `__init__.py` of every package
    around it runs, as it does when vLLM loads a plugin. Otherwise it is imported as `load_alone` does.

    Raises ModelFileError.
    """
    path, folder, package = _placed(path)
    if package == MODELS and not _is_installed(path):
        return load_alone(path)
    try:
        return _import_member(path, folder, package)
    except ModelFileError:
        raise
    except Exception as error:
        raise explain(error, path, folder) from error


def load_alone(path: Path) -> ModuleType:
    """Import a model file under a private name, without running any `__init__.py` that it does not import from.

    What it imports beside itself is taken from the files there. For a file of vLLM's own models, or in no package,
    those are other vision models; all else is the installed vLLM's.

    Raises ModelFileError.
    """
    path, folder, _ = _placed(path)
    modules, tail = PrivateModules.around(f"vitport_ported_{next(_counter)}", path, _import_installed)
    try:
        return modules.module(tail)
    except Exception as error:
        raise explain(error, path, folder) from error


def is_member(path: Path) -> bool:
    """Whether `load` imports it as a member of a package. Raises ModelFileError."""
    path, _, package = _placed(path)
    return package != MODELS or _is_installed(path)


def _placed(path: Path) -> tuple[Path, Path, str]:
    path = path.resolve()
    if not path.is_file():
        raise ModelFileError(path, None, "no such file", remedy="check the path")
    try:
        return path, *package_of(path)
    except SyntaxError as error:
        raise explain(error, path, path.parent) from error
    except ValueError as error:
        raise ModelFileError(path, None, f"is no Python that can be read: {_one_line(error)}") from error


def explain(error: BaseException, path: Path, folder: Path, remedy: str = "") -> ModelFileError:
    """What went wrong while a file was imported, said of the last line below `folder` that took part in it.

    `remedy` is what to do about a name that is not there; empty for what a ported file needs.
    """
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).is_relative_to(folder)]
    where, line = (Path(frames[-1].filename), frames[-1].lineno) if frames else (path, None)
    if isinstance(error, SyntaxError) and error.filename:
        where, line = Path(error.filename), error.lineno
    if not isinstance(error, ImportError):
        return ModelFileError(where, line, f"{type(error).__name__}: {_one_line(error)}")
    name = re.search(r"cannot import name '([^']+)'", str(error))
    module = (error.name or "").partition(" ")[0]
    missing = ".".join(filter(None, (module, name.group(1) if name else "")))
    what = re.sub(r" \((?:unknown location|/[^)]*)\)$", "", _one_line(error))
    return ModelFileError(where, line, what, missing, remedy or _remedy(module, name and name.group(1)))


def _import_member(path: Path, folder: Path, package: str) -> ModuleType:
    parts = path.relative_to(folder).with_suffix("").parts
    name = ".".join((package, *parts)).removesuffix(".__init__") if package != MODELS else f"{MODELS}.{path.stem}"
    root = str(folder.parent)
    if package != MODELS and root not in sys.path:
        sys.path.insert(0, root)
    importlib.invalidate_caches()
    module = importlib.import_module(name)
    found = getattr(module, "__file__", None)
    if found is None or Path(found).resolve() != path:
        raise ModelFileError(
            path, None, f"Python finds {name} at {found} instead", remedy="rename the package, or take the other away"
        )
    return module


def _is_installed(path: Path) -> bool:
    spec = importlib.util.find_spec("vllm")
    roots = (spec.submodule_search_locations or []) if spec is not None else []
    return any(path == Path(root, "model_executor", "models", path.name).resolve() for root in roots)


def _import_installed(name: str, importer: Importer, wanted: Sequence[str]) -> Any:
    return importlib.__import__(name, {}, {}, tuple(wanted), 0)


def _remedy(module: str, name: str | None) -> str:
    top = module.partition(".")[0]
    if top != "vllm":
        return f"install what provides {top}, or check the import" if top else ""
    try:
        api = Api.of(resolve(installed() or ""))
    except ValueError:
        return "port the file with `python -m codemods.migrate`"
    found = api.exported_from(name)[:1] if name else ()
    there = f"vLLM {api.version} has {name} in {found[0]}" if found else f"vLLM {api.version} has no such name"
    return f"{there}: port the file with `python -m codemods.migrate`"


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__

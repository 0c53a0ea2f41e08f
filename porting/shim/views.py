"""vLLM as an old file sees it: modules that answer each name with what it was in the file's own release.

In this order: what the shim supplies; what the installed vLLM has at that place; what it has at the place where the
name went; a stub. A name that the old release did not have is not there either, so that imports which a file tries and
does without go the way they went then.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from codemods.moved_names import home_in
from codemods.vllm_api import Api
from porting.private_modules import MISSING, Importer, PrivateModules, is_vision_model
from porting.shim.stubs import Stub
from porting.shim.supplies import KERNEL_PACKAGES, SUPPLIES, supplied

SHIMMED = ("vllm", "transformers", *KERNEL_PACKAGES)


class View(ModuleType):
    """One module, for one old file.

    Of a module of vLLM, `__name__` says whose view it is: under the module's own name, Python would look for a missing
    name among the modules that are installed.
    """

    def __init__(self, module: str, release: Release, importer: Importer, optional: bool) -> None:
        super().__init__(f"{module} as of vLLM {release.api.version}" if is_vllm(module) else module)
        self.__dict__["_view"] = (module, release, importer, optional)

    def __getattr__(self, name: str) -> Any:
        module, release, importer, optional = self.__dict__["_view"]
        if name.startswith("__") and name != "__all__":
            if name == "__path__":
                raise AttributeError(name)
            return getattr(importlib.import_module(module), name)
        return release.name(module, name, importer, optional)


class Release:
    """All views of one original.

    `sources` are where old modules are found, nearest first: what lies beside the original, and the models of its own
    release where their files are at hand. `stubs` are the names that had to be stubbed so far, in the order of their
    import; `newer` those that were taken from vision models of the installed vLLM, for want of the old ones.
    """

    def __init__(self, version: str, installed: str) -> None:
        self.api = Api.of(version)
        self.installed = Api.of(installed)
        self.sources: list[PrivateModules] = []
        self.stubs: dict[str, Stub] = {}
        self.newer: list[str] = []

    def import_(self, name: str, importer: Importer, wanted: Sequence[str]) -> Any:
        """Answer an import statement of an old file."""
        top = name.partition(".")[0]
        line = sys._getframe(2).f_lineno  # of the statement: this is called from its `__import__`
        optional = line in importer.guarded
        if top not in SHIMMED or (top != "vllm" and optional):
            return importlib.__import__(name, {}, {}, tuple(wanted), 0)
        if top == "vllm" and not self.api.has_module(name):
            raise ModuleNotFoundError(f"No module named {name!r} in vLLM {self.api.version}", name=name)
        return self.view(name if wanted else top, importer, optional)

    def view(self, module: str, importer: Importer, optional: bool = False) -> View:
        """The module as that file sees it."""
        return View(module, self, importer, optional)

    def name(self, module: str, name: str, importer: Importer, optional: bool) -> Any:
        """What `module.name` is. Raises AttributeError where the old release had nothing of that name."""
        full = f"{module}.{name}"
        ours = is_vllm(module)
        place = self.api.origin(module, name) if ours else full
        if (supply := supplied(place, self.api.version) or supplied(full, self.api.version)) is not None:
            return supply.make(self.api, importer)
        for source in self.sources:
            if (value := source.lookup(module, name)) is not MISSING:
                return value
        if ours and self.api.has(module, name) is False:
            raise AttributeError(f"vLLM {self.api.version} has no {full}")
        value = _installed(module, name)
        if value is MISSING and ours and (home := home_in(self.installed, module, name)) is not None:
            value = _installed(home.module, home.name)
        if value is not MISSING:
            if self.api.version != self.installed.version and is_vision_model(module) and full not in self.newer:
                self.newer.append(full)
            return self.view(value.__name__, importer, optional) if _is_shimmed(value) else value
        if self._is_module(module, name):
            return self.view(full, importer, optional)
        if optional and not ours:
            raise AttributeError(f"{module} has no {name}")
        return self.stubs.setdefault(full, Stub(full, self._is_loading))

    def _is_loading(self) -> bool:
        return any(source.running for source in self.sources)

    def _is_module(self, module: str, name: str) -> bool:
        full = f"{module}.{name}"
        if not is_vllm(module):
            return any(supply.place.startswith(f"{full}.") for supply in SUPPLIES)
        return self.api.has_module(full) and name not in (self.api.names(module) or {})


def _installed(module: str, name: str) -> Any:
    try:
        found = importlib.import_module(module)
    except ImportError:
        return MISSING
    try:
        return getattr(found, name)
    except (AttributeError, ImportError):
        pass
    try:
        return importlib.import_module(f"{module}.{name}")
    except ImportError:
        return MISSING


def is_vllm(module: str) -> bool:
    """Whether a module is vLLM's."""
    return module.partition(".")[0] == "vllm"


def _is_shimmed(value: object) -> bool:
    return isinstance(value, ModuleType) and value.__name__.partition(".")[0] in SHIMMED

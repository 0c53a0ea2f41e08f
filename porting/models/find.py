"""The whole model that a file belongs to, and the architecture of vLLM's whose checkpoints it reads."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from torch import nn

from porting import models
from porting.models import registered
from porting.plugin import Plugin, plugin_of
from porting.private_modules import MODELS, package_of


class NoWholeModel(LookupError):
    """Nothing here answers about pictures, or its checkpoints are of no known family; the message says which."""


@dataclass(frozen=True)
class Whole:
    """`cls` is served as `architecture`; `stock` is the architecture that vLLM has for the same checkpoints.

    `plugin` registers it, `environment` is what that needs.
    """

    cls: type[nn.Module]
    architecture: str
    stock: str
    plugin: Plugin
    environment: dict[str, str]

    @property
    def stock_class(self) -> type[nn.Module]:
        """vLLM's own class, from its file, whatever was registered since."""
        return stock_class(self.stock)


def find(module: ModuleType, path: Path) -> Whole:
    """The whole model of a loaded file: one of its own classes, or the one of its plugin that uses it.

    Raises NoWholeModel.
    """
    own = _multimodal(module)
    plugin = _plugin(path)
    if plugin is not None:
        for architecture, cls in _registered(plugin, module.__name__.partition(".")[0]).items():
            if cls in own or _uses(cls, module):
                return Whole(cls, architecture, stock_of(cls), plugin, {})
    if not own:
        raise NoWholeModel(f"no class of {path.name} is a whole model that takes pictures")
    known = models.architectures()
    cls = next((each for each in own if each.__name__ in known), own[-1])  # the last is made of those before it
    environment = {registered.FILE: str(path.resolve()), registered.CLASS: cls.__name__}
    here = Plugin(Path(__file__).parents[2], registered.ENTRY_POINT)
    return Whole(cls, cls.__name__, stock_of(cls), here, environment)


def find_class(module: ModuleType, path: Path) -> tuple[type[nn.Module], str]:
    """The whole model of a loaded file and its stock architecture; for the file of a tower alone, vLLM's around it.

    Raises NoWholeModel.
    """
    try:
        whole = find(module, path)
        return whole.cls, whole.stock
    except NoWholeModel as reason:
        try:
            cls = around(module, path)
        except NoWholeModel:
            raise reason from None
        return cls, stock_of(cls)


def around(module: ModuleType, path: Path) -> type[nn.Module]:
    """vLLM's own whole model that imports from a file of this name, made anew so that it imports from the module.

    Raises NoWholeModel.
    """
    for architecture in models.architectures():
        name, cls = _stock(architecture)
        spec = importlib.util.find_spec(name)
        uses = rf"^from (\.|{MODELS}\.){path.stem} import "
        if spec and spec.origin and re.search(uses, Path(spec.origin).read_text(encoding="utf-8"), re.MULTILINE):
            sys.modules[f"{MODELS}.{path.stem}"] = module
            sys.modules.pop(name, None)
            found: type[nn.Module] = getattr(importlib.import_module(name), cls)
            return found
    raise NoWholeModel(
        f"no class of {path.name} is a whole model that takes pictures, and none of vLLM's is known to use it"
    )


def stock_of(cls: type[nn.Module]) -> str:
    """The architecture with a tiny configuration that a class is, extends, or has its processor from.

    Raises NoWholeModel.
    """
    known = models.architectures()
    for base in cls.__mro__:
        if base.__name__ in known:
            return base.__name__
    processing = {base.__name__ for base in _processing_info(cls).__mro__}
    for architecture in known:
        if _processing_info(stock_class(architecture)).__name__ in processing:
            return architecture
    raise NoWholeModel(f"{cls.__name__} reads checkpoints of which there is no tiny one; there are {', '.join(known)}")


def stock_class(architecture: str) -> type[nn.Module]:
    """vLLM's own class of an architecture."""
    module, name = _stock(architecture)
    cls: type[nn.Module] = getattr(importlib.import_module(module), name)
    return cls


def _stock(architecture: str) -> tuple[str, str]:
    """Module and class."""
    from vllm.model_executor.models import registry

    file, name = registry._VLLM_MODELS[architecture]
    return f"{MODELS}.{file}", name


def _multimodal(module: ModuleType) -> list[type[nn.Module]]:
    """The classes that a module defines and that have a processor for pictures."""
    from vllm.model_executor.models.interfaces import supports_multimodal

    return [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and value.__module__ == module.__name__
        and issubclass(value, nn.Module)
        and supports_multimodal(value)
        and hasattr(value, "_processor_factory")
    ]


def _processing_info(cls: type[nn.Module]) -> type:
    factory = getattr(cls, "_processor_factory", None)
    return factory.info if factory is not None and isinstance(factory.info, type) else object


def _plugin(path: Path) -> Plugin | None:
    folder, package = package_of(path.resolve())
    return None if package == MODELS else plugin_of(path, folder.parent)


def _registered(plugin: Plugin, package: str) -> dict[str, type[nn.Module]]:
    """The models of a package that its plugin registers, by architecture."""
    from vllm import ModelRegistry

    if str(plugin.root) not in sys.path:
        sys.path.insert(0, str(plugin.root))
    for value in plugin.entry_points.values():
        module, _, function = value.partition(":")
        getattr(importlib.import_module(module), function)()
    where = {
        name: getattr(model, "module_name", None) or model.load_model_cls().__module__
        for name, model in ModelRegistry.models.items()
    }
    return {
        name: ModelRegistry.models[name].load_model_cls()
        for name, module in where.items()
        if module.partition(".")[0] == package
    }


def _uses(cls: type[nn.Module], module: ModuleType) -> bool:
    """Whether the module of a class has something of another module, itself or by way of its package."""
    package = cls.__module__.partition(".")[0]
    seen: set[str] = set()
    new = {cls.__module__}
    while new:
        name = new.pop()
        seen.add(name)
        for value in vars(sys.modules[name]).values():
            source = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
            if isinstance(source, str) and source.partition(".")[0] == package and source in sys.modules:
                new |= {source} - seen
    return module.__name__ in seen

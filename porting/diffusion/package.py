"""The vllm_omni package that is asked about, wherever it lies."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

NAME = "vllm_omni"
LAYER = Path("diffusion", "attention", "layer.py")


@dataclass(frozen=True)
class Package:
    """`root` is the folder of the package, `version` what it says of itself, empty where it does not."""

    root: Path
    version: str = ""


def package_of(path: Path) -> Package:
    """The package that a path names: its folder, a folder that holds it, or anything inside it. Raises ValueError."""
    inside = [folder for folder in (path, *path.resolve().parents) if (folder / LAYER).is_file()]
    below = [path / NAME] if (path / NAME / LAYER).is_file() else []
    for root in (*below, *inside):
        return Package(root.resolve(), _version(root))
    raise ValueError(f"{path} is no {NAME} package, nor part of one: there is no {LAYER} in it or above")


def _version(root: Path) -> str:
    """From the file that the build of a release writes, or from the one that older ones have by hand."""
    for name in ("_version.py", "version.py"):
        try:
            tree = ast.parse((root / name).read_text(encoding="utf-8"))
        except (OSError, SyntaxError, ValueError):
            continue
        for node in tree.body:
            named = {target.id for target in getattr(node, "targets", ()) if isinstance(target, ast.Name)}
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and "__version__" in named:
                return str(node.value.value)
    return ""


def enter(package: Package) -> None:
    """Make the package importable in this process, its own `__init__` left out: that one starts a serving stack.

    Raises RuntimeError where another one is imported already.
    """
    if NAME in sys.modules:
        raise RuntimeError(f"{NAME} is imported already; a process can have one")
    module = ModuleType(NAME)
    module.__path__ = [str(package.root)]
    module.__spec__ = ModuleSpec(NAME, None, is_package=True)
    module.__spec__.submodule_search_locations = [str(package.root)]
    sys.modules[NAME] = module


def submodule(name: str) -> ModuleType:
    """`vllm_omni.NAME`, imported. Raises whatever the package does."""
    return importlib.import_module(f"{NAME}.{name}")


@contextmanager
def configured(config: object) -> Iterator[None]:
    """The package's own contexts around the building and calling of its layers."""
    with ExitStack() as stack:
        stack.enter_context(submodule("diffusion.forward_context").set_forward_context(omni_diffusion_config=config))
        if importlib.util.find_spec(f"{NAME}.diffusion.config"):  # since 0.22
            stack.enter_context(submodule("diffusion.config").set_current_diffusion_config(config))
        yield

"""Modules of one folder under a private name, so that two editions of a package live in one process.

Nothing of them is seen by others: they are not importable by their public name, and their `import` statements are
answered here. What they import of their own comes from the files beside them; all else is asked of `outside`.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from codemods.vision_attention.vocabulary import VISION

MODELS = "vllm.model_executor.models"

# Modules of vLLM's folder of models that hold no model. Beside a stock model they are not taken from its folder: models
# use what is installed, and what that lacks is theirs to port.
NO_MODELS = frozenset(
    {"", "adapters", "config", "interfaces", "interfaces_base", "module_mapping", "registry", "utils", "vision"}
)

MISSING = object()

Outside = Callable[[str, "Importer", Sequence[str]], Any]


class Importer:
    """One of the modules while it imports: its path and text, and the lines of imports that may fail.

    Those stand in a `try` whose handler catches an ImportError.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = path.read_text(encoding="utf-8")
        self.tree = ast.parse(self.text, filename=str(path))
        self.guarded = frozenset(_guarded_lines(self.tree))


class _Package(ModuleType):
    """A package of which `__init__.py` runs only if a name is asked for that is none of its modules."""

    _modules: PrivateModules
    _tail: str

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        below = f"{self._tail}.{name}".lstrip(".")
        if self._modules.has(below):
            return self._modules.module(below)
        if self._modules.run_init(self) and name in self.__dict__:
            return self.__dict__[name]
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


class PrivateModules:
    """The modules below `folder`, known to each other as `package` and to Python as `name`.

    A stock model file stands for a module of vLLM's own models, wherever it lies: what it imports beside itself and
    does not find there is vLLM's.
    """

    def __init__(self, name: str, package: str, folder: Path, outside: Outside) -> None:
        self.name = name
        self.package = package
        self.folder = folder
        self._outside = outside
        self.running = 0  # how many of the modules are being run just now

    @classmethod
    def around(cls, name: str, path: Path, outside: Outside) -> tuple[PrivateModules, str]:
        """The modules that a file belongs to, and which of them it is."""
        top, package = package_of(path)
        if package == MODELS:
            return cls(name, package, path.parent, outside), path.stem
        tail = ".".join((*path.parent.relative_to(top).parts, *([] if path.stem == "__init__" else [path.stem])))
        return cls(name, package, top, outside), tail

    def has(self, tail: str) -> bool:
        """Whether there is a module or a package of that name below the folder that may be used from it."""
        if self.package == MODELS and tail in NO_MODELS:
            return False
        return self._file(tail) is not None or self._is_package(tail)

    def serves(self, tail: str, wanted: Sequence[str]) -> bool:
        """Whether these names of a module are to be had here rather than outside.

        Beside a stock file, other vision models are; of others, language models mostly, only what vLLM lacks.
        """
        if not self.has(tail) or self.package != MODELS or self._is_package(tail):
            return self.has(tail)
        text = self.folder.joinpath(f"{tail}.py").read_text(encoding="utf-8")
        return VISION.search(text) is not None or any(_lacks(f"{MODELS}.{tail}", name) for name in wanted)

    def module(self, tail: str) -> ModuleType:
        """The module, run if it was not yet. Raises whatever running it raises."""
        private = f"{self.name}.{tail}".rstrip(".")
        if private in sys.modules:
            return sys.modules[private]
        file = self._file(tail)
        if file is None:
            package = _Package(private)
            package._modules, package._tail = self, tail
            package.__package__ = private
            package.__path__ = []  # nothing below is found but by way of this class
            sys.modules[private] = package
            return package
        return self._run(ModuleType(private), file, private.rpartition(".")[0])

    def run_init(self, package: _Package) -> bool:
        """Run the `__init__.py` of a package unless that was done; False where there is none."""
        file = self.folder.joinpath(*filter(None, package._tail.split(".")), "__init__.py")
        if getattr(package, "__file__", None) is None and file.is_file():
            self._run(package, file, package.__name__)
        return file.is_file()

    def _run(self, module: ModuleType, file: Path, package: str) -> ModuleType:
        importer = Importer(file)
        private = module.__name__
        module.__file__, module.__package__ = str(file), package
        module.__spec__ = ModuleSpec(private, None, origin=str(file))
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": self._import_for(importer)}
        sys.modules[private] = module
        self.running += 1
        try:
            exec(compile(importer.tree, str(file), "exec", dont_inherit=True), module.__dict__)
        except BaseException:
            del sys.modules[private]
            raise
        finally:
            self.running -= 1
        return module

    def lookup(self, module: str, name: str) -> Any:
        """What `module.name` is if that is to be had here, MISSING if not. Both by their public names."""
        if f"{module}.{name}".startswith(f"{self.package}."):
            tail = f"{module}.{name}"[len(self.package) + 1 :]
            if self.has(tail):
                return self.module(tail)
        if module.startswith(f"{self.package}.") and self.serves(tail := module[len(self.package) + 1 :], (name,)):
            return getattr(self.module(tail), name, MISSING)
        return MISSING

    def _import_for(self, importer: Importer) -> Callable[..., Any]:
        def import_(
            name: str, globals: Any = None, locals: Any = None, fromlist: Sequence[str] | None = (), level: int = 0
        ) -> Any:
            wanted = tuple(fromlist or ())
            if level:
                name = self._absolute(name, str((globals or {}).get("__package__", self.name)), level)
            if not f"{name}.".startswith(f"{self.package}."):
                return self._outside(name, importer, wanted)
            tail = name[len(self.package) + 1 :]
            if self.package == MODELS and not (wanted and self.serves(tail, wanted)):
                return self._outside(name, importer, wanted)
            if not self.has(tail):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            return self.module(tail if wanted else "")

        return import_

    def _absolute(self, name: str, importing: str, level: int) -> str:
        package = (self.package + importing[len(self.name) :]).split(".")
        if level > len(package):
            raise ImportError("attempted relative import beyond top-level package")
        return ".".join((*package[: len(package) - level + 1], *([name] if name else [])))

    def _file(self, tail: str) -> Path | None:
        file = self.folder.joinpath(*tail.split(".")).with_suffix(".py") if tail else None
        return file if file is not None and file.is_file() else None

    def _is_package(self, tail: str) -> bool:
        folder = self.folder.joinpath(*filter(None, tail.split(".")))
        return folder.is_dir() and (not tail or any(folder.glob("*.py")))


def package_of(path: Path) -> tuple[Path, str]:
    """The folder of the package that a file is a member of and its name; vLLM's models for a stock file.

    A file is stock where its folder is that of vLLM's models or a copy of it, where it is in no package, and where it,
    or what it imports beside itself, imports beside itself what does not lie there: files of vLLM's laid out alone.
    """
    folder = path.parent
    parts = tuple(MODELS.split("."))
    is_copy = all((folder / f"{name}.py").is_file() for name in ("interfaces", "registry", "utils"))
    if folder.parts[-len(parts) :] == parts or is_copy or not (folder / "__init__.py").is_file():
        return folder, MODELS
    if any(not (folder / f"{name}.py").is_file() and not (folder / name).is_dir() for name in _imported_beside(path)):
        return folder, MODELS
    while (folder.parent / "__init__.py").is_file():
        folder = folder.parent
    return folder, folder.name


def with_neighbours(path: Path) -> list[Path]:
    """The file, and every file of its folder that it imports relatively, directly or by way of others."""
    names = {f"{name}.py" for name in _imported_beside(path)}
    return [path, *sorted(path.parent / name for name in names if (path.parent / name).is_file())]


def _imported_beside(path: Path) -> set[str]:
    """Names of modules that a file, or a neighbour that it imports, imports from its own folder."""
    found: set[str] = set()
    new = [path]
    while new:
        tree = ast.parse(new.pop().read_bytes(), filename=str(path))
        imports = (n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.level == 1)
        names = {n.module.partition(".")[0] for n in imports if n.module}
        new += [path.parent / f"{name}.py" for name in names - found if (path.parent / f"{name}.py").is_file()]
        found |= names
    return found


def is_vision_model(module: str) -> bool:
    """Whether an installed module is a model of vLLM's that has a part in vision attention."""
    if not module.startswith(f"{MODELS}.") or module[len(MODELS) + 1 :] in NO_MODELS:
        return False
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        return False
    file = Path(spec.origin) if spec is not None and spec.origin else None
    return file is not None and file.suffix == ".py" and VISION.search(file.read_text(encoding="utf-8")) is not None


def _lacks(module: str, name: str) -> bool:
    try:
        return not hasattr(importlib.import_module(module), name)
    except ImportError:
        return True


def _guarded_lines(tree: ast.Module) -> set[int]:
    caught = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}
    lines: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Try):
            continue
        kinds = [kind for handler in node.handlers for kind in _names(handler.type)]
        if caught.intersection(kinds) or any(handler.type is None for handler in node.handlers):
            imports = (n for stmt in node.body for n in ast.walk(stmt) if isinstance(n, (ast.Import, ast.ImportFrom)))
            lines.update(line for n in imports for line in range(n.lineno, (n.end_lineno or n.lineno) + 1))
    return lines


def _names(kind: ast.expr | None) -> list[str]:
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return [k.id for k in kinds if isinstance(k, ast.Name)]

"""Facts across files: what a name means after re-exports, which class an expression is, which function a call
reaches."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from codemods.memory import Memory, remembered
from codemods.parsed_file import FunctionNode, Import, ParsedFile, dotted, parameters, self_attribute

AnyFunction = ast.FunctionDef | ast.AsyncFunctionDef

VLLM_MODELS = "vllm.model_executor.models"


@cache
def _is_package(folder: Path) -> bool:
    return (folder / "__init__.py").is_file()


def module_name(path: Path) -> tuple[str, bool]:
    """The dotted name a file is imported by, from the packages around it; and whether it is a package's own file.

    A folder that lies as `vllm/model_executor/models` is vLLM's, whether or not the folders above it are packages.
    """
    path = path.resolve()
    names = [] if path.name == "__init__.py" else [path.stem]
    folder = path.parent
    if folder.parts[-3:] == tuple(VLLM_MODELS.split(".")):
        return ".".join([VLLM_MODELS, *names]), path.name == "__init__.py"
    if not _is_package(folder):  # loose files: those of a folder see each other, and no file of another folder
        return ".".join([re.sub(r"\W", "_", str(folder)), *names]), False
    while _is_package(folder):
        names.insert(0, folder.name)
        folder = folder.parent
    return ".".join(names), path.name == "__init__.py"


@cache
def _on_disk(base: Path) -> bool:
    """Whether a module lies there, as a file or a folder."""
    return base.with_name(f"{base.name}.py").is_file() or base.is_dir()


@dataclass(frozen=True)
class Function:
    """A function of the project. `skip` says how many leading parameters a call does not pass (`self`)."""

    file: ParsedFile
    node: AnyFunction
    skip: int = 0

    @property
    def parameters(self) -> list[str]:
        return [argument.arg for argument in parameters(self.node)][self.skip :]

    def passed(self, call: ast.Call) -> dict[str, ast.expr] | None:
        """Parameter name -> the expression a call passes for it. None where `*args` or `**kwargs` hide that."""
        if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
            return None
        positional = [a.arg for a in [*self.node.args.posonlyargs, *self.node.args.args]][self.skip :]
        result = dict(zip(positional, call.args))
        result.update({k.arg: k.value for k in call.keywords if k.arg is not None})
        return result


@dataclass(frozen=True)
class Class:
    file: ParsedFile
    node: ast.ClassDef

    @property
    def qualified(self) -> str:
        return f"{self.file.module}.{self.node.name}"

    def own(self, name: str) -> AnyFunction | None:
        return next((n for n in self.node.body if isinstance(n, FunctionNode) and n.name == name), None)


class Project:
    """All files of a run (and, read only, their neighbours)."""

    def __init__(self, files: Sequence[ParsedFile]) -> None:
        self.files = list(files)
        self.by_module: dict[str, ParsedFile] = {}
        for index, file in enumerate(self.files):
            if file.module in self.by_module:  # two trees with packages of one name
                file.module = f"{file.module}__{index}"
            self.by_module[file.module] = file
        self.memory: Memory = {}
        self._attributes: dict[tuple[str, str], list[tuple[ParsedFile, ast.Call]]] = {}
        self._makers: dict[tuple[ast.AST, int], list[tuple[ParsedFile, ast.Call]]] = {}
        self._unfinished = 0  # attributes that are being looked into
        self._values: dict[str, dict[str, list[ast.expr]]] = {}
        self._aliases: dict[str, dict[str, set[str]]] = {}

    # -- names -------------------------------------------------------------------------------------------------------

    @remembered
    def meaning(self, file: ParsedFile, node: ast.AST | None, at: ast.AST | None = None) -> str | None:
        """What an expression stands for, after following re-exports through files of the project."""
        name = file.resolve(node, at) or self._by_star(file, node, at or node)
        return None if name is None else self.follow(name)

    def follow(self, name: str) -> str:
        for _ in range(8):  # a chain of re-exports; a loop of them is not worth more
            module, _, last = name.rpartition(".")
            while module and module not in self.by_module:
                module, _, head = module.rpartition(".")
                last = f"{head}.{last}"
            file = self.by_module.get(module)
            if file is None:
                return name
            first, _, rest = last.partition(".")
            found = file._scopes.get(file.tree, {}).get(first, [])
            targets = {b.qualified for b in found if isinstance(b, Import)}
            if not found and (starred := self._brought_by_star(file, first)):
                name = f"{starred}.{last}"
                continue
            if len(found) != 1 or len(targets) != 1:
                return name
            name = targets.pop() + (f".{rest}" if rest else "")
        return name

    def _by_star(self, file: ParsedFile, node: ast.AST | None, at: ast.AST | None) -> str | None:
        """The same for a name that `from module import *` brings from another file of the project."""
        name = dotted(node)
        first, dot, rest = (name or "").partition(".")
        if not name or at is None or file.bound(first, at):
            return None
        module = self._brought_by_star(file, first)
        return f"{module}.{first}{dot}{rest}" if module else None

    def _brought_by_star(self, file: ParsedFile, name: str) -> str | None:
        """The one module of the project of which a `*` at a file's module level brings the name."""
        if name.startswith("_"):
            return None
        found = []
        for star in file._scopes.get(file.tree, {}).get("*", []):
            home = self.by_module.get(star.module) if isinstance(star, Import) else None
            if home is not None and (name in home.exported if home.exported else self._binds(home, name)):
                found.append(home.module)
        return found[0] if len(found) == 1 else None

    def _binds(self, file: ParsedFile, name: str) -> bool:
        table = file._scopes.get(file.tree, {})
        return name in table or ("*" in table and self._brought_by_star(file, name) is not None)

    @remembered
    def vllm(self, file: ParsedFile, node: ast.AST | None, at: ast.AST | None = None) -> str | None:
        """The dotted vLLM name an expression stands for, or None if it is not vLLM's.

        A relative import of a file that is not there (`from .vision import ...` in a file copied out of vLLM's models
        folder) is vLLM's own neighbour.
        """
        name = self.meaning(file, node, at)
        if name is None:
            return None
        if name.startswith("vllm."):
            return name
        module, _, last = name.rpartition(".")
        neighbour = self._missing_neighbour(file, node, at or node)
        return f"{neighbour}.{last}" if neighbour and module not in self.by_module else None

    def aliases(self, file: ParsedFile) -> dict[str, set[str]]:
        """The last part of what each imported name stands for -> the local names for it."""
        if file.module not in self._aliases:
            table: dict[str, set[str]] = {}
            for imported in file.imports:
                if imported.name is not None:
                    table.setdefault(self.follow(imported.qualified).rpartition(".")[2], set()).add(imported.alias)
            self._aliases[file.module] = table
        return self._aliases[file.module]

    def standing_for(self, file: ParsedFile, *names: str) -> Iterator[ast.Name | ast.Attribute]:
        """Expressions that read one of vLLM's names, whatever they are called in this file."""
        local = {alias for name in names for alias in self.aliases(file).get(name, ())}
        for alias in sorted(local):
            for name in file.reads.get(alias, ()):
                if self.vllm(file, name, name):
                    yield name
        attributes = (node for name in names for node in file.attributes.get(name, ()))
        for node in sorted(attributes, key=file.position):
            if isinstance(node.ctx, ast.Load) and self.vllm(file, node, node):
                yield node

    @classmethod
    def _missing_neighbour(cls, file: ParsedFile, node: ast.AST | None, at: ast.AST | None) -> str | None:
        """vLLM's module that the import of an expression's first name means by a neighbour that is not there."""
        while isinstance(node, ast.Attribute):
            node = node.value
        bound = file.bound(node.id, at) if isinstance(node, ast.Name) and at is not None else []
        for binding in bound:
            if isinstance(binding, Import):
                return cls.missing_neighbour(file, binding.statement)
        return None

    @staticmethod
    def missing_neighbour(file: ParsedFile, statement: ast.stmt) -> str | None:
        """vLLM's module that a relative import means, in a file copied out of vLLM's models folder.

        None if the file it names is there. In vLLM's own tree a neighbour is never missing, only not given.
        """
        if not isinstance(statement, ast.ImportFrom) or not statement.level or not statement.module:
            return None
        above, package, folders = statement.level - 1, VLLM_MODELS.split("."), file.path.absolute().parents
        if file.module.startswith("vllm.") or above >= min(len(package), len(folders)):
            return None
        if _on_disk(folders[above].joinpath(*statement.module.split("."))):
            return None
        return ".".join([*package[: len(package) - above], statement.module])

    # -- classes -----------------------------------------------------------------------------------------------------

    @cached_property
    def classes(self) -> dict[str, Class]:
        return {c.qualified: c for file in self.files for c in (Class(file, n) for n in file.classes.values())}

    def class_named(self, file: ParsedFile, node: ast.AST | None) -> Class | None:
        name = self.meaning(file, node)
        return self.classes.get(name) if name else None

    @remembered
    def bases(self, cls: Class) -> tuple[Class, ...]:
        """The class and its bases inside the project, nearest first."""
        found: dict[str, Class] = {}
        queue = [cls]
        while queue:
            here = queue.pop(0)
            if here.qualified in found:
                continue
            found[here.qualified] = here
            plain = [node.value if isinstance(node, ast.Subscript) else node for node in here.node.bases]
            queue += [base for node in plain if (base := self.class_named(here.file, node)) is not None]
        return tuple(found.values())

    @cached_property
    def subclasses(self) -> dict[str, list[Class]]:
        table: dict[str, list[Class]] = {}
        for cls in self.classes.values():
            for base in self.bases(cls)[1:]:
                table.setdefault(base.qualified, []).append(cls)
        return table

    def method(self, cls: Class, name: str) -> Function | None:
        for here in self.bases(cls):
            node = here.own(name)
            if node is not None:
                static = any(dotted(d) == "staticmethod" for d in node.decorator_list)
                return Function(here.file, node, 0 if static else 1)
        return None

    # -- what an expression is an instance of ------------------------------------------------------------------------

    def instances(self, file: ParsedFile, node: ast.AST, depth: int = 0) -> list[Class]:
        """Classes of the project that the value of an expression may be an instance of (or a list of)."""
        makers = self.makers(file, node, depth)
        return [c for home, call in makers if (c := self.class_named(home, call.func)) is not None]

    def makers(self, file: ParsedFile, node: ast.AST, depth: int = 0) -> list[tuple[ParsedFile, ast.Call]]:
        """The calls that may have made the value of an expression (or the items of it), followed as far as the project
        goes: each calls a class of the project, or something from outside."""
        if depth > 6:
            return []
        key = (node, depth)
        if key in self._makers:
            return self._makers[key]
        found = self._made(file, node, depth)
        if not self._unfinished:  # else it may lack what is still being looked for
            self._makers[key] = found
        return found

    def _made(self, file: ParsedFile, node: ast.AST, depth: int) -> list[tuple[ParsedFile, ast.Call]]:
        if isinstance(node, ast.IfExp):
            return [*self.makers(file, node.body, depth + 1), *self.makers(file, node.orelse, depth + 1)]
        if isinstance(node, (ast.Subscript, ast.Starred)):
            return self.makers(file, node.value, depth + 1)
        if isinstance(node, (ast.List, ast.Tuple)):
            return [m for item in node.elts for m in self.makers(file, item, depth + 1)]
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            return self.makers(file, node.elt, depth + 1)
        if isinstance(node, ast.Call):
            if self.class_named(file, node.func) is not None:
                return [(file, node)]
            if passed := _passed_on(node):
                return [m for a in passed for m in self.makers(file, a, depth + 1)]
            reached = self.callee(file, node, depth + 1)
            if reached is not None and reached.node.name not in ("__init__", "forward"):
                return [m for value in self.returned(reached.node) for m in self.makers(reached.file, value, depth + 1)]
            return [(file, node)] if reached is None else []
        if isinstance(node, ast.Lambda):
            return self.makers(file, node.body, depth + 1)
        attribute = self_attribute(node)
        if attribute is not None:
            owner = file.class_of(node)
            return self._attribute(Class(file, owner), attribute) if owner is not None else []
        if isinstance(node, ast.Attribute):
            return [m for base in self.instances(file, node.value, depth + 1) for m in self._attribute(base, node.attr)]
        if isinstance(node, ast.Name):
            return [m for value in _sources(file, node) for m in self.makers(file, value, depth + 1)]
        return []

    def sources(self, file: ParsedFile, node: ast.expr, depth: int = 0) -> list[ast.expr]:
        """The expressions that a value, or a list that it is an item of, comes from through local names."""
        inner: list[ast.expr] = []
        if isinstance(node, (ast.Subscript, ast.Starred)):
            inner = [node.value]
        elif isinstance(node, ast.Name):
            inner = _sources(file, node)
        elif isinstance(node, ast.Call):
            inner = _passed_on(node)
        if depth > 6 or not inner:
            return [node]
        return [source for value in inner for source in self.sources(file, value, depth + 1)]

    @remembered
    def returned(self, function: AnyFunction) -> list[ast.expr]:
        """What the `return` statements of a function give."""
        return [n.value for n in ast.walk(function) if isinstance(n, ast.Return) and n.value is not None]

    def _attribute(self, cls: Class, attribute: str) -> list[tuple[ParsedFile, ast.Call]]:
        key = (cls.qualified, attribute)
        if key not in self._attributes:
            self._attributes[key] = []  # an attribute set from itself adds nothing
            self._unfinished += 1
            found = [
                m
                for here in self.bases(cls)
                for value in self.assigned(here).get(attribute, ())
                for m in self.makers(
                    here.file, value
                )  # anew from here: what is remembered must not depend on the way in
            ]
            self._unfinished -= 1
            self._attributes[key] = list({id(call): (file, call) for file, call in found}.values())
        return self._attributes[key]

    def assigned(self, cls: Class) -> dict[str, list[ast.expr]]:
        """Attribute of self -> what a class sets it to, anywhere."""
        if cls.qualified not in self._values:
            table: dict[str, list[ast.expr]] = {}
            for statement in cls.file.below(cls.node):
                if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
                    for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
                        name = self_attribute(target)
                        if name is not None:
                            table.setdefault(name, []).append(statement.value)
                elif isinstance(statement, ast.Call) and isinstance(statement.func, ast.Attribute) and statement.args:
                    name = self_attribute(statement.func.value)
                    if name is not None and statement.func.attr in ("append", "extend", "insert", "add_module"):
                        table.setdefault(name, []).append(statement.args[-1])
            self._values[cls.qualified] = table
        return self._values[cls.qualified]

    # -- what a call reaches -----------------------------------------------------------------------------------------

    def callee(self, file: ParsedFile, call: ast.Call, depth: int = 0) -> Function | None:
        """The project function a call reaches, or None if that is not known or not the project's."""
        function = call.func
        cls = self.class_named(file, function)
        if cls is not None:
            return self.method(cls, "__init__")
        owner = file.class_of(call)
        if isinstance(function, ast.Attribute):
            if isinstance(function.value, ast.Call) and dotted(function.value.func) == "super" and owner is not None:
                for base in self.bases(Class(file, owner))[1:]:
                    found = self.method(base, function.attr)
                    if found is not None:
                        return found
                return None
            holder = self.class_named(file, function.value)
            if holder is not None:  # Class.method(instance, ...)
                found = self.method(holder, function.attr)
                return Function(found.file, found.node, 0) if found is not None else None
            if isinstance(function.value, ast.Name) and function.value.id in ("self", "cls") and owner is not None:
                found = self.method(Class(file, owner), function.attr)
                if found is not None:
                    return found
        name = self.meaning(file, function)
        if name is not None and (home := self.by_module.get(name.rpartition(".")[0])) is not None:
            node = home.defined(name.rpartition(".")[2])
            if node is not None:
                return Function(home, node, 0)
        if isinstance(function, ast.Attribute) and function.attr in ("forward", "__call__"):
            function = function.value
        reached = [m for c in self.instances(file, function, depth + 1) if (m := self.method(c, "forward")) is not None]
        return reached[0] if len({id(m.node) for m in reached}) == 1 else None


_PASSES_ON = frozenset(
    {"ModuleList", "Sequential", "enumerate", "zip", "reversed", "list", "tuple", "make_layers", "islice"}
)  # their results are, or hold, what they are given


def _passed_on(call: ast.Call) -> list[ast.expr]:
    """What the result of a call is, or holds."""
    name = (dotted(call.func) or "").rpartition(".")[2]
    if name not in _PASSES_ON:
        return []
    return call.args[:1] if name in ("islice", "enumerate") else call.args


def _sources(file: ParsedFile, node: ast.Name) -> list[ast.expr]:
    """Expressions a local name may hold: assigned values, or what a loop runs over."""
    found: list[ast.expr] = []
    for binding in file.bound(node.id, node):
        if not isinstance(binding, ast.AST):
            continue
        above = file.parents.get(binding)
        position: int | None = None
        starred = False  # `first, *rest = self.blocks`
        if isinstance(above, ast.Starred):
            binding, above = above, file.parents[above]
        if isinstance(above, ast.Tuple):
            position = above.elts.index(binding)  # type: ignore[arg-type]
            starred = any(isinstance(element, ast.Starred) for element in above.elts)
            above = file.parents[above]
        if starred and isinstance(above, ast.Assign) and not isinstance(above.value, ast.Call):
            found.append(above.value)
        elif isinstance(above, ast.Assign) and binding is not above.value and position is None:
            found.append(above.value)
        elif isinstance(above, (ast.For, ast.comprehension)):
            over = above.iter
            if position is not None and isinstance(over, ast.Call) and over.args:
                name = dotted(over.func)
                if name == "enumerate" and position == 1:
                    over = over.args[0]
                elif name == "zip" and position < len(over.args):
                    over = over.args[position]
            found.append(over)
        elif isinstance(above, ast.NamedExpr):
            found.append(above.value)
    return found

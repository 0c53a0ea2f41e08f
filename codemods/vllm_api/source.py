"""What one Python file offers: names and where they come from, classes and functions. Read as text, never run."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from codemods.vllm_api.store import HERE, OUTSIDE

_FIELD_DECORATORS = frozenset({"dataclass", "config"})  # vLLM's `config` makes pydantic dataclasses
_Decorated: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_ATTRIBUTE_DECORATORS = frozenset({"property", "cached_property", "setter", "deleter", "getter", "classproperty"})


@dataclass
class Class:
    """A class as written; nothing inherited."""

    bases: tuple[str, ...]  # dotted names, resolved through the module's imports; "?" when not a plain name
    methods: dict[str, str] = field(default_factory=dict)  # name -> signature text, without self or cls
    attributes: set[str] = field(default_factory=set)  # class attributes, properties, and what methods set on self
    held: dict[str, str] = field(default_factory=dict)  # attribute -> dotted name of what makes it, or its items
    fields: list[str] = field(default_factory=list)  # annotated names in order, in signature text
    assigned: list[str] = field(default_factory=list)  # names given a value in the class body, in order
    dataclass: ast.expr | None = None  # the decorator that writes the constructor from the fields


@dataclass
class Module:
    """What one file offers at run time (imports under `TYPE_CHECKING` are left out)."""

    names: dict[str, str] = field(default_factory=dict)  # name -> HERE, OUTSIDE or the dotted vLLM name it stands for
    open: bool = False  # more names may exist than can be read
    stars: list[str] = field(default_factory=list)  # vLLM modules imported with `*`
    public: list[str] | None = None  # a literal `__all__`
    functions: dict[str, str] = field(default_factory=dict)  # name -> signature text
    classes: dict[str, Class] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)  # `X = Y`: X -> the dotted name Y resolves to


def module_name(path: str) -> tuple[str, bool]:
    """`vllm/a/b.py` -> (`vllm.a.b`, whether it is a package)."""
    parts = path.removesuffix(".py").split("/")
    package = parts[-1] == "__init__"
    return ".".join(parts[:-1] if package else parts), package


def read(name: str, package: bool, text: str) -> Module:
    """The facts of one module. Raises `SyntaxError` when the text is not Python."""
    tree = ast.parse(text)
    reader = _Reader(name, package)
    reader.block(tree.body)
    return reader.finish(tree)


class _Reader:
    def __init__(self, name: str, package: bool) -> None:
        self.out = Module()
        self._name = name
        self._package = name if package else name.rpartition(".")[0]
        self._full: dict[str, str] = {}  # imported name -> dotted name, also for other projects
        self._values: dict[str, ast.expr] = {}  # module-level assignments, to read tables of lazily loaded names
        self._getattr: ast.FunctionDef | None = None
        self._weak: set[str] = set()  # names so far only bound to None, as in `except ImportError: X = None`
        self._depth = 0  # 1 for what runs whenever the module is imported
        self._stand_ins: frozenset[str] = frozenset()  # names that only type checkers import: `else: X = Any`

    # names

    def block(self, statements: Iterable[ast.stmt]) -> None:
        self._depth += 1
        for statement in statements:
            self._statement(statement)
        self._depth -= 1

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    self._bind(alias.asname, alias.name)
                else:
                    top = alias.name.partition(".")[0]
                    self._bind(top, top)
        elif isinstance(node, ast.ImportFrom):
            self._import_from(node)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if isinstance(node, ast.FunctionDef) and node.name == "__getattr__":
                self._getattr = node
            self._define(node.name)
            if not _decorated(node, {"overload"}):
                self.out.functions.setdefault(node.name, signature_text(node.args))
        elif isinstance(node, ast.ClassDef):
            self.out.classes.setdefault(node.name, self._class(node))
            self._define(node.name)
        elif isinstance(node, ast.If) and _is_type_checking(node.test):
            self._stand_ins = frozenset(_imported(node.body))
            self.block(node.orelse)
            self._stand_ins = frozenset()
        elif (
            isinstance(node, ast.If)
            and isinstance(node.test, ast.UnaryOp)
            and isinstance(node.test.op, ast.Not)
            and _is_type_checking(node.test.operand)
        ):
            self.block(node.body)
        elif isinstance(node, ast.Delete):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    self.out.names.pop(target.id, None)
        else:
            self._other(node)

    def _other(self, node: ast.stmt) -> None:
        """Assignments, and statements that hold further statements."""
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            self._assign(node.targets[0].id, node.value)
            self._expression(node.value)
            return
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            if node.value is not None:  # else it is only an annotation
                self._assign(node.target.id, node.value)
                self._expression(node.value)
            return
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            before = self._values.get(node.target.id)
            if before is not None:
                self._values[node.target.id] = ast.BinOp(before, ast.Add(), node.value)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                self.block([child])
            elif isinstance(child, (ast.ExceptHandler, ast.match_case)):
                self.block(child.body)
            else:
                self._expression(child)

    def _expression(self, node: ast.AST) -> None:
        """Names bound by a target or a walrus, and writes to the module's own dictionary."""
        if isinstance(node, ast.Lambda):
            return
        if isinstance(node, ast.comprehension):
            self._expression(node.iter)  # its target lives in the comprehension only
            return
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            self._bind(node.id)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and _is_globals(node.value):
            self.out.open = True
        elif isinstance(node, ast.Attribute) and node.attr == "update" and _is_globals(node.value):
            self.out.open = True
        for child in ast.iter_child_nodes(node):
            self._expression(child)

    def _assign(self, name: str, value: ast.expr) -> None:
        self._values.setdefault(name, value)
        if name in self._stand_ins:
            self.out.names[name] = OUTSIDE
            return
        if isinstance(value, ast.Constant) and value.value is None and name not in self.out.names:
            self._weak.add(name)
            self.out.names[name] = HERE
            return
        self._bind(name)
        dotted = _dotted(value) if not isinstance(value, ast.Subscript) else None
        if dotted is not None:
            self.out.aliases.setdefault(name, self.resolve(dotted))

    def _import_from(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level:
            parts = self._package.split(".")
            parts = parts[: len(parts) - (node.level - 1)]
            module = ".".join([*parts, module] if module else parts)
        for alias in node.names:
            if alias.name == "*":
                if _inside(module):
                    self.out.stars.append(module)
                else:
                    self.out.open = True
            else:
                self._bind(alias.asname or alias.name, f"{module}.{alias.name}")

    def _define(self, name: str) -> None:
        """Bind a function or class; one that is always defined takes the name from what was imported before."""
        if self._depth == 1:
            self.out.names.pop(name, None)
            self._full.pop(name, None)
        self._bind(name)

    def _bind(self, name: str, full: str | None = None) -> None:
        """Bind a name to what it is imported from (`full`), or to this module. The first binding but None stays."""
        if name in self.out.names and name not in self._weak:
            return
        self._weak.discard(name)
        if full is None:
            self.out.names[name] = HERE
        else:
            self._full[name] = full
            self.out.names[name] = full if full != "vllm" and _inside(full) else OUTSIDE

    def resolve(self, dotted: str) -> str:
        """A dotted name of this module's text, spelled from its import or from this module."""
        first, _, rest = dotted.partition(".")
        head = self._full.get(first)
        if head is None:
            head = f"{self._name}.{first}" if first in self.out.names else first
        return f"{head}.{rest}" if rest else head

    # classes

    def _class(self, node: ast.ClassDef) -> Class:
        bases = [_dotted(base) for base in node.bases]
        found = Class(tuple(self.resolve(base) if base else "?" for base in bases))
        found.dataclass = next(iter(_decorators(node, _FIELD_DECORATORS)), None)
        self._class_body(node.body, found)
        return found

    def _class_body(self, body: Iterable[ast.stmt], found: Class) -> None:
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self._method(node, found)
            elif isinstance(node, ast.ClassDef):
                found.attributes.add(node.name)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found.attributes.add(node.target.id)
                found.fields.extend(_field(node))
            elif isinstance(node, ast.Assign):
                names = [target.id for target in node.targets if isinstance(target, ast.Name)]
                found.attributes.update(names)
                found.assigned.extend(names)
            elif isinstance(node, ast.If) and not _is_type_checking(node.test):
                self._class_body([*node.body, *node.orelse], found)
            elif isinstance(node, ast.Try):
                self._class_body(node.body, found)

    def _method(self, node: ast.FunctionDef | ast.AsyncFunctionDef, found: Class) -> None:
        found.attributes.update(_set_on_self(node))
        for attribute, value in _values_on_self(node):
            made = self._maker(value)
            found.held[attribute] = made if found.held.setdefault(attribute, made) == made else ""
        if _decorated(node, _ATTRIBUTE_DECORATORS):
            found.attributes.add(node.name)
        elif not _decorated(node, {"overload"}):
            bound = not _decorated(node, {"staticmethod"})
            found.methods.setdefault(node.name, signature_text(node.args, skip_first=bound))

    def _maker(self, value: ast.expr) -> str:
        """The dotted name whose call makes a value, or every item of a list of modules; empty if it is not as plain."""
        if isinstance(value, (ast.ListComp, ast.GeneratorExp)):
            return self._maker(value.elt)
        if isinstance(value, ast.List):
            makers = {self._maker(item) for item in value.elts}
            return makers.pop() if len(makers) == 1 else ""
        name = _dotted(value.func) if isinstance(value, ast.Call) else None
        if isinstance(value, ast.Call) and name is not None and name.rpartition(".")[2] == "ModuleList":
            return self._maker(value.args[0]) if len(value.args) == 1 else ""
        return self.resolve(name) if name else ""

    # lazily loaded names

    def finish(self, tree: ast.Module) -> Module:
        for node in ast.walk(tree):
            if isinstance(node, ast.Global):
                for name in node.names:
                    self._bind(name)
        public = _strings(self._values.get("__all__"), self._values)
        self.out.public = sorted(public) if public is not None else None
        if self._getattr is not None:
            self._lazy(self._getattr)
        return self.out

    def _lazy(self, function: ast.FunctionDef) -> None:
        """Names a module-level `__getattr__` answers to: those it compares with, and keys of tables it looks into."""
        argument = function.args.args[0].arg if function.args.args else ""
        imported = _Reader(self._name, False)
        imported._package = self._package
        imported.block(n for n in ast.walk(function) if isinstance(n, ast.ImportFrom))
        for test in ast.walk(function):
            table = _looked_into(test, argument)
            if table is None or _is_globals(table):
                continue
            names = _strings(table, self._values)
            if names is None:
                self.out.open = True
                continue
            for name, value in names.items():
                target = _lazy_target(name, value, self._package) or imported._full.get(name)
                self._bind(name, target if target and _inside(target) else None)
        last = function.body[-1]
        if isinstance(last, ast.Return) and isinstance(last.value, ast.Call) and _dotted(last.value.func) == "getattr":
            self.out.open = True  # whatever another object has


def _looked_into(node: ast.AST, argument: str) -> ast.expr | None:
    """The table of `name == TABLE`, `name in TABLE`, `TABLE[name]`, `TABLE.get(name)`; None for anything else."""
    if isinstance(node, ast.Compare) and _is_name(node.left, argument):
        if isinstance(node.ops[0], (ast.Eq, ast.In)):
            return node.comparators[0]
    elif isinstance(node, ast.Subscript) and _is_name(node.slice, argument):
        return node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "get" and node.args and _is_name(node.args[0], argument):
            return node.func.value
    return None


def _strings(node: ast.expr | None, values: dict[str, ast.expr]) -> dict[str, str | None] | None:
    """Strings of a literal, with the string each maps to when it is a dictionary; None when not readable."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return {node.value: None}
    if isinstance(node, ast.Name) and node.id in values:
        return _strings(values[node.id], {k: v for k, v in values.items() if k != node.id})
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return _union(_strings(item, values) for item in node.elts)
    if isinstance(node, ast.Starred):
        return _strings(node.value, values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.BitOr)):
        return _union((_strings(node.left, values), _strings(node.right, values)))
    if isinstance(node, ast.Dict):
        parts: list[dict[str, str | None] | None] = []
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                parts.append(_strings(value, values))
            elif isinstance(key, ast.Constant) and isinstance(key.value, str):
                text = value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None
                parts.append({key.value: text})
            else:
                parts.append(None)
        return _union(parts)
    if isinstance(node, ast.Call):
        if _dotted(node.func) in {"list", "set", "tuple", "sorted", "frozenset"} and len(node.args) == 1:
            return _strings(node.args[0], values)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "keys":
            return _strings(node.func.value, values)
    return None


def _union(parts: Iterable[dict[str, str | None] | None]) -> dict[str, str | None] | None:
    merged: dict[str, str | None] = {}
    for part in parts:
        if part is None:
            return None
        merged.update(part)
    return merged


def _lazy_target(name: str, value: str | None, package: str) -> str | None:
    """`.a.b:Name` or `vllm.a.b` (a module that holds `name`) as a dotted name."""
    if not value:
        return None
    module, colon, attribute = value.partition(":")
    if module.startswith("."):
        module = package + module
    return f"{module}.{attribute if colon else name}"


# signatures


def signature_text(arguments: ast.arguments, skip_first: bool = False) -> str:
    """`a`, `b=` (has a default), `/`, `*`, `*args`, `**kwargs`: all that decides whether a call binds."""
    positional = [*arguments.posonlyargs, *arguments.args]
    required = len(positional) - len(arguments.defaults)
    parts = [argument.arg + ("=" if index >= required else "") for index, argument in enumerate(positional)]
    if arguments.posonlyargs:
        parts.insert(len(arguments.posonlyargs), "/")
    if skip_first and positional:
        del parts[0]
        if parts[:1] == ["/"]:
            del parts[0]
    if arguments.vararg:
        parts.append("*" + arguments.vararg.arg)
    elif arguments.kwonlyargs:
        parts.append("*")
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        parts.append(argument.arg + ("=" if default is not None else ""))
    if arguments.kwarg:
        parts.append("**" + arguments.kwarg.arg)
    return " ".join(parts)


def _field(node: ast.AnnAssign) -> Iterator[str]:
    """A dataclass field as signature text; `*` where the rest become keyword-only; nothing for a class variable."""
    assert isinstance(node.target, ast.Name)
    annotation = ast.unparse(node.annotation)
    if "ClassVar" in annotation:
        return
    if annotation.rpartition(".")[2] == "KW_ONLY":
        yield "*"
        return
    default = node.value is not None
    if isinstance(node.value, ast.Call) and (_dotted(node.value.func) or "").rpartition(".")[2] in {"field", "Field"}:
        given = {keyword.arg: keyword.value for keyword in node.value.keywords}
        if isinstance(given.get("init"), ast.Constant) and given["init"].value is False:  # type: ignore[attr-defined]
            return
        default = bool({"default", "default_factory"} & given.keys()) or bool(node.value.args)
    yield node.target.id + ("=" if default else "")


def _set_on_self(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    if not node.args.args:
        return
    own = node.args.args[0].arg
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store) and _is_name(inner.value, own):
            yield inner.attr


def _values_on_self(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, ast.expr]]:
    """Attributes and the values they are set to, None left out."""
    own = node.args.args[0].arg if node.args.args else ""
    for inner in ast.walk(node):
        if not isinstance(inner, (ast.Assign, ast.AnnAssign)) or inner.value is None:
            continue
        for target in inner.targets if isinstance(inner, ast.Assign) else [inner.target]:
            if isinstance(target, ast.Attribute) and _is_name(target.value, own):
                if not (isinstance(inner.value, ast.Constant) and inner.value.value is None):
                    yield target.attr, inner.value


# small questions


def _imported(body: Iterable[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name for alias in node.names)


def _dotted(node: ast.AST) -> str | None:
    """`a.b.c` of a plain dotted expression, subscripts such as `Base[T]` taken off; None otherwise."""
    if isinstance(node, ast.Subscript):
        return _dotted(node.value)
    if isinstance(node, ast.Attribute):
        head = _dotted(node.value)
        return f"{head}.{node.attr}" if head else None
    return node.id if isinstance(node, ast.Name) else None


def _decorated(node: _Decorated, names: frozenset[str] | set[str]) -> bool:
    return any(True for _ in _decorators(node, names))


def _decorators(node: _Decorated, names: frozenset[str] | set[str]) -> Iterator[ast.expr]:
    for decorator in node.decorator_list:
        dotted = _dotted(decorator.func if isinstance(decorator, ast.Call) else decorator)
        if dotted and dotted.rpartition(".")[2] in names:
            yield decorator


def _is_type_checking(node: ast.expr) -> bool:
    return (_dotted(node) or "").rpartition(".")[2] == "TYPE_CHECKING"


def _is_globals(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _is_name(node.func, "globals")


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _inside(dotted: str) -> bool:
    return dotted == "vllm" or dotted.startswith("vllm.")

"""What class an expression is an instance of, as assignments and annotations say; and which function a call of its
method reaches. Classes are the project's, or vllm-omni's where the index has them."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from codemods.parsed_file import Import, ParsedFile, dotted, self_attribute
from codemods.project import AnyFunction, Class, Function, Project
from codemods.vllm_omni_api import Found, Kind, OmniApi, OmniFunction

_PLAIN = frozenset(
    {"object", "abc.ABC", "typing.Generic", "typing.Protocol", "typing_extensions.Protocol", "enum.Enum"}
)  # bases without `__call__`
_MODULES = ("torch.nn.", "torch.jit.")
_OPTIONAL = frozenset({"typing.Optional", "typing.Union"})
_TYPES = frozenset({"type", "typing.Type"})
_LIMIT = 12


class Kinds:
    def __init__(self, project: Project, omni: OmniApi) -> None:
        self.project = project
        self.omni = omni

    # -- expressions -------------------------------------------------------------------------------------------------

    def of(self, file: ParsedFile, node: ast.expr | None, depth: int = 0) -> Found:
        """Everything an expression may be; None if something of that is not known. A plain `None` is left out."""
        if depth > _LIMIT or node is None:
            return None
        if isinstance(node, ast.Constant) and node.value is None:
            return frozenset()
        if isinstance(node, ast.IfExp):
            return _all(self.of(file, part, depth + 1) for part in (node.body, node.orelse))
        if isinstance(node, ast.BoolOp):
            return _all(self.of(file, part, depth + 1) for part in node.values)
        if isinstance(node, ast.Call):
            return self._called(file, node, depth)
        if isinstance(node, ast.Attribute):
            name = self.project.meaning(file, node)
            if name is not None:
                return self._named(name)
            owners = self._owners(file, node, depth)
            return None if not owners else _all(self._attribute(owner, node.attr, depth) for owner in owners)
        if isinstance(node, ast.Name):
            return _all(self._bound(file, node, binding, depth) for binding in file.bound(node.id, node))
        return None

    def _owners(self, file: ParsedFile, node: ast.Attribute, depth: int) -> Found:
        cls = file.class_of(node)
        if self_attribute(node) is not None and cls is not None:
            return frozenset({Kind(Class(file, cls).qualified)})
        return self.of(file, node.value, depth + 1)

    def _bound(self, file: ParsedFile, node: ast.Name, binding: ast.AST | Import, depth: int) -> Found:
        if isinstance(binding, Import):
            return self._named(self.project.follow(binding.qualified))
        if isinstance(binding, ast.ClassDef):
            return frozenset({Kind(f"{file.module}.{binding.name}", True)})
        if isinstance(binding, ast.arg):
            return self.annotated(file, binding.annotation)
        above = file.parents.get(binding)
        if isinstance(above, ast.Assign) and binding in above.targets:
            return self.of(file, above.value, depth + 1)
        if isinstance(above, ast.AnnAssign):
            return self.annotated(file, above.annotation)
        if isinstance(above, ast.Tuple) and isinstance(binding, ast.Name):
            return self._unpacked(file, above, binding, depth)
        return None

    def _unpacked(self, file: ParsedFile, target: ast.Tuple, binding: ast.Name, depth: int) -> Found:
        """`a, b = f()`, where `f` says that it returns `tuple[A, B]`."""
        statement = file.parents[target]
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
            return None
        at = target.elts.index(binding)
        reached = self.function(file, statement.value, depth + 1)
        if isinstance(reached, OmniFunction):
            return reached.parts[at] if at < len(reached.parts) else None
        parts = self.returned_parts(reached) if reached is not None else []
        return parts[at] if at < len(parts) else None

    def returned_parts(self, function: Function) -> list[Found]:
        """The same for each part of a tuple that a function says it returns."""
        returns = function.node.returns
        if not isinstance(returns, ast.Subscript) or not isinstance(returns.slice, ast.Tuple):
            return []
        return [self.annotated(function.file, part) for part in returns.slice.elts]

    def _named(self, name: str) -> Found:
        name = self.omni.follow(name)
        known = name in self.project.classes or self.omni.has_class(name) or name.startswith(_MODULES)
        return frozenset({Kind(name, True)}) if known else None

    def _called(self, file: ParsedFile, call: ast.Call, depth: int) -> Found:
        reached = self.function(file, call, depth + 1)
        if isinstance(reached, OmniFunction):
            return reached.returns
        if reached is not None and reached.node.name != "__init__":
            return self.returned(reached, depth)
        made = self.of(file, call.func, depth + 1)
        if not made or not all(kind.is_class for kind in made):
            return None
        return frozenset(Kind(kind.name) for kind in made)

    def returned(self, function: Function, depth: int = 0) -> Found:
        """What a function says that it returns, or returns."""
        if function.node.returns is not None:
            return self.annotated(function.file, function.node.returns)
        values = [n.value for n in function.file.below(function.node) if isinstance(n, ast.Return)]
        return _all(self.of(function.file, value, depth + 1) for value in values) if values else None

    # -- classes -----------------------------------------------------------------------------------------------------

    def _attribute(self, owner: Kind, name: str, depth: int) -> Found:
        """What an attribute of an instance (or class) may hold: whatever the class and its bases set it to."""
        cls = self.project.classes.get(owner.name)
        if cls is None:
            return self.omni.attribute(owner.name, name)
        return self.attribute(cls, name, depth)

    def attribute(self, cls: Class, name: str, depth: int = 0) -> Found:
        """The same for a class of the project."""
        found: list[Found] = []
        for here in self.project.bases(cls):
            for statement in here.node.body:
                if isinstance(statement, ast.AnnAssign) and getattr(statement.target, "id", "") == name:
                    found.append(self.annotated(here.file, statement.annotation))
            method = here.own(name)
            if method is not None and any(dotted(d) in ("property", "cached_property") for d in method.decorator_list):
                found.append(self.returned(Function(here.file, method, 1), depth))
            found += [self.of(here.file, value, depth + 1) for value in self.project.assigned(here).get(name, ())]
            found += [None] * _set_otherwise(here, name)
        return _all(found) if found else None

    def annotated(self, file: ParsedFile, node: ast.expr | None) -> Found:
        """What an annotation allows."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                inner = ast.parse(node.value.strip(), mode="eval").body
            except SyntaxError:
                return None
            return self._annotated(file, inner, node)
        return self._annotated(file, node, node)

    def _annotated(self, file: ParsedFile, node: ast.expr | None, at: ast.expr | None) -> Found:
        if node is None:
            return None
        if isinstance(node, ast.Constant):
            if node.value is None:
                return frozenset()
            return (
                self._annotated(file, ast.parse(node.value, mode="eval").body, at)
                if isinstance(node.value, str)
                else None
            )
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return _all(self._annotated(file, part, at) for part in (node.left, node.right))
        if isinstance(node, ast.Subscript):
            name = self.project.meaning(file, node.value, at) or dotted(node.value) or ""
            if name in _OPTIONAL:
                parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
                return _all(self._annotated(file, part, at) for part in parts)
            inner = self._annotated(file, node.slice, at) if name in _TYPES else None
            return None if inner is None else frozenset(Kind(kind.name, True) for kind in inner)
        name = self.project.meaning(file, node, at) or ""
        found = self._named(name)
        return None if found is None else frozenset(Kind(kind.name) for kind in found)

    # -- what can be called ------------------------------------------------------------------------------------------

    def callable(self, kind: Kind) -> bool | None:
        """Whether an instance of a class (or of a subclass that is known) can be called; None if that is not known."""
        cls = self.project.classes.get(kind.name)
        if cls is None:
            return True if kind.name.startswith(_MODULES) else self.omni.callable(kind.name)
        return self.callable_class(cls)

    def callable_class(self, cls: Class) -> bool | None:
        """The same for a class of the project."""
        own = self._has_call(cls)
        family = [self._has_call(sub) for sub in self.project.subclasses.get(cls.qualified, ())]
        return own if own is True or all(answer is own for answer in family) else None

    def _has_call(self, cls: Class) -> bool | None:
        answer: bool | None = False
        for here in self.project.bases(cls):
            if here.own("__call__") is not None:
                return True
            for base in here.node.bases:
                plain = base.value if isinstance(base, ast.Subscript) else base
                if self.project.class_named(here.file, plain) is not None:
                    continue
                name = self.omni.follow(self.project.meaning(here.file, plain) or dotted(plain) or "")
                if name.startswith(_MODULES) or self.omni.callable(name):
                    return True
                if name not in _PLAIN and self.omni.callable(name) is None:
                    answer = None
            if here.node.keywords and any(k.arg == "metaclass" for k in here.node.keywords):
                answer = None if not all(_abstract(k.value) for k in here.node.keywords) else answer
        return answer

    def function(self, file: ParsedFile, call: ast.Call, depth: int = 0) -> Function | OmniFunction | None:
        """The function or method a call names: of the project, or of vllm-omni."""
        if depth > _LIMIT:
            return None
        name = self.project.meaning(file, call.func)
        if name is not None:
            return self._plain_function(name) or self._static(name)
        if not isinstance(call.func, ast.Attribute):
            return None
        owners = self.of(file, call.func.value, depth + 1)
        if isinstance(call.func.value, ast.Name) and call.func.value.id in ("self", "cls"):
            cls = file.class_of(call)
            owners = frozenset({Kind(Class(file, cls).qualified)}) if cls is not None else None
        return self._method(owners, call.func.attr) if owners else None

    def _plain_function(self, name: str) -> Function | OmniFunction | None:
        module, _, last = name.rpartition(".")
        home = self.project.by_module.get(module)
        if home is None:
            return self.omni.function(name)
        node = home.defined(last)
        return Function(home, node) if node is not None else None

    def _static(self, name: str) -> Function | OmniFunction | None:
        """`Class.method` by its full name."""
        owner, _, method = name.rpartition(".")
        return self._method(frozenset({Kind(self.omni.follow(owner), True)}), method)

    def _method(self, owners: frozenset[Kind], method: str) -> Function | OmniFunction | None:
        first, *others = (self._one_method(kind, method) for kind in owners)
        return first if all(_same(first, other) for other in others) else None

    def _one_method(self, kind: Kind, method: str) -> Function | OmniFunction | None:
        cls = self.project.classes.get(kind.name)
        if cls is None:
            return self.omni.method(kind.name, method)
        reached = self.project.method(cls, method)
        if reached is None:
            names = [self.project.meaning(c.file, base) or "" for c in self.project.bases(cls) for base in c.node.bases]
            return next(
                (m for name in names if (m := self.omni.method(self.omni.follow(name), method)) is not None), None
            )
        return reached

    def has(self, kind: Kind, method: str) -> bool:
        return self._one_method(kind, method) is not None

    def unfitting(self, kind: Kind, method: str, call: ast.Call) -> str | None:
        """Why a method does not take the arguments of a call; None if it does, or that is not known."""
        reached = self._one_method(kind, method)
        if reached is None:
            return None
        takes, keywords = list(getattr(reached, "takes", ())), set(getattr(reached, "keywords", ()))
        if isinstance(reached, Function):
            overriding = [s.own(method) for s in self.project.subclasses.get(kind.name, ())]
            nodes = [reached.node, *(node for node in overriding if node is not None)]
            keywords = {name for node in nodes for name in taken(node)}
            longest = max(nodes, key=lambda node: len(node.args.posonlyargs) + len(node.args.args))
            takes = [a.arg for a in [*longest.args.posonlyargs, *longest.args.args]][reached.skip :]
        words = [k.arg for k in call.keywords if k.arg is not None]
        wrong = next((word for word in words if word not in {*takes, *keywords}), None)
        if wrong is not None and "**" not in keywords:
            return f"takes no {wrong}="
        given = len(call.args) if not any(isinstance(a, ast.Starred) for a in call.args) else 0
        return f"takes {len(takes)} arguments, not {given}" if given > len(takes) and "*" not in keywords else None


def _same(one: Function | OmniFunction | None, other: Function | OmniFunction | None) -> bool:
    if isinstance(one, Function) and isinstance(other, Function):
        return one.node is other.node
    return one == other if isinstance(one, OmniFunction) and isinstance(other, OmniFunction) else one is other


def taken(node: AnyFunction) -> set[str]:
    """The names of parameters; `*` and `**` for any more by position and by name."""
    arguments = node.args
    names = {a.arg for a in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]}
    names |= {"*"} if arguments.vararg is not None else set()
    return names | ({"**"} if arguments.kwarg is not None else set())


def _set_otherwise(cls: Class, name: str) -> int:
    """How often a class sets an attribute in a way that says nothing: unpacked, in a loop, by `setattr`."""
    return sum(
        isinstance(node.ctx, ast.Store)
        and self_attribute(node) is not None
        and not isinstance(cls.file.parents[node], (ast.Assign, ast.AnnAssign))
        for node in cls.file.attributes.get(name, ())
        if cls.file.class_of(node) is cls.node
    )


def _abstract(node: ast.expr) -> bool:
    return (dotted(node) or "").rpartition(".")[2] == "ABCMeta"


def _all(found: Iterable[Found]) -> Found:
    result: set[Kind] = set()
    for kinds in found:
        if kinds is None:
            return None
        result |= kinds
    return frozenset(result)

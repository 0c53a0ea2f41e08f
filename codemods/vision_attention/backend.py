"""Where a class keeps the choice of an attention backend, and which statements do nothing but make that choice."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from codemods.parsed_file import Import, ParsedFile, dotted, loads, parameters, self_attribute
from codemods.project import AnyFunction, Project
from codemods.vision_attention import vocabulary as V

_RESOLVERS = (V.GET_BACKEND, V.GET_FLASH, V.UPSTREAM_FA, V.XFORMERS_AVAILABLE)


@dataclass(frozen=True)
class BackendState:
    """The choice of a backend inside one constructor.

    `names`: attributes of self and local names that hold it. `statements`: outermost statements of the constructor that
    only make, check or store it. `parameters`: constructor parameters that bring it in.
    """

    names: frozenset[str]
    statements: tuple[ast.stmt, ...]
    parameters: frozenset[str]
    calls: tuple[ast.Call, ...]  # of get_vit_attn_backend, in order


def backend_state(project: Project, file: ParsedFile, constructor: AnyFunction) -> BackendState:
    """Follow the choice of a backend from where it enters a constructor to every name that holds it."""
    names: set[str] = set()
    entering = {
        a.arg
        for a in parameters(constructor)
        if (a.arg in V.BACKEND_PARAMETERS and a.arg != V.OVERRIDE)
        or (a.arg not in V.BACKEND_PARAMETERS and a.annotation is not None and _is_enum(project, file, a.annotation))
    }
    names |= entering
    if not entering and not any(V.vllm_call(project, file, c, *_RESOLVERS) for c in file.inside(constructor, ast.Call)):
        return BackendState(frozenset(), (), frozenset(), ())  # a choice neither comes in nor is made here
    outer = constructor.body
    while True:
        before = len(names)
        for statement in outer:
            if _chooses(project, file, statement, names):
                names |= _targets(statement)
        if len(names) == before:
            break
    chosen = tuple(s for s in outer if _chooses(project, file, s, names))
    calls = tuple(
        node
        for statement in outer
        for node in ast.walk(statement)
        if isinstance(node, ast.Call) and V.vllm_call(project, file, node, V.GET_BACKEND)
    )
    return BackendState(frozenset(names), chosen, frozenset(entering), calls)


def _is_enum(project: Project, file: ParsedFile, annotation: ast.expr) -> bool:
    return any(
        V.last(project.vllm(file, node, node)) in V.ENUMS
        for node in ast.walk(annotation)
        if V.may_mean(project, file, node, V.ENUMS)
    )


def _targets(statement: ast.stmt) -> set[str]:
    found = set()
    for node in ast.walk(statement):
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            name = held(node)
            if name:
                found.add(name)
    return found


def held(node: ast.AST) -> str | None:
    """The name under which a constructor holds a value: `x` for `x` and `self.x`."""
    return node.id if isinstance(node, ast.Name) else self_attribute(node)


def _reads(statement: ast.AST) -> set[str]:
    found = loads(statement) - {"self"}
    for node in ast.walk(statement):
        name = self_attribute(node)
        if name is not None and isinstance(node.ctx, ast.Load):  # type: ignore[attr-defined]
            found.add(name)
    return found


def _chooses(project: Project, file: ParsedFile, statement: ast.stmt, names: set[str]) -> bool:
    """Whether a statement only makes, checks or stores the choice of a backend."""
    if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
        targets = _targets(statement)
        value = statement.value
        if targets and targets <= names and not _calls_others(project, file, value):
            return True
        if any(V.vllm_call(project, file, node, *_RESOLVERS) for node in ast.walk(value)):
            return _is_choice(project, file, value, names)
        return bool(_reads(value) & names) and _is_choice(project, file, value, names)
    if isinstance(statement, ast.If):
        inner = [*statement.body, *statement.orelse]
        asks = any(V.vllm_call(project, file, node, *_RESOLVERS) for node in ast.walk(statement.test))
        if not asks and not _asks_only_for_backend(project, file, statement.test, names):
            return False
        if not asks and not _reads(statement.test) & names and not any(_targets(s) & names for s in inner):
            return False
        return all(
            isinstance(s, (ast.Raise, ast.Pass, ast.Import, ast.ImportFrom))
            or _logs(s)
            or _sets_constant(s)
            or _chooses(project, file, s, names)
            for s in inner
        )
    return False


def _asks_only_for_backend(project: Project, file: ParsedFile, test: ast.expr, names: set[str]) -> bool:
    """A test of held choices, enum members and the platform; anything else in it means more than a choice of
    backend."""
    for node in ast.walk(test):
        name = held(node)
        if name is None or name in names or name == "self":
            continue
        if isinstance(node, ast.Name) and V.last(project.meaning(file, node)) in (*V.ENUMS, "current_platform"):
            continue
        return False
    return True


def _calls_others(project: Project, file: ParsedFile, value: ast.expr) -> bool:
    """Whether a value comes from somebody's own function: that is a decision, not a look-up."""
    return any(
        isinstance(node, ast.Call)
        and not V.vllm_call(project, file, node, *_RESOLVERS)
        and V.called(node) not in ("get_default_dtype", "getattr", "bool")
        for node in ast.walk(value)
    )


def _is_choice(project: Project, file: ParsedFile, value: ast.expr, names: set[str]) -> bool:
    """Whether an expression is the choice itself: a resolver's call, a held choice, or a test of one."""
    if isinstance(value, ast.Call):
        return V.vllm_call(project, file, value, *_RESOLVERS)
    if isinstance(value, (ast.Name, ast.Attribute)):
        return held(value) in names or V.is_backend_enum(project, file, value)
    if isinstance(value, (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.IfExp)):
        return all(
            name in names
            or any(
                V.is_backend_enum(project, file, n)
                for n in ast.walk(value)
                if isinstance(n, ast.Attribute) and _root(n) == name
            )
            for name in _reads(value)
        )
    return False


def _sets_constant(statement: ast.stmt) -> bool:
    """`self.use_x = True` under a test of the backend holds the choice as well."""
    return isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant) and bool(_targets(statement))


def _root(node: ast.AST) -> str | None:
    name = dotted(node)
    return name.partition(".")[0] if name else None


def _logs(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and (dotted(statement.value.func) or "").startswith("logger.")
    )


def is_backend_test(project: Project, file: ParsedFile, test: ast.expr, names: frozenset[str]) -> bool:
    """Whether a test asks for nothing but the backend."""
    return bool(_reads(test) & names) and _is_choice(project, file, test, set(names))


def of_the_process(file: ParsedFile, function: AnyFunction, test: ast.expr) -> bool:
    """Whether a test asks for what is the same in a whole process: modules, platforms, the device of a tensor."""
    if isinstance(test, ast.Attribute) and test.attr == "device":
        return True
    if isinstance(test, ast.Name):
        bound = file.bound(test.id, test)
        return all(isinstance((b.scope if isinstance(b, Import) else file.scope(b)), ast.Module) for b in bound)
    attribute = self_attribute(test)
    if attribute is not None:
        cls = file.class_of(function)
        values = [
            step.value
            for step in (file.below(cls) if cls is not None else ())
            if isinstance(step, ast.Assign) and any(self_attribute(t) == attribute for t in step.targets)
        ]
        return len(values) == 1 and of_the_process(file, function, values[0])
    inner = [node for node in ast.iter_child_nodes(test) if isinstance(node, (ast.expr, ast.keyword))]
    return all(of_the_process(file, function, node.value if isinstance(node, ast.keyword) else node) for node in inner)

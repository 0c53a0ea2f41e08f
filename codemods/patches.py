"""Patches of vLLM at run time: which statements put something of the plugin's into a place of vLLM's."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from codemods.parsed_file import FunctionNode, Import, ParsedFile, dotted, spelled
from codemods.project import Project
from codemods.run_time_names import Names, Value

_MOCK = ("unittest.mock.", "mock.")


@dataclass(frozen=True)
class Patch:
    """One place of vLLM's that is replaced. `node` is the statement or call that does it."""

    node: ast.AST
    target: str  # dotted; a module where a whole module is replaced
    owner: Value | None = None  # what an attribute is set on; None where the target is a text
    value: Value | None = None  # what is put there, where that is seen
    module: bool = False  # the entry of sys.modules
    raises: bool = False  # a target that is not there raises, as `mock.patch` does
    removes: bool = False


@dataclass(frozen=True)
class _Form:
    """A patch as it is written, its parts not yet followed."""

    node: ast.AST
    owner: ast.expr | None  # what an attribute is set on; None where `name` is a whole dotted name
    name: ast.expr | str
    value: ast.expr | None = None
    module: bool = False
    raises: bool = False
    removes: bool = False


class Patches:
    """The patches of every file of a project."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._names = Names(project)

    def of(self, file: ParsedFile) -> list[Patch]:
        """The patches that a file makes, in source order."""
        return self._by_file.get(file.module, [])

    def reach_through(self, file: ParsedFile, node: ast.AST) -> bool:
        """Whether an expression is part of what says which place is patched. That is never edited."""
        around = {node, *file.above(node)}
        return any(owner in around or owner is getattr(node, "value", None) for owner in self._owners(file))

    def explain(self, file: ParsedFile, nodes: Sequence[ast.AST]) -> bool:
        """Whether what these expressions read is only read to be patched: what is told of the patch tells it all."""
        return bool(nodes) and all(self.reach_through(file, node) for node in nodes)

    def _owners(self, file: ParsedFile) -> list[ast.AST]:
        return [
            patch.owner.node
            for patches in self._by_file.values()
            for patch in patches
            if patch.owner is not None and patch.owner.file is file
        ]

    @cached_property
    def _by_file(self) -> dict[str, list[Patch]]:
        found: dict[str, list[Patch]] = {}
        helpers: list[tuple[ParsedFile, ast.FunctionDef | ast.AsyncFunctionDef, _Form]] = []
        for file in self._project.files:
            if file.module.partition(".")[0] == "vllm":
                continue  # vLLM's own
            for form in _forms(file, self._names):
                helper = None if form.owner is None and isinstance(form.name, str) else self._helper(file, form)
                if helper is not None:
                    helpers.append((file, helper, form))
                    continue
                for row in self._names.rows(file, form.node):
                    self._add(found, file, form, Value(file, form.node, row), form.node)
        for file, helper, form in helpers:
            for user, call, row in self._uses(file, helper, form):
                self._add(found, user, form, Value(file, form.node, row), call)
        for module, patches in found.items():
            place = self._project.by_module[module].position
            found[module] = sorted(patches, key=lambda patch: (place(patch.node), patch.target))
        return found

    def _add(self, found: dict[str, list[Patch]], user: ParsedFile, form: _Form, around: Value, node: ast.AST) -> None:
        target = self._target(form, around)
        if target is None:
            return
        owner, value = (
            None if part is None else self._names.followed(around.at(part)) for part in (form.owner, form.value)
        )
        patch = Patch(node, target, owner, value, form.module, form.raises, form.removes)
        found.setdefault(user.module, []).append(patch)

    def _target(self, form: _Form, around: Value) -> str | None:
        name = form.name if isinstance(form.name, str) else self._names.strings(around.at(form.name))
        if form.owner is None:
            return name if name is not None and name.startswith("vllm.") else None
        owner = self._names.vllm(around.at(form.owner)) or self._names.strings(around.at(form.owner))
        return f"{owner}.{name}" if owner and name and (owner == "vllm" or owner.startswith("vllm.")) else None

    def _helper(self, file: ParsedFile, form: _Form) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """The function whose parameters say what is patched; None where the patch says it itself."""
        parts = [part for part in (form.owner, form.name) if isinstance(part, ast.expr)]
        for part in parts:
            for node in ast.walk(part):
                if isinstance(node, ast.Name):
                    bound = file.bound(node.id, node)
                    if len(bound) == 1 and isinstance(bound[0], ast.arg):
                        owner = file.parents[file.parents[bound[0]]]
                        if isinstance(owner, FunctionNode) and not isinstance(file.parents[owner], ast.ClassDef):
                            return owner
        return None

    def _uses(
        self, file: ParsedFile, helper: ast.FunctionDef | ast.AsyncFunctionDef, form: _Form
    ) -> Iterator[tuple[ParsedFile, ast.AST, dict[str, Value]]]:
        """The calls of a helper that patches, with what they give to its parameters; as a decorator, too."""
        inner = file.function(form.node)
        for user, call in self._calls.get(helper.name, ()):
            for row in self._names.rows(user, call):
                given = self._names.arguments(helper, Value(user, call, row))
                if self._target(form, Value(file, form.node, given)) is None:
                    continue
                reached = self._project.callee(user, call)
                if reached is None or reached.node is not helper:
                    break
                decorated = user.parents[call]
                if isinstance(decorated, (*FunctionNode, ast.ClassDef)) and call in decorated.decorator_list:
                    if inner is not None and inner is not helper and inner.args.args:
                        given[inner.args.args[0].arg] = Value(user, decorated)
                yield user, call, given

    @cached_property
    def _calls(self) -> dict[str, list[tuple[ParsedFile, ast.Call]]]:
        """The calls of every name, as its import spells it."""
        table: dict[str, list[tuple[ParsedFile, ast.Call]]] = {}
        for file in self._project.files:
            for call in file.nodes[ast.Call]:
                if isinstance(call, ast.Call) and (call.args or call.keywords):
                    table.setdefault(spelled(call.func), []).append((file, call))
        return table


def _forms(file: ParsedFile, names: Names) -> Iterator[_Form]:
    for node in file.nodes[ast.Attribute]:
        assert isinstance(node, ast.Attribute)
        if isinstance(node.ctx, ast.Load) or dotted(node.value) == "self":
            continue
        above = file.parents[node]
        if isinstance(above, ast.AugAssign):
            continue  # counts on; what is there stays what it is
        value = above.value if isinstance(above, (ast.Assign, ast.AnnAssign)) else None
        form = _Form(above, node.value, node.attr, value, removes=isinstance(node.ctx, ast.Del))
        yield replace(form, raises=form.removes)
    for node in file.nodes[ast.Subscript]:
        assert isinstance(node, ast.Subscript)
        if isinstance(node.ctx, ast.Store):
            above = file.parents[node]
            value = above.value if isinstance(above, (ast.Assign, ast.AnnAssign)) else None
            if names.meaning(Value(file, node.value)) == "sys.modules":
                yield _Form(above, None, node.slice, value, module=True)
            elif isinstance(node.value, ast.Attribute) and node.value.attr == "__dict__":
                yield _Form(above, node.value.value, node.slice, value)
    for call in file.nodes[ast.Call]:
        assert isinstance(call, ast.Call)
        yield from _called(file, names, call)


def _called(file: ParsedFile, names: Names, call: ast.Call) -> Iterator[_Form]:
    """Patches made by a call: `setattr`, `sys.modules.update`, `mock.patch`, pytest's `monkeypatch` and `mocker`."""
    name = names.meaning(Value(file, call.func)) or ""
    arguments = [*call.args, *[None] * 3][:3]
    first, second, third = arguments
    words = {k.arg: k.value for k in call.keywords if k.arg}
    last = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if name in ("setattr", "delattr") and first is not None and second is not None:
        yield _Form(call, first, second, third, raises=name == "delattr", removes=name == "delattr")
    elif name in ("sys.modules.setdefault", "sys.modules.__setitem__") and first is not None:
        yield _Form(call, None, first, second, module=True)
    elif name == "sys.modules.update" and isinstance(first, ast.Dict):
        yield from _modules(call, first)
    elif (kind := _mock(file, name, call)) is not None:
        if kind == "patch" and first is not None:
            yield _Form(call, None, first, words.get("new", second), raises=not _true(words.get("create")))
        elif kind == "object" and first is not None and second is not None:
            yield _Form(call, first, second, words.get("new", third), raises=not _true(words.get("create")))
        elif kind == "multiple" and first is not None:
            for word in call.keywords:
                if word.arg not in (None, "create", "spec", "spec_set", "autospec", "new_callable"):
                    yield _Form(call, first, word.arg, word.value, raises=not _true(words.get("create")))
        elif kind == "dict" and isinstance(second, ast.Dict) and _is_modules(file, names, first):
            yield from _modules(call, second)
    elif last == "setattr" and first is not None and second is not None:  # `monkeypatch.setattr`, by its text or object
        raises = not _false(words.get("raising"))
        if third is not None or "value" in words:
            yield _Form(call, first, second, words.get("value", third), raises=raises)
        else:
            yield _Form(call, None, first, second, raises=raises)
    elif last == "delattr" and first is not None and name != "delattr":
        yield _Form(call, first if second else None, second or first, None, raises=True, removes=True)
    elif last == "setitem" and second is not None and _is_modules(file, names, first):
        yield _Form(call, None, second, third, module=True)


def _modules(call: ast.Call, table: ast.Dict) -> Iterator[_Form]:
    for key, value in zip(table.keys, table.values):
        if key is not None:
            yield _Form(call, None, key, value, module=True)


def _mock(file: ParsedFile, name: str, call: ast.Call) -> str | None:
    """`patch`, `object`, `multiple` or `dict` where a call is `unittest.mock.patch` or pytest-mock's own."""
    for package in _MOCK:
        if name.startswith(f"{package}patch"):
            return name.removeprefix(f"{package}patch").removeprefix(".") or "patch"
    parts = (dotted(call.func) or "").split(".")
    if parts[0].endswith("mocker") and parts[1:2] == ["patch"]:
        bound = file.bound(parts[0], call)
        if len(bound) == 1 and isinstance(bound[0], ast.arg):
            return parts[2] if len(parts) > 2 else "patch"
    return None


def _is_modules(file: ParsedFile, names: Names, node: ast.expr | None) -> bool:
    return node is not None and (
        names.meaning(Value(file, node)) == "sys.modules" or names.strings(Value(file, node)) == "sys.modules"
    )


def _true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _false(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def import_of(patch: Patch) -> tuple[ParsedFile, Import] | None:
    """The import through whose name a patch reaches what it patches, and its file; None where it does so by text."""
    if patch.owner is None:
        return None
    node = patch.owner.node
    while isinstance(node, ast.Attribute):
        node = node.value
    bound = patch.owner.file.bound(node.id, node) if isinstance(node, ast.Name) else []
    return (patch.owner.file, bound[0]) if len(bound) == 1 and isinstance(bound[0], Import) else None

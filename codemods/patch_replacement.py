"""What of the plugin's is put in the place of something of vLLM's, and how it is called."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from codemods import edits as E
from codemods import patched_target as at
from codemods.parsed_file import FunctionNode, ParsedFile, dotted, loads
from codemods.patches import Patch
from codemods.plan import Plan
from codemods.project import AnyFunction, Class
from codemods.run_time_names import Value
from codemods.vllm_api import Signature

# Decorators under which a function is called as it is written.
_TRANSPARENT = frozenset(
    {
        "classmethod",
        "contextlib.contextmanager",
        "functools.wraps",
        "staticmethod",
        "torch.compile",
        "torch.inference_mode",
        "torch.no_grad",
        "wraps",
    }
)


@dataclass(frozen=True)
class Replacement:
    """What is put in place of what: how the one is called, and how the other was."""

    name: str
    signatures: tuple[Signature, ...]  # the likeliest first; one of them has to fit
    place: str
    wanted: Signature
    reads: frozenset[str] = frozenset()  # names that its body reads, where it takes the place of what is patched


def replacements(run: Plan, patch: Patch, target: str) -> Iterator[Replacement]:
    """The function of the project that is put in place, or the class, by its constructor and its call.

    Nothing where it is not seen, or not called as it is written. A function that becomes a method gets `self` besides,
    unless it takes the place of a static one.
    """
    value, place = patch.value, at.place(run.api, target)
    if value is None or place is None:
        return
    node = value.node
    wanted, shown = at.signature(run.api, target), at.short(run.api, target)
    skips = (1, 0) if place.member else (0,)
    if isinstance(node, ast.Call) and dotted(node.func) in ("staticmethod", "classmethod") and node.args:
        skips = (0,) if dotted(node.func) == "staticmethod" else (1,)
        value = value.at(node.args[0])
    function = ("the lambda", value.node) if isinstance(value.node, ast.Lambda) else _function(run, value)
    if wanted is not None and function is not None:
        name, code = function
        yield Replacement(
            name, tuple(_signature(run, code, skip) for skip in skips), shown, wanted, frozenset(loads(code))
        )
    cls = _class(run, value)
    if cls is None or place.member:
        return
    calls = (("__init__", wanted, shown), ("forward", run.api.call_signature(target), f"{shown}.forward"))
    for method, called, what in calls:
        own = run.project.method(cls, method)
        if called is not None and own is not None and not own.node.decorator_list:
            name = cls.node.name if method == "__init__" else f"{cls.node.name}.{method}"
            yield Replacement(name, (_signature(run, own.node, 1),), what, called)


def _class(run: Plan, value: Value) -> Class | None:
    if isinstance(value.node, ast.ClassDef):
        return run.project.classes.get(f"{value.file.module}.{value.node.name}")
    return run.project.class_named(value.file, value.node) if isinstance(value.node, ast.expr) else None


def _function(run: Plan, value: Value) -> tuple[str, AnyFunction] | None:
    node, file = value.node, value.file
    if isinstance(node, FunctionNode):
        return (node.name, node) if _is_plain(run, value, node) else None
    name = run.project.meaning(file, node) if isinstance(node, (ast.Name, ast.Attribute)) else None
    if name is None:
        return None
    module, _, last = name.rpartition(".")
    home = run.project.by_module.get(module)
    body = home.tree.body if home is not None else []
    if home is None and (cls := run.project.classes.get(module)) is not None:  # a method of one of the plugin's classes
        home, body = cls.file, cls.node.body
    found = next((n for n in body if isinstance(n, FunctionNode) and n.name == last), None)
    if found is None or home is None or not _is_plain(run, Value(home, found), found):
        return None
    return ast.unparse(node), found


def _is_plain(run: Plan, value: Value, node: AnyFunction) -> bool:
    """Whether a function is called as it is written: what decorates it keeps that, or is the patch itself."""
    patching = {id(patch.node) for patch in run.patches.of(value.file)}
    for decorator in node.decorator_list:
        name = decorator.func if isinstance(decorator, ast.Call) else decorator
        if id(decorator) not in patching and (value.file.resolve(name, name) or dotted(name)) not in _TRANSPARENT:
            return False
    return True


def _signature(run: Plan, node: AnyFunction | ast.Lambda, skip: int) -> Signature:
    """As it will be: without parameters that are being taken out, and with the new names of others."""
    place = E.Ref.of(node)
    edits = [edit for file in run.files for edit in file.edits if getattr(edit, "function", None) == place]
    taken = {edit.name for edit in edits if isinstance(edit, E.RemoveParameter)}
    named = {edit.name: edit.new_name for edit in edits if isinstance(edit, E.SetParameter) and edit.new_name}
    return at.of_function(node, skip, frozenset(taken), named)


def module_of(run: Plan, value: Value | None) -> ParsedFile | None:
    """The module of the project that is put in place of one of vLLM's."""
    if value is None or not isinstance(value.node, (ast.Name, ast.Attribute)):
        return None
    return run.project.by_module.get(run.project.meaning(value.file, value.node) or "")


def names_of(file: ParsedFile) -> frozenset[str] | None:
    """What a module of the project has at its top; None where that is not written out."""
    names = file.top_names
    return None if "*" in names or "__getattr__" in names else names

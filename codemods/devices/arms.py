"""Why an arm of a branch cannot run: a call it always makes of an object that cannot be called, or not like this."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from codemods.devices.kinds import Kinds
from codemods.parsed_file import FunctionNode, ParsedFile, same
from codemods.project import Project
from codemods.vllm_omni_api import Kind

_NOT_ALWAYS = (ast.For, ast.AsyncFor, ast.While, ast.Try, ast.Match, *FunctionNode, ast.ClassDef)


@dataclass(frozen=True)
class Fault:
    """Why an arm cannot run: the call that fails, whenever the arm is taken, and the reason in words."""

    call: ast.Call
    why: str
    owner: ast.expr | None  # the object of the call, where the shared call is made on the same


class Arms:
    """The arms of a file's branches."""

    def __init__(self, project: Project, file: ParsedFile, kinds: Kinds) -> None:
        self.project = project
        self.file = file
        self.kinds = kinds

    def fault(self, arm: Sequence[ast.AST]) -> Fault | None:
        """The first call that an arm always makes and that cannot be made."""
        for step in arm:
            if isinstance(step, ast.If):
                found = self.fault([step.test])
                inner = [self.fault(step.body), self.fault(step.orelse) if step.orelse else None]
                if found is None and all(inner):
                    found = inner[0]
            elif isinstance(step, (ast.With, ast.AsyncWith)):
                found = self.fault([*(item.context_expr for item in step.items), *step.body])
            elif isinstance(step, _NOT_ALWAYS):
                found = None
            else:
                found = next((f for call in _always(step) if (f := self._failing(call)) is not None), None)
            if found is not None:
                return found
            if isinstance(step, (ast.Return, ast.Raise)):
                return None
        return None

    def _failing(self, call: ast.Call) -> Fault | None:
        function = call.func
        if isinstance(function, ast.Name):
            if not self.file.bound(function.id, function) and not self._from_elsewhere(function.id):
                return Fault(call, f"{function.id} is not defined", None)
        if not isinstance(function, (ast.Name, ast.Attribute)):
            return None
        if isinstance(function, ast.Attribute) and function.attr == "forward":
            found = self.kinds.of(self.file, function.value)
            words = [self.kinds.unfitting(kind, "forward", call) for kind in found or ()]
            if found and all(words) and all(self.kinds.callable(kind) is False for kind in found):
                return Fault(call, f"{_class(found)}.forward {words[0]}", function.value)
            return None
        found = self.kinds.of(self.file, function)
        if found and not any(kind.is_class for kind in found):
            uncallable = all(self.kinds.callable(kind) is False for kind in found)
            if uncallable and all(self.kinds.has(kind, "forward") for kind in found):
                why = (
                    f"{ast.unparse(function)} is made by class {_class(found)}, which is no module and has no __call__"
                )
                return Fault(call, why, function)
        return None

    def _from_elsewhere(self, name: str) -> bool:
        stars = any(imported.name == "*" for imported in self.file.imports)
        return stars or hasattr(builtins, name) or "globals()" in self.file.text

    def shared(self, arm: Sequence[ast.AST], fault: Fault) -> ast.Call | None:
        """The call of the other arm that serves every device: `forward` of the same implementation."""
        for call, owner in self._forwards(arm):
            if (fault.owner is None or same(owner, fault.owner)) and self._fits(owner, call):
                return call
        return None

    def doubt(self, arm: Sequence[ast.AST], other: Sequence[ast.AST]) -> tuple[ast.Call, ast.Call, str] | None:
        """A call of an object that may be a module or not, with an argument that `forward` of the same object is not
        given in the other arm: the two calls, and the argument."""
        for shared, owner in self._forwards(other):
            for call in (node for step in arm for node in self.file.below(step)):
                if not isinstance(call, ast.Call) or not same(call.func, owner):
                    continue
                common = {word.arg for word in shared.keywords}
                own = next((w.arg for w in call.keywords if w.arg is not None and w.arg not in common), None)
                found = self.kinds.of(self.file, owner)
                if own is not None and not (found and all(self.kinds.callable(kind) for kind in found)):
                    return call, shared, own
        return None

    def _forwards(self, arm: Sequence[ast.AST]) -> Iterator[tuple[ast.Call, ast.expr]]:
        for call in (node for step in arm for node in self.file.below(step)):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "forward":
                yield call, call.func.value

    def _fits(self, owner: ast.expr, call: ast.Call) -> bool:
        found = self.kinds.of(self.file, owner)
        return bool(found) and all(
            self.kinds.callable(kind) is False
            and self.kinds.has(kind, "forward")
            and self.kinds.unfitting(kind, "forward", call) is None
            for kind in found or ()
        )


def _class(found: Iterable[Kind]) -> str:
    return min(kind.name for kind in found).rpartition(".")[2]


def _always(step: ast.AST) -> list[ast.Call]:
    """The calls that a statement or expression always makes, the outer ones last."""
    found: list[ast.Call] = []

    def visit(node: ast.AST) -> None:
        if isinstance(node, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            return
        children: Sequence[ast.AST] = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.BoolOp):
            children = node.values[:1]
        elif isinstance(node, ast.IfExp):
            children = [node.test]
        for child in children:
            visit(child)
        if isinstance(node, ast.Call):
            found.append(node)

    visit(step)
    return found

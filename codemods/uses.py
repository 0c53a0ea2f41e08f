"""Which names are still read once the planned edits are made."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cache, cached_property

from codemods import edits as E
from codemods.parsed_file import ParsedFile, attribute_loads, loads, spelled
from codemods.plan import FilePlan
from codemods.project import Project
from codemods.vision_attention import vocabulary as V

_PURE_METHODS = {
    "get_default_dtype",
    "get_multimodal_config",
    "shape",
    "size",
    "tolist",
    "item",
    "max",
    "min",
    "dim",
    "numel",
    "diff",
    "sum",
    "cumsum",
}
_NEW_TENSORS = {"zeros", "ones", "empty", "full", "tensor", "as_tensor", "arange"}  # of torch and numpy
_PURE_FUNCTIONS = {"getattr", "len", "int", "max", "min", "tuple", "list", "bool"}


@cache
def _fragment(code: str) -> tuple[frozenset[str], frozenset[str]]:
    tree = ast.parse(code)
    names = {n.value.id for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)}
    return frozenset(loads(tree) | names), frozenset(attribute_loads(tree))


class Uses:
    """Reads of names in one file, with and without the planned edits."""

    def __init__(self, plan: FilePlan) -> None:
        self.plan = plan
        self.file: ParsedFile = plan.file
        self.touched = (
            sorted({name for name, nodes in self.file.reads.items() if any(map(plan.gone, nodes))} | {*self.dropped})
            if plan.removed
            else []
        )

    @cached_property
    def dropped(self) -> dict[str, list[ast.Name]]:
        """Reads in arms of guards that go."""
        return _reads_below(self.file.dropped)

    @cached_property
    def hidden(self) -> dict[str, list[ast.Name]]:
        """Reads in arms of guards that stay in the text, though the target never runs them."""
        return _reads_below(self.file.hidden)

    def before(self, name: str, inside: ast.AST | None = None) -> list[ast.Name]:
        """Reads of a name in the text as it is."""
        nodes = self.file.reads.get(name, [])
        unseen = [*self.dropped.get(name, ()), *self.hidden.get(name, ())]
        if inside is None or not (nodes or unseen):
            return [*nodes, *unseen]
        start, end = self.file.extent(inside)
        place = E.Ref.of(inside) if unseen else None
        return [
            *(node for node in nodes if start <= self.file.position(node) < end),
            *(node for node in unseen if place is not None and place.contains(E.Ref.of(node))),
        ]

    def now(self, name: str, inside: ast.AST | None = None) -> list[ast.Name]:
        """Reads of a name that no edit takes away."""
        dropped = self.dropped.get(name, ())
        return [node for node in self.before(name, inside) if node not in dropped and not self.plan.gone(node)]

    def in_new_code(self, name: str, inside: ast.AST | None = None) -> bool:
        """Whether code that edits put in reads the name."""
        place = E.Ref.of(inside) if inside is not None else None
        for where, code in self.plan.inserted:
            if place is not None and not place.contains(where):
                continue
            if any(gone.contains(where) and gone != where for gone in self.plan.removed):
                continue
            if name in _fragment(code)[0]:
                return True
        return False

    def attribute_read(self, name: str, inside: ast.ClassDef) -> bool:
        """Whether `self.<name>` is still read inside a class."""
        place = E.Ref.of(inside)
        for node in self.file.below(inside):
            if (
                isinstance(node, ast.Attribute)
                and node.attr == name
                and isinstance(node.ctx, ast.Load)
                and not self.plan.gone(node)
            ):
                return True
        return any(place.contains(where) and name in _fragment(code)[1] for where, code in self.plan.inserted)

    def died(self, name: str, inside: ast.AST) -> bool:
        """Whether the edits took away the last read of a name that was read before."""
        return (
            name in self.touched
            and bool(self.before(name, inside))
            and not self.now(name, inside)
            and not self.in_new_code(name, inside)
        )


def _reads_below(roots: Sequence[ast.AST]) -> dict[str, list[ast.Name]]:
    table: dict[str, list[ast.Name]] = {}
    for root in roots:
        for node in ast.walk(root):
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store):
                table.setdefault(node.id, []).append(node)
    return table


def uses_of(plan: FilePlan) -> Uses:
    """The reads of a file as its plan stands now; made anew only when the plan has grown."""
    key = (len(plan.removed), len(plan.inserted))
    if plan.uses is None or plan.uses[0] != key:
        plan.uses = (key, Uses(plan))
    return plan.uses[1]


def is_pure(node: ast.expr) -> bool:
    """Whether evaluating an expression does nothing but give a value."""
    for inner in ast.walk(node):
        if isinstance(inner, (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr, ast.Lambda)):
            return False
        if isinstance(inner, ast.Call):
            function = inner.func
            if isinstance(function, ast.Attribute):
                made = (
                    isinstance(function.value, ast.Name)
                    and function.value.id in ("torch", "np", "numpy")
                    and function.attr in _NEW_TENSORS
                )
                pure = made or function.attr in _PURE_METHODS
            else:
                pure = isinstance(function, ast.Name) and function.id in _PURE_FUNCTIONS
            if not pure:
                return False
    return True


def is_look_up(project: Project, file: ParsedFile, value: ast.expr) -> bool:
    """Whether an expression asks vLLM for the backend, and does nothing else."""
    return (
        isinstance(value, ast.Call)
        and V.vllm_call(project, file, value, V.GET_BACKEND)
        and all(is_pure(argument) for argument in [*value.args, *(word.value for word in value.keywords)])
    )


def only_asks(project: Project, file: ParsedFile, test: ast.expr) -> bool:
    """Whether a test does nothing but answer: it reads values, asks the platform what it is, or asks vLLM whether a
    kernel's package is there."""
    if any(isinstance(node, (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)) for node in ast.walk(test)):
        return False
    calls = [node for node in ast.walk(test) if isinstance(node, ast.Call) and not is_pure(node)]
    return is_pure(test) or all(
        (spelled(call.func).startswith(("is_", "has_")) and not call.args and not call.keywords)
        or (
            V.vllm_call(project, file, call, V.UPSTREAM_FA, V.XFORMERS_AVAILABLE)
            and all(is_pure(argument) for argument in [*call.args, *(word.value for word in call.keywords)])
        )
        for call in calls
    )

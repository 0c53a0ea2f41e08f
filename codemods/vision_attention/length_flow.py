"""Where the max_seqlen that attention gets comes from, followed backwards through names, parameters, results and
files."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from codemods.parsed_file import FunctionNode, dotted, keyword, parameters, same, self_attribute
from codemods.plan import FilePlan, Plan
from codemods.project import AnyFunction
from codemods.uses import uses_of
from codemods.vision_attention import vocabulary as V
from codemods.vision_attention.attention_class import AttentionClass
from codemods.vision_attention.lengths import Kind, kind, tensor_inside
from codemods.vllm_methods import methods_called

Scope = AnyFunction | ast.Module
Variable = tuple[FilePlan, Scope, str]
Result = tuple[FilePlan, AnyFunction, int | None]  # what a function returns, or one item of the tuple that it returns
Step = Variable | Result | int  # on the way to attention; an expression is its id

REPLACED = -1  # the attention at the end of the way is put in place of other kernels by this run
KEPT = -2  # it was MMEncoderAttention before


@dataclass(frozen=True)
class Leaf:
    """An expression a length starts from, and the variables it then goes through."""

    file: FilePlan
    node: ast.expr
    kind: Kind
    path: tuple[Variable, ...]


@dataclass
class LengthFlow:
    """Everything that flows into attention's max_seqlen in a run."""

    run: Plan
    leaves: list[Leaf] = field(default_factory=list)
    parameters: list[tuple[FilePlan, AnyFunction, str]] = field(default_factory=list)  # those that carry it
    results: list[Result] = field(default_factory=list)  # functions that return it, and at which place
    _seen: set[int] = field(default_factory=set)
    _next: dict[Step, set[Step]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for file, function, node, end in self._sinks():
            self._expression(file, function, node, (), end)

    def way(self, start: Step) -> set[Step]:
        """Everything that a value goes through between a place and attention, both included."""
        found: set[Step] = set()
        ahead = {start}
        while ahead:
            step = ahead.pop()
            found.add(step)
            ahead |= self._next.get(step, set()) - found
        return found

    def _sinks(self) -> Iterator[tuple[FilePlan, Scope, ast.expr, int]]:
        for file in self.run.vision:
            for found in self.run.attention(file) if not file.read_only else ():
                if isinstance(found, AttentionClass) and isinstance(found.chain.max_seqlen, ast.Name):
                    yield file, found.chain.function, found.chain.max_seqlen, REPLACED
            for call in file.file.nodes[ast.Call]:
                assert isinstance(call, ast.Call)
                given = keyword(call, "max_seqlen")
                if given is not None and self._wants_tensor(file, call):
                    yield file, _scope(file, call), given, KEPT

    def _wants_tensor(self, file: FilePlan, call: ast.Call) -> bool:
        """A call of MMEncoderAttention, or of a layer of vLLM's that holds one."""
        return self._is_attention(file, call) or any(
            "max_seqlen" in (method.now(self.run.api) or ())
            and V.ENCODER_ATTENTION in (self.run.api.names(method.part.home.rpartition(".")[0]) or ())
            for method in methods_called(self.run, file, call)
        )

    def _is_attention(self, file: FilePlan, call: ast.Call) -> bool:
        """A call of an attribute that holds MMEncoderAttention."""
        name, cls = self_attribute(call.func), file.file.class_of(call)
        if name is None or cls is None or not self.run.project.aliases(file.file).get(V.ENCODER_ATTENTION):
            return False
        return any(
            isinstance(node, ast.Assign)
            and any(self_attribute(t) == name for t in node.targets)
            and V.vllm_call(self.run.project, file.file, node.value, V.ENCODER_ATTENTION)
            for node in file.file.below(cls)
        )

    # -- backwards ---------------------------------------------------------------------------------------------------

    def _expression(
        self,
        file: FilePlan,
        scope: Scope,
        node: ast.expr,
        path: tuple[Variable, ...],
        step: Step,
        place: int | None = None,
    ) -> None:
        """Follow an expression that goes on to `step`; `place`: the item of the tuple that it gives, None for the value
        itself."""
        here = id(node)
        self._next.setdefault(here, set()).add(step)
        if here in self._seen and place is None:
            return
        self._seen.add(here)
        if isinstance(node, ast.IfExp):
            self._expression(file, scope, node.body, path, here, place)
            self._expression(file, scope, node.orelse, path, here, place)
        elif isinstance(node, ast.Tuple) and place is not None and place < len(node.elts):
            self._expression(file, scope, node.elts[place], path, here)
        elif isinstance(node, ast.Name) and place is None:
            self._name(file, scope, node, path)
        elif isinstance(node, ast.Subscript) and place is None:
            self._entry(file, node, path)
        elif isinstance(node, ast.Call) and (reached := self.run.reached(node)) is not None:
            result = (self.run.of(reached.file), reached.node, place)
            self._next.setdefault(result, set()).add(here)
            self.results.append(result)
            for inner in reached.file.below(reached.node):
                if (
                    isinstance(inner, ast.Return)
                    and inner.value is not None
                    and reached.file.function(inner) is reached.node
                ):
                    self._expression(result[0], reached.node, inner.value, path, result, place)
        else:
            found = kind(node) if place is None else Kind.UNKNOWN
            if found in (Kind.TENSOR, Kind.ITEM) and self._is_numpy(file, scope, tensor_inside(node) or node):
                found = Kind.NUMBER
            if found is not Kind.NOTHING:
                self.leaves.append(Leaf(file, node, found, path))

    def _name(self, file: FilePlan, scope: Scope, node: ast.Name, path: tuple[Variable, ...]) -> None:
        variable = (file, scope, node.id)
        self._next.setdefault(variable, set()).add(id(node))
        if variable in path:
            return
        path = (*path, variable)
        known = False
        if isinstance(scope, FunctionNode) and node.id in {a.arg for a in parameters(scope)}:
            known = True
            if (file, scope, node.id) not in self.parameters:
                self.parameters.append((file, scope, node.id))
                for other, call, reached in self.run.calls():
                    if reached is not None and reached.node is scope:
                        value = (reached.passed(call) or {}).get(node.id)
                        if value is not None:
                            self._expression(other, _scope(other, call), value, path, variable)
        for statement in _steps(file, scope):
            for value, place in _assigned(statement, node.id):
                known = True
                self._expression(file, scope, value, path, variable, place)
        if not known:
            self.leaves.append(Leaf(file, node, Kind.UNKNOWN, path[:-1]))

    def _entry(self, file: FilePlan, node: ast.Subscript, path: tuple[Variable, ...]) -> None:
        """An entry of a dictionary: what the file stores under that key, in whichever dictionary.

        Only if all of it are numbers is the entry one; it is not changed, for it may be read elsewhere.
        """
        found: list[Leaf] = []
        seen, leaves = set(self._seen), self.leaves
        for function, value in _stored(file, node.slice):
            self.leaves = []
            self._expression(file, function, value, (), id(node))
            found += self.leaves or [Leaf(file, value, Kind.NOTHING, ())]
        self._seen, self.leaves = seen, leaves
        kinds = {leaf.kind for leaf in found}
        if not kinds or Kind.UNKNOWN in kinds:
            self.leaves.append(Leaf(file, node, Kind.UNKNOWN, path))
        elif kinds <= {Kind.NUMBER, Kind.ITEM}:
            self.leaves.append(Leaf(file, node, Kind.ENTRY, path))

    def _is_numpy(self, file: FilePlan, scope: Scope, node: ast.expr) -> bool:
        """Whether a length is computed on numpy arrays: every name in it was last set by numpy."""
        if isinstance(node, ast.Call) and (dotted(node.func) or "").startswith("torch."):
            return False
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} - {"torch"}
        roots = []
        for name in names:
            values = [v for s in _steps(file, scope) if s.lineno < node.lineno for v, _ in _assigned(s, name)]
            if values:
                text = ast.unparse(values[-1])
                roots.append(text.startswith(("np.", "numpy.")) and ".from_numpy" not in text)
        return bool(roots) and all(roots)

    # -- other uses --------------------------------------------------------------------------------------------------

    def stray(self, leaf: Leaf) -> tuple[FilePlan, ast.AST] | None:
        """A use of the length, on its way to attention, that wants a number."""
        for file, scope, name in leaf.path:
            for use in uses_of(file).now(name, scope):
                if id(use) not in self._seen and not _asks_for_none(file, use):
                    return file, use
        for file, function, _ in self.results:
            if leaf.node not in file.file.below(function):
                continue
            for other, call, reached in self.run.calls():
                if (
                    reached is not None
                    and reached.node is function
                    and id(call) not in self._seen
                    and not isinstance(other.file.parents[call], ast.Expr)
                ):
                    return other, call
        return None


def _asks_for_none(file: FilePlan, use: ast.Name) -> bool:
    above = file.file.parents[use]
    return isinstance(above, ast.Compare) and all(
        isinstance(c, ast.Constant) and c.value is None for c in above.comparators
    )


def _scope(file: FilePlan, node: ast.AST) -> Scope:
    """The function whose names an expression reads, or the module."""
    return file.file.function(node) or file.file.tree


def _steps(file: FilePlan, scope: Scope) -> list[ast.Assign | ast.AnnAssign | ast.NamedExpr]:
    """What assigns something in a function, or a module outside of functions, in source order."""
    found: list[ast.Assign | ast.AnnAssign | ast.NamedExpr] = [
        *file.file.inside(scope, ast.Assign),
        *file.file.inside(scope, ast.AnnAssign),
        *file.file.inside(scope, ast.NamedExpr),
    ]
    if isinstance(scope, ast.Module):
        found = [step for step in found if _scope(file, step) is scope]
    return sorted(found, key=file.file.position)


def _assigned(statement: ast.AST, name: str) -> Iterator[tuple[ast.expr, int | None]]:
    """What a statement assigns to a name: the expression, and the place in it if a tuple is unpacked."""
    if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
        for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
            if isinstance(target, ast.Name) and target.id == name:
                yield statement.value, None
            elif isinstance(target, (ast.Tuple, ast.List)):
                for place, item in enumerate(target.elts):
                    if isinstance(item, ast.Name) and item.id == name:
                        yield statement.value, place
    elif (
        isinstance(statement, ast.NamedExpr) and isinstance(statement.target, ast.Name) and statement.target.id == name
    ):
        yield statement.value, None


def _stored(file: FilePlan, key: ast.expr) -> Iterator[tuple[AnyFunction, ast.expr]]:
    """What the functions of a file store under a key: `d["x"] = value`, `{"x": value}`."""
    for node in [*file.file.nodes[ast.Assign], *file.file.nodes[ast.Dict]] if isinstance(key, ast.Constant) else ():
        function = file.file.function(node)
        if function is not None and isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Subscript) and same(target.slice, key):
                    yield function, node.value
        elif function is not None and isinstance(node, ast.Dict):
            yield from ((function, value) for name, value in zip(node.keys, node.values) if same(name, key))

"""Follows the memory of tensors through the statements of one function (or of a module, outside of its functions)."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace

from codemods.devices import tensor_calls
from codemods.devices.layout import NEW, UNKNOWN, Layout, indexed, joined
from codemods.parsed_file import FunctionNode, ParsedFile, dotted, parameters
from codemods.project import AnyFunction, Project

Environment = dict[str, Layout]  # name, or `self.name` -> what is shown of the tensor it holds
Scope = AnyFunction | ast.Module

_NESTED = (*FunctionNode, ast.ClassDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
_INTEGERS = frozenset({"len", "get_rank", "get_world_size", "int", "index"})


class Flow:
    """One pass over a scope. `calls` has every call, in order, with what was known when it was made."""

    def __init__(self, project: Project, file: ParsedFile, scope: Scope) -> None:
        self.project = project
        self.file = file
        self.scope = scope
        self.before: dict[ast.stmt, Environment] = {}
        self._calls: dict[ast.Call, Environment] = {}
        start: Environment = {}
        if not isinstance(scope, ast.Module):
            start = {p.arg: Layout(given=frozenset({p.arg})) for p in parameters(scope) if p.arg not in ("self", "cls")}
        self._block(scope.body, start)

    @property
    def calls(self) -> list[tuple[ast.Call, Environment]]:
        return list(self._calls.items())

    # -- statements: each gives what holds behind it, or None if nothing comes behind it -----------------------------

    def _block(self, body: Sequence[ast.stmt], known: Environment | None) -> Environment | None:
        for statement in body:
            if known is None:
                return None
            known = self._statement(statement, known)
        return known

    def _statement(self, node: ast.stmt, known: Environment) -> Environment | None:
        self.before[node] = _either(self.before[node], known) if node in self.before else dict(known)
        if isinstance(node, _NESTED):
            return known
        if isinstance(node, (ast.Return, ast.Raise, ast.Continue, ast.Break)):
            self._see_all(node, known)
            return None
        if isinstance(node, ast.If):
            return self._if(node, known)
        if isinstance(node, (ast.For, ast.AsyncFor)):
            return self._loop(node, known)
        if isinstance(node, ast.While):
            self._see(node.test, known)
            for _ in range(2):
                known = _either(known, self._block(node.body, dict(known)))
            return self._block(node.orelse, known)
        if isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                self._see(item.context_expr, known)
            return self._block(node.body, known)
        if isinstance(node, ast.Try):
            return self._try(node, known)
        if isinstance(node, ast.Match):
            self._see(node.subject, known)
            arms = [self._block(case.body, dict(known)) for case in node.cases]
            return _any_of([*arms, known])
        self._see_all(node, known)
        known = dict(known)
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._bind(target, node.value, known)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._bind(node.target, node.value, known)
        elif isinstance(node, ast.Assert):
            for name in _said_contiguous(node.test, True):
                known[name] = NEW
        elif isinstance(node, ast.Delete):
            for target in node.targets:
                known.pop(dotted(target) or "", None)
        elif isinstance(node, ast.Expr):
            self._append(node.value, known)
        return known

    def _if(self, node: ast.If, known: Environment) -> Environment | None:
        self._see(node.test, known)
        then, other = dict(known), dict(known)
        then.update((name, NEW) for name in _said_contiguous(node.test, True))
        other.update((name, NEW) for name in _said_contiguous(node.test, False))
        return _any_of([self._block(node.body, then), self._block(node.orelse, other)])

    def _loop(self, node: ast.For | ast.AsyncFor, known: Environment) -> Environment | None:
        self._see(node.iter, known)
        for _ in range(2):  # what one round leaves behind is there in the next
            inside = dict(known)
            self._bind_items(node.target, node.iter, inside)
            known = _either(known, self._block(node.body, inside))
        return self._block(node.orelse, known)

    def _try(self, node: ast.Try, known: Environment) -> Environment | None:
        body = self._block(node.body, dict(known))
        body = self._block(node.orelse, body)
        handlers = [self._block(handler.body, _either(dict(known), body)) for handler in node.handlers]
        behind = _any_of([body, *handlers])
        if node.finalbody:
            after = self._block(node.finalbody, dict(known) if behind is None else behind)
            return None if behind is None else after
        return behind

    # -- binding -----------------------------------------------------------------------------------------------------

    def _bind(self, target: ast.expr, value: ast.expr, known: Environment) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
                layouts = [self.layout(item, known) for item in value.elts]
            else:
                whole = self.layout(value, known)
                item = whole.view(listed=False) if whole.listed else UNKNOWN
                layouts = [item] * len(target.elts)
            for part, layout in zip(target.elts, layouts):
                self._set(part, layout, known)
        else:
            self._set(target, self.layout(value, known), known)

    def _bind_items(self, target: ast.expr, over: ast.expr, known: Environment) -> None:
        """A loop variable: an item of a list, or an entry of a tensor's first dimension."""
        name = dotted(over.func) if isinstance(over, ast.Call) else None
        if isinstance(over, ast.Call) and isinstance(target, ast.Tuple) and name in ("enumerate", "zip"):
            sources = [None, *over.args] if name == "enumerate" else list(over.args)
            for part, source in zip(target.elts, sources):
                if source is not None:
                    self._bind_items(part, source, known)
                else:
                    self._set(part, UNKNOWN, known)
            return
        whole = self.layout(over, known)
        self._set(target, whole.view(listed=False) if whole.listed else whole.without_first().view(), known)

    def _set(self, target: ast.expr, layout: Layout, known: Environment) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            for part in target.elts:
                self._set(part, UNKNOWN, known)
            return
        name = dotted(target.value if isinstance(target, ast.Starred) else target)
        if name is not None:
            for held in [other for other in known if other.startswith(f"{name}.")]:
                del known[held]
            known[name] = UNKNOWN if isinstance(target, ast.Starred) else layout

    def _append(self, value: ast.expr, known: Environment) -> None:
        """`parts.append(x)`: a list is as strided as what was put into it."""
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "append":
            name = dotted(value.func.value)
            if name is not None and len(value.args) == 1:
                item = self.layout(value.args[0], known).view(listed=True)
                known[name] = known[name].joined(item) if name in known else item

    # -- expressions -------------------------------------------------------------------------------------------------

    def layout(self, node: ast.expr, known: Environment) -> Layout:
        """What is shown of the value of an expression."""
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self._named(node, known)
        if isinstance(node, ast.NamedExpr):
            return self.layout(node.value, known)
        if isinstance(node, ast.Starred):
            return self.layout(node.value, known)
        if isinstance(node, ast.IfExp):
            then, other = dict(known), dict(known)
            then.update((name, NEW) for name in _said_contiguous(node.test, True))
            other.update((name, NEW) for name in _said_contiguous(node.test, False))
            return self.layout(node.body, then).joined(self.layout(node.orelse, other))
        if isinstance(node, ast.Subscript):
            base = self.layout(node.value, known)
            if base.listed:
                return (
                    base if isinstance(node.slice, ast.Slice) else base.view(listed=False, contiguous=base.contiguous)
                )
            return indexed(base, node.slice, self.file.written(node), self.is_int)
        if isinstance(node, (ast.List, ast.Tuple)):
            found = joined(self.layout(item, known) for item in node.elts)
            return replace(found, listed=True)
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            found = self.layout(node.elt, self._inside(node, known))
            return replace(found, listed=True)
        if isinstance(node, ast.Call):
            return self._called(node, known)
        return UNKNOWN

    def _named(self, node: ast.Name | ast.Attribute, known: Environment) -> Layout:
        name = dotted(node)
        if name is not None and name in known:
            return replace(known[name], bases=known[name].bases | {name})
        if isinstance(node, ast.Attribute) and node.attr in tensor_calls.SWAPPED:
            return self.layout(node.value, known).swapped("", self.file.written(node))
        if isinstance(node, ast.Attribute) and node.attr == "data":
            return self.layout(node.value, known)
        return Layout(bases=frozenset({name})) if name is not None else UNKNOWN

    def _called(self, node: ast.Call, known: Environment) -> Layout:
        function = node.func
        if isinstance(function, ast.Name) and tensor_calls.lists(function.id) and len(node.args) == 1:
            whole = self.layout(node.args[0], known)
            return whole if whole.listed else whole.without_first().view(listed=True)
        name = self.file.resolve(function) or ""
        package, _, last = name.rpartition(".")
        if package == "torch" and tensor_calls.creates(last):
            return NEW
        if package == "torch" and node.args:
            base, rest = self.layout(node.args[0], known), node.args[1:]
            return tensor_calls.called(last, base, rest, node, self.file.written(node))
        if name == "einops.rearrange":
            return self._rearranged(node, known)
        if not name and isinstance(function, ast.Attribute):
            if function.attr.startswith("new_") and tensor_calls.creates(function.attr):
                return NEW
            base = self.layout(function.value, known)
            return tensor_calls.called(function.attr, base, node.args, node, self.file.written(node))
        return UNKNOWN

    def _rearranged(self, node: ast.Call, known: Environment) -> Layout:
        """`rearrange(x, "b s h -> s b h")`: another order of the same dimensions is a view."""
        pattern = node.args[1] if len(node.args) > 1 else None
        if not isinstance(pattern, ast.Constant) or not isinstance(pattern.value, str) or "(" in pattern.value:
            return UNKNOWN
        before, _, after = pattern.value.partition("->")
        base = self.layout(node.args[0], known)
        if before.split() == after.split():
            return base
        return base.swapped("", self.file.written(node)) if sorted(before.split()) == sorted(after.split()) else UNKNOWN

    def _inside(self, node: ast.expr, known: Environment) -> Environment:
        inside = dict(known)
        for generator in getattr(node, "generators", ()):
            self._bind_items(generator.target, generator.iter, inside)
        return inside

    def is_int(self, node: ast.expr) -> bool:
        """Whether an index is a number, so that it picks one entry without copying."""
        if isinstance(node, ast.Constant):
            return isinstance(node.value, int) and not isinstance(node.value, bool)
        if isinstance(node, ast.UnaryOp):
            return isinstance(node.op, ast.USub) and self.is_int(node.operand)
        if isinstance(node, ast.BinOp):
            return self.is_int(node.left) and self.is_int(node.right)
        if isinstance(node, ast.Call):
            return (dotted(node.func) or "").rpartition(".")[2] in _INTEGERS
        if isinstance(node, ast.Name):
            bound = [b for b in self.file.bound(node.id, node) if isinstance(b, ast.Name)]
            return bool(bound) and all(self._counts(b) for b in bound)
        return False

    def _counts(self, binding: ast.Name) -> bool:
        """Whether a name is bound to a number here: a loop's counter, a rank, a length."""
        above = self.file.parents[binding]
        first = isinstance(above, ast.Tuple) and above.elts[0] is binding
        where = self.file.parents[above] if first else above
        if isinstance(where, (ast.For, ast.comprehension)) and isinstance(where.iter, ast.Call):
            return dotted(where.iter.func) == ("enumerate" if first else "range")
        return (
            isinstance(where, ast.Assign)
            and not first
            and not isinstance(where.value, ast.Name)
            and self.is_int(where.value)
        )

    # -- calls -------------------------------------------------------------------------------------------------------

    def _see_all(self, node: ast.stmt, known: Environment) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._see(child, known)

    def _see(self, node: ast.AST, known: Environment) -> None:
        """Note the calls in an expression, the inner ones first."""
        if isinstance(node, (ast.Lambda, *_NESTED)):
            return
        inside = self._inside(node, known) if isinstance(node, _COMPREHENSIONS) else known
        for child in ast.iter_child_nodes(node):
            self._see(child, inside)
        if isinstance(node, ast.Call):
            self._calls[node] = _either(self._calls[node], known) if node in self._calls else dict(known)


def scopes(file: ParsedFile) -> Iterator[Scope]:
    """The module and every function of a file."""
    yield file.tree
    for kind in FunctionNode:
        for node in file.nodes[kind]:
            if isinstance(node, FunctionNode):
                yield node


def _either(one: Environment, other: Environment | None) -> Environment:
    """What holds where one of two ways was taken."""
    if other is None:
        return one
    both = {}
    for name in {**one, **other}:
        here, there = one.get(name, UNKNOWN), other.get(name, UNKNOWN)
        both[name] = here if here is there else here.joined(there)  # nearly all are the same
    return both


def _any_of(ways: Sequence[Environment | None]) -> Environment | None:
    result: Environment | None = None
    for way in ways:
        result = way if result is None else _either(result, way)
    return result


def _said_contiguous(test: ast.expr, truth: bool) -> Iterator[str]:
    """Names that are contiguous where a test comes out so."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _said_contiguous(test.operand, not truth)
    elif isinstance(test, ast.BoolOp) and (truth is False or isinstance(test.op, ast.And)):
        for value in test.values:  # `x is not None and not x.is_contiguous()` fails: x is None or contiguous
            yield from _said_contiguous(value, truth)
    elif (
        truth
        and isinstance(test, ast.Call)
        and isinstance(test.func, ast.Attribute)
        and test.func.attr == "is_contiguous"
        and (name := dotted(test.func.value)) is not None
    ):
        yield name

"""Follows tensors through a method, statement by statement, and records with which shapes an attention is called.

Branches are followed both ways, methods of self and forwards of the project's own submodules are entered. What is not
understood gets a token of its own, which is equal to nothing else.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from codemods.parsed_file import FunctionNode, parameters
from codemods.project import AnyFunction, Class
from codemods.vision_attention.flow_calls import Frame
from codemods.vision_attention.flow_values import Values
from codemods.vision_attention.shapes import AnyValue, Token, Value
from codemods.vision_attention.tensor_operations import number


class Flow(Values):
    """Statements, by kind."""

    def enter(self, owner: Class, home: Class, function: AnyFunction, given: dict[str, AnyValue]) -> None:
        """Follow a method from outside: parameters that are not `given` are inputs of their own."""
        frame = Frame(home.file, owner, home, self.t.token("self", roots=(), path="self"))
        self.run(frame, function, given)

    def run(self, frame: Frame, function: AnyFunction, given: dict[str, AnyValue]) -> AnyValue:
        arguments = function.args
        self.frames += 1
        frame.number = self.frames
        for argument in [*parameters(function), *(a for a in (arguments.vararg, arguments.kwarg) if a is not None)]:
            name = argument.arg
            frame.env.setdefault(
                name, given.get(name) or self.t.value(self.t.token("parameter", name, frame.number, roots=(name,)))
            )
        first = next(iter(parameters(function)), None)
        if frame.me is not None and first is not None:
            frame.env[first.arg] = self.t.value(frame.me)
        self.depth += 1
        self._block(function.body, frame)
        self.depth -= 1
        if not frame.returned:
            return self.t.constant(None)
        result = frame.returned[0]
        for other in frame.returned[1:]:
            result = self.t.join(self.t.token("returns"), result, other)
        return result

    def _block(self, statements: Sequence[ast.stmt], frame: Frame) -> bool:
        """Follow statements; whether the block is left before its end."""
        return any(self._statement(statement, frame) for statement in statements)

    def _statement(self, node: ast.stmt, frame: Frame) -> bool:
        if isinstance(node, ast.Return):
            frame.returned.append(self.value(node.value, frame) if node.value is not None else self.t.constant(None))
            return True
        if isinstance(node, (ast.Raise, ast.Break, ast.Continue)):
            return True
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            value = self.value(node.value, frame)
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self.bind(target, value, frame)
                self._learn_rank(target, node.value, frame)
        elif isinstance(node, ast.AugAssign):
            both = (self.value(node.target, frame), self.value(node.value, frame))
            self.bind(node.target, self._operated(*both, type(node.op).__name__), frame)
        elif isinstance(node, ast.If):
            return self._branches(self.value(node.test, frame), [node.body, node.orelse], frame)
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            self._loop(node, frame)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                held = self.value(item.context_expr, frame)
                if item.optional_vars is not None:
                    self.bind(item.optional_vars, held, frame)
            return self._block(node.body, frame)
        elif isinstance(node, (ast.Try, ast.Match)):
            arms = (
                [[*node.body, *node.orelse], *(h.body for h in node.handlers)]
                if isinstance(node, ast.Try)
                else [c.body for c in node.cases]
            )
            left = self._branches(self.t.value(self.t.token("arm", node.lineno)), [*arms, []], frame)
            return (isinstance(node, ast.Try) and self._block(node.finalbody, frame)) or left
        elif isinstance(node, (*FunctionNode, ast.ClassDef)):
            frame.env[node.name] = self.unknown(node, frame)
        elif isinstance(node, ast.Expr):
            self.value(node.value, frame)
        elif isinstance(node, ast.Assert):
            self.value(node.test, frame)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                frame.env.pop(alias.asname or alias.name.partition(".")[0], None)
        return False

    def _branches(self, test: AnyValue, arms: Sequence[Sequence[ast.stmt]], frame: Frame) -> bool:
        known = number(test)
        if isinstance(known, bool) and len(arms) == 2:
            return self._block(arms[0 if known else 1], frame)
        before = frame.env
        ends: list[dict[str, AnyValue]] = []
        for arm in arms:
            frame.env = dict(before)
            if not self._block(arm, frame):
                ends.append(frame.env)
        frame.env = self._joined(self.t.flat(test), ends) if ends else before
        return not ends

    def _joined(self, test: Token, ends: list[dict[str, AnyValue]]) -> dict[str, AnyValue]:
        """What names are after one of several ways. A local that a way leaves unset cannot be read behind it."""
        result = dict(ends[0])
        for other in ends[1:]:
            for name in result.keys() | other.keys():
                given = [end[name] for end in (result, other) if name in end]
                if len(given) == 1 and "." in name:  # an attribute: as it was before
                    given.append(self.t.value(self.t.token("unset", name)))
                result[name] = self.t.join(test, *given) if len(given) == 2 else given[0]
        return result

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, frame: Frame) -> None:
        """Follow the body until another turn changes nothing: what a turn changes is not known ahead of it."""
        over = self.value(node.iter, frame) if not isinstance(node, ast.While) else None
        before = frame.env
        start = dict(before)
        while True:
            frame.env = dict(start)
            if over is not None and not isinstance(node, ast.While):
                self.bind(node.target, self.t.element(over, _place(node)), frame)
            elif isinstance(node, ast.While):
                self.value(node.test, frame)
            self._block(node.body, frame)
            wider = {name: self._wider(name, value, frame.env.get(name), node) for name, value in start.items()}
            if wider == start:
                break
            start = wider
        frame.env = self._joined(self.t.token("loop", node.lineno), [before, start, frame.env])
        self._block(node.orelse, frame)

    def _wider(self, name: str, start: AnyValue, end: AnyValue | None, node: ast.stmt) -> AnyValue:
        """What a name may be at the start of any turn: as it was, of the same batch and sequence, or anything."""
        if end is None or end == start:
            return start
        token = self.t.token("turn", name, node.lineno)
        first, last = self.t.single(start), self.t.single(end)
        if first.lead == last.lead:
            return self.t.value(
                self.t.token("turn of", token, *first.lead), first.rank if first.rank == last.rank else None, first.lead
            )
        roots = first.shape.roots | last.shape.roots
        return self.t.value(self.t.token("turn", name, node.lineno, "unknown", roots=roots))

    def bind(self, target: ast.expr, value: AnyValue, frame: Frame) -> None:
        if isinstance(target, ast.Name):
            frame.env[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            count = len(target.elts)
            star = next((i for i, item in enumerate(target.elts) if isinstance(item, ast.Starred)), None)
            for index, item in enumerate(target.elts):
                if isinstance(item, ast.Starred):
                    self.bind(item.value, self.t.value(self.t.token("star", self.t.flat(value))), frame)
                else:
                    place = index if star is None or index < star else index - count
                    self.bind(item, self.t.item(value, place, count if star is None else None), frame)
        elif isinstance(target, ast.Attribute):
            path = self.t.flat(self.value(target.value, frame)).path
            if path is not None:
                frame.env[f"{path}.{target.attr}"] = value

    def _learn_rank(self, target: ast.expr, source: ast.expr, frame: Frame) -> None:
        """`b, s, c = x.shape` says that x has three axes."""
        shaped = isinstance(source, ast.Attribute) and source.attr == "shape"
        sized = (
            isinstance(source, ast.Call)
            and isinstance(source.func, ast.Attribute)
            and source.func.attr == "size"
            and not source.args
        )
        if (
            isinstance(target, ast.Tuple)
            and (shaped or sized)
            and not any(isinstance(item, ast.Starred) for item in target.elts)
        ):
            of = source.value if isinstance(source, ast.Attribute) else source.func.value  # type: ignore[attr-defined]
            held = frame.env.get(of.id) if isinstance(of, ast.Name) else None
            if isinstance(of, ast.Name) and isinstance(held, Value) and held.rank is None:
                frame.env[of.id] = replace(held, rank=len(target.elts))


def _place(node: ast.AST) -> str:
    return f"{getattr(node, 'lineno', 0)}:{getattr(node, 'col_offset', 0)}"

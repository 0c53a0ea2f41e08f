"""What an expression gives, while tensors are followed."""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Sequence

from codemods.vision_attention.flow_calls import Calls, Frame
from codemods.vision_attention.shapes import NOTHING, AnyValue, Each, Many, Sizes, Token, Value
from codemods.vision_attention.tensor_operations import drop, number


class Values(Calls):
    """Expressions, by kind. Every call inside one is followed on the way."""

    @abstractmethod
    def bind(self, target: ast.expr, value: AnyValue, frame: Frame) -> None:
        """Give a value to the target of an assignment."""

    def value(self, node: ast.expr, frame: Frame) -> AnyValue:
        """What an expression gives. Every call inside it is followed on the way."""
        if isinstance(node, ast.Constant):
            return self.t.constant(node.value)
        if isinstance(node, ast.Name):
            return frame.env.get(node.id) or self._global(node, frame)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, frame)
        if isinstance(node, ast.Call):
            return self.call(node, frame)
        if isinstance(node, (ast.Tuple, ast.List)):
            return Many(tuple(self._items(node.elts, frame)))
        if isinstance(node, ast.Subscript):
            return self._subscript(node, frame)
        if isinstance(node, ast.BinOp):
            return self._operated(self.value(node.left, frame), self.value(node.right, frame), type(node.op).__name__)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            inner = self.value(node.operand, frame)
            constant = number(inner)
            return (
                self.t.constant(-constant)
                if isinstance(node.op, ast.USub) and isinstance(constant, (int, float))
                else inner
            )
        if isinstance(node, ast.Compare):
            return self._compared(node, frame)
        if isinstance(node, ast.IfExp):
            test = self.value(node.test, frame)
            known = number(test)
            if isinstance(known, bool):
                return self.value(node.body if known else node.orelse, frame)
            return self.t.join(self.t.flat(test), self.value(node.body, frame), self.value(node.orelse, frame))
        if isinstance(node, ast.NamedExpr):
            value = self.value(node.value, frame)
            self.bind(node.target, value, frame)
            return value
        if isinstance(node, (ast.GeneratorExp, ast.ListComp)):
            return self._comprehension(node, frame)
        if isinstance(node, (ast.Lambda, ast.SetComp, ast.DictComp)):
            return self.unknown(node, frame)
        children = [
            self.t.flat(self.value(child, frame)) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)
        ]
        extra = [type(child).__name__ for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr)]
        return self.t.value(self.t.token(type(node).__name__, *extra, *children))

    def unknown(self, node: ast.AST, frame: Frame) -> Value:
        inputs = {
            root
            for n in ast.walk(node)
            if isinstance(n, ast.Name) and n.id in frame.env
            for root in self.t.flat(frame.env[n.id]).roots
        }
        return self.t.value(self.t.token("unknown", id(node), frame.number, roots=inputs))

    def _items(self, nodes: Sequence[ast.expr], frame: Frame) -> list[AnyValue]:
        found: list[AnyValue] = []
        for node in nodes:
            if not isinstance(node, ast.Starred):
                found.append(self.value(node, frame))
                continue
            inner = self.value(node.value, frame)
            found += (
                inner.items if isinstance(inner, Many) else [self.t.value(self.t.token("star", self.t.flat(inner)))]
            )
        return found

    def _global(self, node: ast.Name, frame: Frame) -> Value:
        name = self.project.vllm(frame.file, node, node) or self.project.meaning(frame.file, node, node)
        return self.t.value(
            self.t.token(
                "global", name or node.id, dotted=name or (None if frame.file.bound(node.id, node) else node.id)
            )
        )

    def _attribute(self, node: ast.Attribute, frame: Frame) -> AnyValue:
        base = self.value(node.value, frame)
        if isinstance(base, Value) and node.attr == "shape":
            return Sizes(base)
        if isinstance(base, Value) and node.attr == "ndim" and base.rank is not None:
            return self.t.constant(base.rank)
        token = self.t.flat(base)
        path = f"{token.path}.{node.attr}" if token.path else None
        if path is not None and path in frame.env:
            return frame.env[path]
        dotted = f"{token.dotted}.{node.attr}" if token.dotted else None
        roots = {path} if path is not None else None
        found = self.t.token("attribute", node.attr, token, roots=roots, path=path, dotted=dotted)
        if token is frame.me and frame.owner is not None:
            self.homes.setdefault(found, (frame.owner, node.attr))
        return self.t.value(found)

    def _subscript(self, node: ast.Subscript, frame: Frame) -> AnyValue:
        base = self.value(node.value, frame)
        index = node.slice
        if isinstance(base, (Many, Sizes)) and isinstance(index, ast.Slice):
            return self._sliced(base, index, frame)
        if isinstance(base, Each) and not isinstance(index, (ast.Slice, ast.Tuple)):
            return self.t.item(base, 0) if base.even else self.t.element(base, self._index_token(index, frame))
        if not isinstance(index, (ast.Slice, ast.Tuple)):
            which = self._index_token(index, frame)
            token, place = self.t.flat(base), which.constant
            if token.path is not None:
                return self.t.value(self.t.token("element", token, which, roots=token.roots, path=f"{token.path}[]"))
            if isinstance(place, int) and not isinstance(base, Value):
                return self.t.item(base, place)
            if self.t.single(base).rank is None:  # may be a list of tensors that differ
                return self.t.value(self.t.token("index", token, which))
        return self._indexed(self.t.single(base), index.elts if isinstance(index, ast.Tuple) else [index], frame)

    def _sliced(self, base: Many | Sizes, index: ast.Slice, frame: Frame) -> AnyValue:
        parts = (index.lower, index.upper, index.step)
        bounds = [None if part is None else number(self.value(part, frame)) for part in parts]
        known = [bound for bound in bounds if bound is None or isinstance(bound, int)]
        unknown = self.t.value(
            self.t.token("slice", self.t.flat(base), *(self._index_token(p, frame) for p in parts if p))
        )
        if len(known) < len(bounds):
            return unknown
        cut = slice(*known)
        if isinstance(base, Many):
            return Many(base.items[cut])
        rank = base.of.rank or (
            3 if cut.stop == -1 else 2 if cut.stop in (1, 2) else None
        )  # none here has fewer than 3
        if rank is None:
            return unknown
        return Many(tuple(self.t.value(self.t.axis(base.of, place), 0) for place in range(rank)[cut]))

    def _indexed(self, x: Value, index: Sequence[ast.expr], frame: Frame) -> Value:
        """`x[...]` of a tensor, one part of the index at a time."""
        unknown = self.t.value(self.t.token("index", x.shape, *(self._index_token(part, frame) for part in index)))
        if isinstance(index[0], ast.Constant) and index[0].value is Ellipsis:
            only_last = len(index) == 2 and isinstance(index[1], ast.Slice)
            return self.t.value(unknown.shape, x.rank, x.lead) if only_last else unknown
        found = x
        axis = 0
        for part in index:
            if isinstance(part, ast.Slice):
                found = self._cut(found, axis, part, frame)
                axis += 1
                continue
            less = drop(self.t, found, axis, "one of") if isinstance(number(self.value(part, frame)), int) else None
            if less is None:
                return unknown
            found = less
        return found if axis < len(found.axes) else unknown

    def _cut(self, x: Value, axis: int, part: ast.Slice, frame: Frame) -> Value:
        if (part.lower, part.upper, part.step) == (None, None, None):
            return x
        bounds = self._index_token(part, frame)
        length = self.t.token("cut", self.t.axis(x, axis), bounds)
        axes = [length if place == axis else known for place, known in enumerate(x.axes)]
        return self.t.value(self.t.token("cut", axis, x.shape, bounds), x.rank, axes)

    def _index_token(self, part: ast.expr, frame: Frame) -> Token:
        if isinstance(part, ast.Slice):
            return self.t.token(
                "bounds",
                *(
                    self.t.flat(self.value(b, frame)) if b is not None else None
                    for b in (part.lower, part.upper, part.step)
                ),
            )
        return self.t.flat(self.value(part, frame))

    def _operated(self, a: AnyValue, b: AnyValue, operator: str) -> AnyValue:
        if isinstance(a, Many) and isinstance(b, Many) and operator == "Add":
            return Many((*a.items, *b.items))
        return self.t.broadcast(self.t.single(a), self.t.single(b), operator)

    def _compared(self, node: ast.Compare, frame: Frame) -> Value:
        sides = [self.value(side, frame) for side in (node.left, *node.comparators)]
        constants = [number(side) for side in sides]
        if len(sides) == 2 and NOTHING not in constants:
            equal = constants[0] == constants[1]
            if isinstance(node.ops[0], (ast.Eq, ast.Is)):
                return self.t.constant(equal)
            if isinstance(node.ops[0], (ast.NotEq, ast.IsNot)):
                return self.t.constant(not equal)
        return self.t.value(self.t.token("compare", *(type(op).__name__ for op in node.ops), *map(self.t.flat, sides)))

    def _comprehension(self, node: ast.GeneratorExp | ast.ListComp, frame: Frame) -> AnyValue:
        generator = node.generators[0]
        over = self.value(generator.iter, frame)
        if len(node.generators) > 1 or generator.ifs:
            return self.unknown(node, frame)
        before = frame.env
        items = over.items if isinstance(over, Many) else (self.t.element(over, f"{node.lineno}:{node.col_offset}"),)
        found: list[AnyValue] = []
        for item in items:
            frame.env = dict(before)
            self.bind(generator.target, item, frame)
            found.append(self.value(node.elt, frame))
        frame.env = before
        if isinstance(over, Many):
            return Many(tuple(found))
        return Each(self.t.single(found[0]), even=isinstance(over, Each) and over.even)

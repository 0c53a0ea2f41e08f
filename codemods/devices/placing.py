"""Where in a scope a name can be made contiguous, so that a collective and the list it fills both see it so."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from codemods.devices import tensor_calls
from codemods.devices.tensor_flow import Flow, Scope
from codemods.parsed_file import ParsedFile, dotted

_SIMPLE = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return)


class Placing:
    def __init__(self, file: ParsedFile, scope: Scope, flow: Flow) -> None:
        self.file = file
        self.scope = scope
        self.flow = flow

    def anchor(self, node: ast.Name, call: ast.Call, filled: Iterable[ast.expr]) -> ast.stmt | None:
        """The statement ahead of which a name can be set: that of the call, or of a buffer made like the tensor. None
        if there is no such place."""
        statement = self.file.statement(call)
        if not self._own_lines(statement) or not self._bound_here(node):
            return None
        buffers = [self.file.statement(like) for like in self.likes(node, filled, call)]
        anchor = min([statement, *buffers], key=self.file.position)
        return anchor if anchor is statement or self._may_precede(anchor, statement, node.id) else None

    def covers(self, anchor: ast.stmt, statement: ast.stmt, name: str) -> bool:
        """Whether a name that is set ahead of `anchor` still holds that whenever `statement` runs."""
        if anchor is statement:
            return True
        above = self.file.parents[anchor]
        start, end = self.file.position(anchor), self.file.position(statement)
        if above not in self.file.above(statement) or start > end:
            return False
        if isinstance(above, (ast.If, ast.Try)) and self._block(above, anchor) is not self._block(above, statement):
            return False
        return not any(start <= self.file.position(n) < end for n in self.file.writes.get(name, ()))

    def likes(self, node: ast.expr, filled: Iterable[ast.expr], call: ast.Call) -> list[ast.Call]:
        """`torch.empty_like(x)` and its kin in the buffers of a call, or in what their names were last set to."""
        return [
            made
            for root in self._makers(filled, call)
            for made in self.file.below(root)
            if isinstance(made, ast.Call)
            and (dotted(made.func) or "").rpartition(".")[2] in tensor_calls.LIKE
            and made.args
            and self._stands_for(made.args[0], ast.dump(node))
        ]

    def _makers(self, filled: Iterable[ast.expr], call: ast.Call) -> Iterator[ast.expr]:
        for buffer in filled:
            yield buffer
            for write in self.file.writes.get(buffer.id, ()) if isinstance(buffer, ast.Name) else ():
                step = self.file.statement(write)
                if isinstance(step, (ast.Assign, ast.AnnAssign)) and step.value is not None:
                    if self.scope in self.file.above(step) and self.file.position(step) < self.file.position(call):
                        yield step.value

    def _stands_for(self, like: ast.expr, tensor: str) -> bool:
        """Whether a buffer is made like the tensor, or like an item of the list of tensors."""
        if ast.dump(like) == tensor:
            return True
        if isinstance(like, ast.Subscript):
            return ast.dump(like.value) == tensor
        if isinstance(like, ast.Name):
            for above in self.file.above(like):
                for generator in getattr(above, "generators", ()):
                    if isinstance(generator.target, ast.Name) and generator.target.id == like.id:
                        return any(ast.dump(inner) == tensor for inner in self.file.below(generator.iter))
        return False

    def _may_precede(self, anchor: ast.stmt, statement: ast.stmt, name: str) -> bool:
        known = self.flow.before.get(anchor, {}).get(name)
        set_already = known is not None and known.strided
        return set_already and self._own_lines(anchor) and self.covers(anchor, statement, name)

    def _own_lines(self, statement: ast.stmt) -> bool:
        """Whether a statement has lines of its own, so that another can be put ahead of it."""
        if not isinstance(statement, _SIMPLE):
            return False
        first, last = self.file.lines[statement.lineno - 1], self.file.lines[(statement.end_lineno or 1) - 1]
        ahead = first.encode()[: statement.col_offset].strip()
        behind = last.encode()[statement.end_col_offset or 0 :].strip()
        return not ahead and not behind.startswith(b";")

    def _bound_here(self, node: ast.Name) -> bool:
        """Whether the name belongs to the scope: not to one around it, nor to a comprehension."""
        bound = [b for b in self.file.bound(node.id, node) if isinstance(b, ast.AST)]
        homes = {self.file.function(b) if isinstance(b, ast.arg) else self.file.scope(b) for b in bound}
        return homes == {self.scope} and node.id not in self._declared

    @property
    def _declared(self) -> set[str]:
        """Names that some function takes from around it to set them anew."""
        found = [*self.file.nodes[ast.Global], *self.file.nodes[ast.Nonlocal]]
        return {name for node in found for name in getattr(node, "names", ())}

    def _block(self, above: ast.AST, statement: ast.AST) -> object:
        """The block of an `if` or `try` in which a statement stands, however deep."""
        while self.file.parents[statement] is not above:
            statement = self.file.parents[statement]
        return next(name for name in above._fields if _holds(getattr(above, name), statement))


def _holds(block: object, statement: ast.AST) -> bool:
    return isinstance(block, list) and any(step is statement for step in block)

"""Whether an arm cuts its tensors exactly as cu_seqlens says: expressions brought to one spelling, loops remembered."""

from __future__ import annotations

import ast

_SAME_VALUE = (
    "tolist",
    "cpu",
    "item",
    "int",
    "long",
    "detach",
    "to",
    "numpy",
)  # methods that leave the numbers as they are


class Bounds:
    """Names and loops of one arm, in terms of cu_seqlens."""

    def __init__(self, cu_seqlens: ast.expr) -> None:
        self.known: dict[str, str] = {}
        self.cu = self.text(cu_seqlens)
        self._ends: set[str] = set()  # loop variables that run over 1 .. len(cu) - 1
        self._starts: set[str] = set()  # over 0 .. len(cu) - 2
        self._pairs: set[tuple[str, str]] = set()  # loop variables that are the ends of a sequence themselves

    def assign(self, name: str, value: ast.expr) -> None:
        """A name is set."""
        self.known[name] = self.text(value)
        self._forget_loop(name)

    def forget(self, name: str) -> None:
        """A name is changed in a way that is not followed."""
        self.known[name] = "?"
        self._forget_loop(name)

    def _forget_loop(self, name: str) -> None:
        self._ends.discard(name)
        self._starts.discard(name)
        self._pairs = {pair for pair in self._pairs if name not in pair}

    def loop(self, target: ast.expr, over: ast.expr) -> None:
        """A loop or comprehension starts."""
        names = [n.id for n in ast.walk(target) if isinstance(n, ast.Name)]
        for name in names:
            self.known.pop(name, None)
            self._forget_loop(name)
        if not isinstance(over, ast.Call) or not isinstance(over.func, ast.Name):
            return
        if over.func.id == "enumerate" and len(over.args) == 1 and isinstance(target, ast.Tuple) and not over.keywords:
            self._counted(target, over.args[0])
            return
        arguments = [self.text(a) for a in over.args]
        count = f"len({self.cu})"
        if over.func.id == "range" and isinstance(target, ast.Name):
            if arguments == ["1", count]:
                self._ends.add(target.id)
            elif arguments in ([f"{count} - 1"], ["0", f"{count} - 1"]):
                self._starts.add(target.id)
        elif over.func.id == "zip" and len(names) == 2 and arguments == [f"{self.cu}[:-1]", f"{self.cu}[1:]"]:
            self._pairs.add((names[0], names[1]))

    def _counted(self, target: ast.Tuple, over: ast.expr) -> None:
        """`for i, x in enumerate(over)`: what x is, and that i counts the sequences."""
        if len(target.elts) != 2:
            return
        counter, item = target.elts
        ends = {f"{self.cu}[:-1]": "", f"{self.cu}[1:]": " + 1"}
        text = self.text(over)
        if isinstance(counter, ast.Name) and isinstance(item, ast.Name) and text in ends:
            self._starts.add(counter.id)
            self.known[item.id] = f"{self.cu}[{counter.id}{ends[text]}]"
        else:
            self.loop(item, over)

    def is_sequence(self, node: ast.Slice) -> bool:
        """Whether a slice is one sequence: from `cu[i]` to `cu[i + 1]`, for an `i` that runs over all of them."""
        if node.lower is None or node.upper is None:
            return False
        first, last = self.text(node.lower), self.text(node.upper)
        return (
            (first, last) in self._pairs
            or any((first, last) == (f"{self.cu}[{i} - 1]", f"{self.cu}[{i}]") for i in self._ends)
            or any((first, last) == (f"{self.cu}[{i}]", f"{self.cu}[{i} + 1]") for i in self._starts)
        )

    def is_lengths(self, node: ast.expr) -> bool:
        """Whether an expression is the list of all sequence lengths."""
        return self.text(node) == f"{self.cu}[1:] - {self.cu}[:-1]"

    def text(self, node: ast.expr | None) -> str:
        """An expression in one spelling: names written out, conversions left out, counts as `len(...)`."""
        if node is None:
            return ""
        if isinstance(node, ast.Name):
            return self.known.get(node.id, node.id)
        if isinstance(node, ast.Slice):
            return f"{self.text(node.lower)}:{self.text(node.upper)}" + (
                f":{self.text(node.step)}" if node.step else ""
            )
        if isinstance(node, ast.Subscript):
            counted = node.value
            if isinstance(counted, ast.Attribute) and counted.attr == "shape" and ast.unparse(node.slice) == "0":
                return f"len({self.text(counted.value)})"
            return f"{self.text(node.value)}[{self.text(node.slice)}]"
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
            return f"{self.text(node.left)} {'+' if isinstance(node.op, ast.Add) else '-'} {self.text(node.right)}"
        if isinstance(node, ast.Call):
            return self._call(node)
        return ast.unparse(node)

    def _call(self, node: ast.Call) -> str:
        function = node.func
        if isinstance(function, ast.Name) and len(node.args) == 1:
            inner = self.text(node.args[0])
            return inner if function.id in ("int", "list", "tuple") else f"{function.id}({inner})"
        if isinstance(function, ast.Attribute):
            if function.attr in _SAME_VALUE:
                return self.text(function.value)
            if function.attr == "numel" or (function.attr == "size" and [ast.unparse(a) for a in node.args] == ["0"]):
                return f"len({self.text(function.value)})"
            if function.attr == "diff":
                of = self.text(node.args[0] if node.args else function.value)
                return f"{of}[1:] - {of}[:-1]"
        return ast.unparse(node)

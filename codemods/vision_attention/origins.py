"""Where a tensor in a method comes from, and how many axes it has, by following names backwards."""

from __future__ import annotations

import ast

from codemods.parsed_file import loads, parameters
from codemods.project import AnyFunction
from codemods.vision_attention import layouts


def origins(method: AnyFunction, node: ast.expr) -> frozenset[str]:
    """The method's parameters (less `self`) that an expression depends on, through assignments of any branch."""
    inputs = {a.arg for a in parameters(method)} - {"self"}
    assigned: dict[str, set[str]] = {}
    for statement in ast.walk(method):
        if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and statement.value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for target in targets:
                for name in ast.walk(target):
                    if isinstance(name, ast.Name):
                        assigned.setdefault(name.id, set()).update(loads(statement.value))
        elif isinstance(statement, (ast.For, ast.comprehension)):
            for name in ast.walk(statement.target):
                if isinstance(name, ast.Name):
                    assigned.setdefault(name.id, set()).update(loads(statement.iter))
    seen: set[str] = set()
    queue = list(loads(node))
    while queue:
        name = queue.pop()
        if name not in seen:
            seen.add(name)
            queue += assigned.get(name, ())
    return frozenset(seen & inputs)


def is_four_dimensional(method: AnyFunction, node: ast.expr) -> bool:
    """Whether a tensor may have four axes: some assignment gives it that shape by view, reshape or rearrange."""
    if not isinstance(node, ast.Name):
        return _four(node)
    last: bool | None = None
    for statement in ast.walk(method):
        if isinstance(statement, ast.Assign) and statement.lineno < node.lineno:
            for target in statement.targets:
                names = [n.id for n in ast.walk(target) if isinstance(n, ast.Name)]
                if node.id in names:
                    value = statement.value
                    values = [value.elt] if isinstance(value, (ast.GeneratorExp, ast.ListComp)) else value.elts if isinstance(value, ast.Tuple) else [value]
                    last = bool(last) or any(_four(v) for v in values)
    return bool(last)


def _four(node: ast.expr) -> bool:
    """The outermost shape-giving operation of a chain has four axes."""
    while isinstance(node, ast.Call):
        name = layouts.operation(node)
        if name in ("view", "reshape"):
            arguments = node.args[0].elts if len(node.args) == 1 and isinstance(node.args[0], (ast.Tuple, ast.List)) else node.args
            return len(arguments) == 4
        if name == "rearrange":
            sides = layouts.pattern(node)
            return sides is not None and len(sides[1]) == 4
        if name in ("transpose", "permute", "contiguous") and isinstance(node.func, ast.Attribute):
            node = node.func.value
            continue
        return False
    return False

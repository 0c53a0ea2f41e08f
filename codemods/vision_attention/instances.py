"""Where an instance of a module class that is built in a constructor is kept, and how many of it there are."""

from __future__ import annotations

import ast

from codemods.parsed_file import FunctionNode, ParsedFile, dotted, self_attribute
from codemods.project import AnyFunction


def held_in(file: ParsedFile, call: ast.Call) -> str | None:
    """The attribute of self that the instance, or the list of modules it goes into, is kept in."""
    node: ast.AST = call
    for above in file.above(call):
        if isinstance(above, (ast.Assign, ast.AnnAssign)):
            targets = above.targets if isinstance(above, ast.Assign) else [above.target]
            attribute = next((name for t in targets if (name := self_attribute(t))), None)
            if attribute is not None:
                return attribute
            local = targets[0].id if len(targets) == 1 and isinstance(targets[0], ast.Name) and node is call else None
            return _kept_later(file, above, local) if local is not None else None
        if isinstance(above, ast.Call):
            name = dotted(above.func) or ""
            if name.rpartition(".")[2] == "append" and isinstance(above.func, ast.Attribute):
                return self_attribute(above.func.value)
            if name.rpartition(".")[2] not in ("ModuleList", "ModuleDict", "Sequential", "list", "tuple"):
                return None
        elif not isinstance(
            above, (ast.IfExp, ast.List, ast.Tuple, ast.ListComp, ast.GeneratorExp, ast.Dict, ast.DictComp)
        ):
            return None
        node = above
    return None


def modules_around(file: ParsedFile, call: ast.Call) -> str | None:
    """What tells an instance from its like in a prefix: `.{i}` in a comprehension with a counter, "" for one alone.

    None where several are built and nothing counts them.
    """
    for above in file.above(call):
        if isinstance(above, ast.stmt):
            return ""
        if isinstance(above, (ast.ListComp, ast.GeneratorExp)):
            generator = above.generators[0]
            target: ast.expr = generator.target
            counted = dotted(generator.iter.func) if isinstance(generator.iter, ast.Call) else None
            if counted == "enumerate" and isinstance(target, ast.Tuple):
                target = target.elts[0]
            elif counted != "range":
                return None
            return (
                f".{{{target.id}}}"
                if isinstance(target, ast.Name) and target.id != "_" and len(above.generators) == 1
                else None
            )
        if isinstance(above, (ast.List, ast.Tuple, ast.Dict, ast.DictComp)):
            return None
        if isinstance(above, ast.Call) and isinstance(above.func, ast.Attribute) and above.func.attr == "append":
            return None
    return ""


def _kept_later(file: ParsedFile, statement: ast.stmt, local: str) -> str | None:
    """The attribute in `attn = MultiHeadAttention(...)`, `self.attn = attn`."""
    function = file.function(statement)
    if function is None:
        return None
    reads = [
        n for n in file.below(function) if isinstance(n, ast.Name) and n.id == local and isinstance(n.ctx, ast.Load)
    ]
    above = file.parents[reads[0]] if len(reads) == 1 else None
    targets = above.targets if isinstance(above, ast.Assign) else []
    return next((name for t in targets if (name := self_attribute(t))), None)


def runs_in_forward(file: ParsedFile, owner: ast.ClassDef, function: AnyFunction) -> bool:
    """Whether a method is forward, or called from it."""
    names, reached = {"forward"}, {"forward", "__call__"}
    methods = {n.name: n for n in owner.body if isinstance(n, FunctionNode)}
    while names:
        method = methods.get(names.pop())
        called = (
            {name for n in file.below(method) if isinstance(n, ast.Call) and (name := self_attribute(n.func))}
            if method is not None
            else set()
        )
        names |= called - reached
        reached |= called
    return function.name in reached

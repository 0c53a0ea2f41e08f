"""Whether a size in a constructor is the one that the built attention works with: what it is then, and that it stays.

A constructor may compute a scale from a head size and pad that afterwards. A kernel's default follows the padded one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from codemods.parsed_file import ParsedFile, dotted
from codemods.project import AnyFunction, Class, Project
from codemods.vision_attention.arms import Refusal

_ARITHMETIC = ("divide", "int", "float", "max", "min")
_BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.Match, ast.With, ast.AsyncWith)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


def rooted(value: ast.expr) -> ast.expr | None:
    """`x` of an expression that is x**-0.5, however that is written."""
    if isinstance(value, ast.BinOp):
        power = _number(value.right)
        if isinstance(value.op, ast.Pow):
            return value.left if power == -0.5 else None
        if isinstance(value.op, ast.Div) and _number(value.left) == 1:
            below = value.right
            if isinstance(below, ast.BinOp) and isinstance(below.op, ast.Pow) and _number(below.right) == 0.5:
                return below.left
            if _called(below) == "sqrt" and isinstance(below, ast.Call) and len(below.args) == 1:
                return below.args[0]
    if _called(value) == "pow" and isinstance(value, ast.Call) and len(value.args) == 2:
        return value.args[0] if _number(value.args[1]) == -0.5 else None
    return None


def _called(node: ast.expr) -> str:
    return (dotted(node.func) or "").rpartition(".")[2] if isinstance(node, ast.Call) else ""


def _number(node: ast.expr) -> float | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _number(node.operand)
        return None if inner is None else -inner
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) else None


class Constructor:
    """What names and attributes hold at a place of a function: two that read alike there are equal.

    `reset`: attributes that super().__init__ may set.
    """

    def __init__(self, function: AnyFunction, reset: Iterable[str] = ()) -> None:
        self._set: dict[str, list[tuple[int, int, ast.stmt, ast.expr | None]]] = {}  # line, column, by, to; by name
        self.end = (function.end_lineno or 0) + 1, 0
        self._look(function.body, False, False, frozenset(reset))
        for found in self._set.values():
            found.sort(key=lambda one: one[:2])

    def _look(self, body: list[ast.stmt], branch: bool, loop: bool, reset: frozenset[str]) -> None:
        for step in body:
            inner = isinstance(step, _BRANCHES)
            pairs = dict(_pairs(step)) if not branch and not loop else {}
            if not inner:
                for name in {*_stored(step), *(reset if "super().__init__" in ast.unparse(step) else ())}:
                    # set on the last line: what the statement itself reads is what was there before it
                    place = (step.end_lineno or step.lineno, step.end_col_offset or 0)
                    self._set.setdefault(name, []).append((*place, step, None if loop else pairs.get(name)))
                    if loop:
                        self._set[name].append((-1, 0, step, None))  # another turn may have set it before
                continue
            heads = [c for c in ast.iter_child_nodes(step) if not isinstance(c, (ast.stmt, ast.ExceptHandler))]
            for name in (n for head in heads if not isinstance(head, ast.match_case) for n in _stored(head)):
                self._set.setdefault(name, []).append((step.lineno, step.col_offset, step, None))
            turns = loop or isinstance(step, _LOOPS)
            deeper = branch or not isinstance(step, (ast.With, ast.AsyncWith))
            for block in _blocks(step):
                self._look(block, deeper, turns, reset)

    def is_root(self, scale: ast.expr, at: tuple[int, int], size: ast.expr, then: tuple[int, int]) -> bool:
        """Whether what `scale` is at one place is what `size` is at another, to the power of -0.5."""
        for _ in range(8):
            below = rooted(scale)
            if below is not None:
                return self.text(below, at) == self.text(size, then)
            name = dotted(scale)
            last = self._last(name, at) if name is not None else None
            if last is None or last[3] is None:
                return False
            scale, at = last[3], _start(last[2])
        return False

    def always(self, name: str) -> bool:
        """Whether the constructor sets a name once, on every way through it."""
        found = self._set.get(name, [])
        return len(found) == 1 and found[0][3] is not None

    def text(self, node: ast.expr, at: tuple[int, int], deep: int = 0) -> str:
        """An expression in terms of what is known of it; each thing that is not known has a name of its own."""
        if isinstance(node, ast.Constant):
            return repr(node.value)
        if isinstance(node, ast.BinOp):
            sides = (self.text(side, at, deep) for side in (node.left, node.right))
            return f"({f' {type(node.op).__name__} '.join(sides)})"
        if isinstance(node, ast.UnaryOp):
            return f"{type(node.op).__name__} {self.text(node.operand, at, deep)}"
        if _called(node) in _ARITHMETIC and isinstance(node, ast.Call) and not node.keywords:
            return f"{_called(node)}({', '.join(self.text(a, at, deep) for a in node.args)})"
        name = dotted(node)
        if name is None:
            return f"<{node.lineno}:{node.col_offset}>"
        last = self._last(name, at)
        if last is None:
            head, _, rest = name.rpartition(".")
            return f"{self.text(node.value, at, deep)}.{rest}" if head and isinstance(node, ast.Attribute) else name
        line, column, step, value = last
        if value is None or deep > 8:
            return f"<{name} of {line}:{column}>"
        return self.text(value, _start(step), deep + 1)

    def _last(self, name: str, at: tuple[int, int]) -> tuple[int, int, ast.stmt, ast.expr | None] | None:
        return next((one for one in reversed(self._set.get(name, [])) if one[:2] <= at), None)


def _start(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def _blocks(step: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        yield getattr(step, name, [])
    for inner in [*getattr(step, "handlers", []), *getattr(step, "cases", [])]:
        yield inner.body


def _pairs(step: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """What a plain assignment sets, and to what."""
    if not isinstance(step, (ast.Assign, ast.AnnAssign)) or step.value is None:
        return
    value = step.value
    targets = step.targets if isinstance(step, ast.Assign) else [step.target]
    yield from ((name, value) for target in targets if (name := dotted(target)) is not None)


def _stored(node: ast.AST) -> set[str]:
    return {
        name
        for n in ast.walk(node)
        if isinstance(n, (ast.Name, ast.Attribute))
        and isinstance(n.ctx, (ast.Store, ast.Del))
        and (name := dotted(n)) is not None
    }


# -- that it stays -------------------------------------------------------------------------------------------------


def set_by_bases(project: Project, cls: Class) -> set[str]:
    """`self.<attribute>` that a constructor of a base sets."""
    constructors = [found for base in project.bases(cls)[1:] if (found := base.own("__init__")) is not None]
    return {name for function in constructors for name in _stored(function) if name.startswith("self.")}


def check_kept(project: Project, cls: Class, constructor: AnyFunction, attributes: Iterable[str]) -> None:
    """Raises Refusal where what the attention is built with may be set again afterwards, but not in the attention."""
    for attribute in attributes:
        for file, node, where in setters(project, cls, constructor, attribute):
            raise Refusal(
                f"self.{attribute} is also set {where}, and MMEncoderAttention keeps what it is built with",
                node if file is cls.file else cls.node,
            )


def setters(
    project: Project, cls: Class, constructor: AnyFunction, attribute: str
) -> Iterator[tuple[ParsedFile, ast.AST, str]]:
    """Who sets an attribute of a class beside its constructor, and those of its bases before that goes on."""
    members = [cls, *project.subclasses.get(cls.qualified, ())]
    kin = {id(base.node) for member in members for base in project.bases(member)}
    early = {id(constructor), *(id(base.own("__init__")) for base in project.bases(cls)[1:])}
    for file in project.files:
        for node, on in _stores(file, attribute):
            owner, function = file.class_of(node), file.function(node)
            if dotted(on) == "self":
                if owner is None or id(owner) not in kin or function is None:
                    continue
                if id(function) in early and isinstance(node, ast.Attribute):
                    continue  # what setattr does there is not followed
                yield file, node, f"in {owner.name}.{function.name} ({file.place(node)})"
            elif _may_be(project, file, on, kin) and file in _in_reach(project, members):
                yield file, node, f"as {ast.unparse(on)}.{attribute} ({file.place(node)})"


def _in_reach(project: Project, members: list[Class]) -> list[ParsedFile]:
    """Files that an instance may get to: that import its class by way of others, and those that these import."""
    holders = [member.file for member in members]
    imported = {file.module: set(_imported(project, file)) for file in project.files}

    def imports_one(file: ParsedFile) -> bool:
        return any(holder.module in imported[file.module] for holder in holders)

    while more := [file for file in project.files if file not in holders and imports_one(file)]:
        holders += more
    taken = {name for holder in holders for name in imported[holder.module]}
    return [file for file in project.files if file in holders or file.module in taken]


def _imported(project: Project, file: ParsedFile) -> Iterator[str]:
    for one in file.imports:
        yield from (one.module, one.qualified, project.follow(one.qualified).rpartition(".")[0])


def _stores(file: ParsedFile, attribute: str) -> Iterator[tuple[ast.AST, ast.expr]]:
    for node in file.attributes.get(attribute, ()):
        if not isinstance(node.ctx, ast.Load):
            yield node, node.value
    for call in file.calls.get("setattr", ()):
        if len(call.args) == 3 and isinstance(call.args[1], ast.Constant) and call.args[1].value == attribute:
            yield call, call.args[0]


def _may_be(project: Project, file: ParsedFile, node: ast.expr, kin: set[int]) -> bool:
    """Whether an object may be an instance of one of these classes. A configuration, by its name, is none."""
    found = file.bound(node.id, node) if isinstance(node, ast.Name) else []
    hints = [b.annotation for b in found if isinstance(b, ast.arg) and b.annotation is not None]
    names = [(dotted(said) or "").rpartition(".")[2].lower() for said in (node, *hints)]
    if any(word in name for name in names for word in ("config", "cfg", "args")):
        return False
    kinds = [project.class_named(file, hint) for hint in hints]
    known = [kind for kind in kinds if kind is not None] or project.instances(file, node)
    return not known or any(id(kind.node) in kin for kind in known)

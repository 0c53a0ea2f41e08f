"""What is found out about an attention that a class holds, and the uses of it other than calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from codemods.parsed_file import ParsedFile, dotted, self_attribute
from codemods.project import Class, Project

KEEP_SDPA = (
    "MMEncoderAttention gives q's length to k and v on flash and Triton: keep torch SDPA here, or prove that the "
    "lengths are equal."
)
SHOW = "Show it in the code (one projection that is split, or projections of one tensor), or port this class by hand."


@dataclass(frozen=True, eq=False)
class Problem:
    """Why a class stays as it is, and where."""

    file: ParsedFile
    node: ast.AST
    message: str
    remedy: str


@dataclass
class Held:
    """What was found about an attention: its calls (with whether q surely has three axes), and what is against it."""

    calls: dict[ast.Call, tuple[ParsedFile, bool]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def is_read(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)


def follow_reference(
    held: Held, file: ParsedFile, node: ast.AST, cls: Class, attribute: str, lost: frozenset[str]
) -> None:
    """Whether a read of `self.<attribute>` is a call that was judged, or one that changes nothing."""
    known = {*held.calls, *(p.node for p in held.problems)}
    above = file.parents[node]
    while isinstance(above, ast.Subscript) and above.value is node:
        node, above = above, file.parents[above]
    if isinstance(above, ast.Attribute):
        if above.attr in lost:
            message = f"{cls.node.name} reads {above.attr} of its attention, which MMEncoderAttention has not"
            held.problems.append(
                Problem(file, above, message, "Ask MMEncoderAttention's own attributes instead, or drop the read.")
            )
            return
        call = file.parents[above]
        if above.attr not in ("forward", "__call__") or (
            isinstance(call, ast.Call) and call.func is above and call in known
        ):
            return
    elif isinstance(above, ast.Call) and above.func is node and above in known:
        return
    elif isinstance(above, (ast.Compare, ast.BoolOp)) or (
        isinstance(above, (ast.If, ast.IfExp, ast.Assert)) and above.test is node
    ):
        return
    elif isinstance(above, ast.UnaryOp) and isinstance(above.op, ast.Not):
        return
    elif isinstance(above, ast.Call) and dotted(above.func) in ("isinstance", "len"):
        return
    else:
        names = _bound_to(file, node, above)
        function = file.function(node)
        if names and function is not None:
            reads = [
                n
                for n in file.below(function)
                if isinstance(n, ast.Name) and n.id in names and isinstance(n.ctx, ast.Load)
            ]
            if all(_is_known_call(file, read, known) for read in reads):
                return
    held.problems.append(
        Problem(file, node, f"a use of self.{attribute} in {cls.node.name} could not be followed", SHOW)
    )


def _bound_to(file: ParsedFile, node: ast.AST, above: ast.AST) -> set[str]:
    """Local names for the attention: `attn = self.attn`, `for attn in self.attns`."""
    if isinstance(above, ast.Assign) and above.value is node:
        return (
            {t.id for t in above.targets if isinstance(t, ast.Name)}
            if all(isinstance(t, ast.Name) for t in above.targets)
            else set()
        )
    place: int | None = None
    while isinstance(above, ast.Call) and dotted(above.func) in ("enumerate", "zip", "reversed", "list"):
        if dotted(above.func) in ("enumerate", "zip"):
            place = 1 if dotted(above.func) == "enumerate" else above.args.index(node)  # type: ignore[arg-type]
        node, above = above, file.parents[above]
    target = above.target if isinstance(above, (ast.For, ast.comprehension)) else None
    if place is not None and isinstance(target, ast.Tuple):
        target = target.elts[place] if place < len(target.elts) else None
    return {target.id} if isinstance(target, ast.Name) else set()


def _is_known_call(file: ParsedFile, node: ast.AST, known: set[ast.AST]) -> bool:
    """A call that was judged; of the other names that a loop binds, any use but a call is no matter."""
    above = file.parents[node]
    if isinstance(above, ast.Attribute) and above.attr in ("forward", "__call__"):
        node, above = above, file.parents[above]
    return (isinstance(above, ast.Call) and above.func is node and above in known) or isinstance(above, ast.Attribute)


def from_outside(project: Project, family: Sequence[Class], attribute: str) -> Iterator[tuple[ParsedFile, ast.AST]]:
    """Calls such as `layer.attn(q, k, v)` where `layer` is an instance of the class."""
    names = {member.qualified for member in family}
    for file in project.files:
        for held in file.attributes.get(attribute, ()):
            function, node = held, file.parents[held]
            if isinstance(node, ast.Attribute) and node.attr in ("forward", "__call__"):
                function, node = node, file.parents[node]
            if isinstance(node, ast.Call) and node.func is function and self_attribute(held) is None:
                if any(c.qualified in names for c in project.instances(file, held.value)):
                    yield file, node

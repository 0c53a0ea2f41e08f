"""What a call of a rotary helper computes, in terms of vLLM's ApplyRotaryEmb.

The helpers of vLLM's vision models, and of the plugins that copied them, differ in names, in layout and in how they
choose a kernel, but all compute one thing: one tensor, or a query and a key, turned by given angles, in float32 or not.
What is not understood is refused with the node at which that became clear; nothing is guessed from a name.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from codemods.parsed_file import ParsedFile
from codemods.project import Function, Project
from codemods.vision_attention.arms import Refusal
from codemods.vision_attention.rotary_symbols import Machine, Rotation, Term, Value, stripped


@dataclass(frozen=True)
class Turn:
    """One rotated tensor of a call, in the caller's words. `cos` and `sin` are source text."""

    x: ast.expr
    cos: str
    sin: str


@dataclass(frozen=True)
class Rotary:
    """A call of a rotary helper in terms of ApplyRotaryEmb: one tensor, or a query and a key."""

    turns: tuple[Turn, ...]
    fp32: bool  # the helper upcasts, and casts back
    neox: bool
    tail: bool
    four_axes: bool
    plain: bool  # cos and sin are arguments of the call as they are


def describe(project: Project, file: ParsedFile, call: ast.Call, reached: Function | None) -> Rotary:
    """What a call of a helper (or of one of vLLM's own rotary functions) computes.

    Raises Refusal with the first check that fails.
    """
    given: list[ast.expr] = []

    def symbol(node: ast.expr) -> Value:
        if isinstance(node, ast.Constant):
            return Term("const", (node.value,))
        given.append(node)
        return Term("arg", (len(given) - 1,))

    if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
        raise Refusal("its arguments are passed on as a whole", call)
    positional = [symbol(a) for a in call.args]
    named = {k.arg: symbol(k.value) for k in call.keywords if k.arg is not None}
    machine = Machine(project)
    if reached is not None:
        value = machine.run(reached, positional, named, call)
    else:
        value = machine.apply(machine.named(project.vllm(file, call.func) or ""), positional, named, call)
    values = value.parts if isinstance(value, Term) and value.op == "tuple" else (value,)
    if len(values) > 2 or not all(isinstance(v, Rotation) for v in values):
        raise Refusal("it gives something else than one rotated tensor, or a rotated query and key", call)
    return _settled([v for v in values if isinstance(v, Rotation)], given, call)


def _settled(rotations: Sequence[Rotation], given: Sequence[ast.expr], call: ast.Call) -> Rotary:
    turns = []
    modes = set()
    for rotation in rotations:
        x = rotation.x
        fp32 = x.op == "float"
        base = x.parts[0] if fp32 else x
        if base.op != "arg":
            raise Refusal("what it rotates is not an argument of its own", call)
        if rotation.back not in (base, Term("dtype", (base,)), None if not fp32 else base):
            raise Refusal("it does not give the result the dtype of what it rotates, as ApplyRotaryEmb does", call)
        if not fp32 and not rotation.own:
            raise Refusal("its precision depends on the dtype of cos and sin, which is not known here", call)
        turns.append(
            Turn(given[base.parts[0]], _angle(rotation.cos, given, fp32, call), _angle(rotation.sin, given, fp32, call))
        )
        modes.add((fp32, rotation.neox))
    if len(modes) != 1:
        raise Refusal("it rotates query and key in different ways", call)
    fp32, neox = modes.pop()
    return Rotary(
        tuple(turns),
        fp32,
        neox,
        tail=any(r.tail for r in rotations),
        four_axes=any(r.four_axes for r in rotations),
        plain=all(stripped(t).op == "arg" for r in rotations for t in (r.cos, r.sin)),
    )


def _angle(angle: Term, given: Sequence[ast.expr], fp32: bool, call: ast.Call) -> str:
    """An angle as source text in the caller's names; casts that ApplyRotaryEmb makes itself are left out."""
    if angle.op == "arg":
        node: ast.expr = given[angle.parts[0]]
        text = ast.unparse(node)
        return text if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)) else f"({text})"
    if angle.op == "float" and fp32:
        return _angle(angle.parts[0], given, fp32, call)
    if angle.op == "as" and not fp32 and angle.parts[1].op in ("arg", "dtype"):
        return _angle(angle.parts[0], given, fp32, call)
    if angle.op in ("cos", "sin"):
        return f"{_angle(angle.parts[0], given, fp32, call)}.{angle.op}()"
    if angle.op == "first":
        return f"{_angle(angle.parts[0], given, fp32, call)}.chunk(2, dim=-1)[0].contiguous()"
    raise Refusal("how it comes by cos and sin is not understood", call)

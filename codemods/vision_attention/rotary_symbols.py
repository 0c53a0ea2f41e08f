"""Runs rotary helpers on symbols instead of tensors: what a function makes of its arguments, however it is written.

A value is a term (an argument, or an operation on terms) or a rotation; every operation that is not known is refused.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

from codemods.parsed_file import ParsedFile, dotted, parameters
from codemods.project import VLLM_MODELS, Function, Project
from codemods.vision_attention.arms import Refusal

COMMON = "vllm.model_executor.layers.rotary_embedding.common"
OP = f"{COMMON}.ApplyRotaryEmb"
TORCH = f"{COMMON}.apply_rotary_emb_torch"
BY_PLATFORM = f"{COMMON}.apply_rotary_emb_dispatch"
CHOOSER = f"{COMMON}.dispatch_rotary_emb_function"
QWEN = f"{VLLM_MODELS}.qwen2_vl.apply_rotary_pos_emb_vision"
KERNELS = (
    "vllm.vllm_flash_attn.layers.rotary.apply_rotary_emb",
    "flash_attn.layers.rotary.apply_rotary_emb",
    "flash_attn.ops.triton.rotary.apply_rotary",
)
KNOWN = frozenset({OP, TORCH, BY_PLATFORM, CHOOSER, QWEN, *KERNELS})

_DEPTH = 6  # helpers that call helpers; more is not a helper any more


class Term(NamedTuple):
    """A symbolic value: an argument of the call, or an operation on such."""

    op: str
    parts: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Rotation:
    """`x` turned by angles. `own`: the angles take x's dtype. `tail`: heads wider than the angles keep their rest."""

    x: Term
    cos: Term
    sin: Term
    neox: bool = True
    own: bool = True
    tail: bool = False
    four_axes: bool = False  # right for x of four axes only
    back: Term | None = None  # whose dtype the result is cast to


Value: TypeAlias = Term | Rotation


def stripped(angle: Term) -> Term:
    while angle.op in ("float", "as"):
        angle = angle.parts[0]
    return angle


class Machine:
    """Runs functions on symbols. Every operation that is not known raises Refusal."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.depth = 0

    # -- calls ---------------------------------------------------------------------------------------------------------

    def named(self, name: str) -> Term:
        """What a dotted name stands for, if it may be called."""
        if name in KERNELS or name == f"{COMMON}.apply_rotary_emb":
            return Term("kernel")
        if name in (OP, TORCH, BY_PLATFORM, CHOOSER, QWEN):
            return Term("vllm", (name,)) if name not in (TORCH, BY_PLATFORM) else Term("vllm", (TORCH,))
        home = self.project.by_module.get(name.rpartition(".")[0])
        if home is not None:
            node = home.defined(name.rpartition(".")[2])
            if isinstance(node, ast.FunctionDef):
                return Term("function", (Function(home, node),))
        return Term("name", (name,))

    def run(self, function: Function, positional: Sequence[Value], named: Mapping[str, Value], at: ast.AST) -> Value:
        node = function.node
        names = [a.arg for a in parameters(node)][function.skip :]
        if self.depth > _DEPTH or node.args.vararg or node.args.kwarg or len(positional) > len(names):
            raise Refusal(f"{node.name} is more than a rotary helper", at)
        frame: dict[str, Value] = {**dict(zip(names, positional)), **named}
        own = [*node.args.posonlyargs, *node.args.args]
        defaults: list[tuple[ast.arg, ast.expr | None]] = list(zip(reversed(own), reversed(node.args.defaults)))
        defaults += list(zip(node.args.kwonlyargs, node.args.kw_defaults))
        for argument, default in defaults:
            if isinstance(default, ast.Constant):
                frame.setdefault(argument.arg, Term("const", (default.value,)))
        if set(names) - set(frame):
            raise Refusal(f"{node.name} is not given {sorted(set(names) - set(frame))[0]}", at)
        self.depth += 1
        result = _Frame(self, function.file, frame).block(node.body)
        self.depth -= 1
        if result is None:
            raise Refusal(f"{node.name} returns nothing", node)
        return result

    def apply(self, what: Value, positional: Sequence[Value], named: Mapping[str, Value], at: ast.AST) -> Value:
        """The value of calling something."""
        op, parts = (what.op, what.parts) if isinstance(what, Term) else ("", ())
        if op == "function":
            return self.run(parts[0], positional, named, at)
        if op == "bound":
            return self.apply(parts[0], positional, {**parts[1], **named}, at)
        if op == "either":
            return merged(self.apply(parts[0], positional, named, at), self.apply(parts[1], positional, named, at), at)
        if op == "op":
            x, cos, sin = self._given(("x", "cos", "sin"), positional, named, at)
            return _cast_back(Rotation(Term("float", (x,)) if parts[1] else x, cos, sin, parts[0]), x, bool(parts[1]))
        if op == "kernel":
            x, cos, sin, interleaved = self._given(
                ("x", "cos", "sin", "interleaved"), positional, named, at, Term("const", (False,))
            )
            return Rotation(x, cos, sin, neox=not self._flag(interleaved, at))
        if op == "vllm":
            return self._vllm(parts[0], positional, named, at)
        if op == "name" and parts[0] == "functools.partial" and positional:
            return Term("bound", (positional[0], dict(named)))
        raise Refusal(f"what {ast.unparse(at.func) if isinstance(at, ast.Call) else 'is called'} does is not known", at)

    def _vllm(self, name: str, positional: Sequence[Value], named: Mapping[str, Value], at: ast.AST) -> Value:
        if name == TORCH:
            x, cos, sin, neox = self._given(("x", "cos", "sin", "is_neox_style"), positional, named, at)
            return Rotation(x, cos, sin, neox=self._flag(neox, at))
        if name == CHOOSER:
            default = named.get("default", positional[0] if positional else Term("vllm", (TORCH,)))
            return Term("either", (Term("kernel"), default))
        if name == OP:
            no = Term("const", (False,))
            _, neox, fp32 = self._given(
                ("enforce_enable", "is_neox_style", "enable_fp32_compute"),
                positional,
                {"enforce_enable": no, "is_neox_style": Term("const", (True,)), "enable_fp32_compute": no, **named},
                at,
            )
            return Term("op", (self._flag(neox, at), self._flag(fp32, at)))
        # qwen2_vl's helper: up to 0.11 it took the angles themselves and upcast, in 0.12 cos and sin
        if len(positional) + len(named) == 2:
            t, freqs = self._given(("t", "freqs"), positional, named, at)
            return Rotation(Term("float", (t,)), Term("cos", (freqs,)), Term("sin", (freqs,)), back=t)
        t, cos, sin = self._given(("t", "cos", "sin"), positional, named, at)
        return Rotation(t, cos, sin)

    @staticmethod
    def _given(
        names: Sequence[str],
        positional: Sequence[Value],
        named: Mapping[str, Value],
        at: ast.AST,
        last: Term | None = None,
    ) -> list[Term]:
        found: dict[str, Value] = {
            **({names[-1]: last} if last is not None else {}),
            **dict(zip(names, positional)),
            **named,
        }
        if (
            set(found) != set(names)
            or len(positional) > len(names)
            or not all(isinstance(v, Term) for v in found.values())
        ):
            raise Refusal(f"a rotary function is not called with {', '.join(names)}", at)
        return [v for v in (found[name] for name in names) if isinstance(v, Term)]

    @staticmethod
    def _flag(value: Term, at: ast.AST) -> bool:
        if value.op != "const" or not isinstance(value.parts[0], bool):
            raise Refusal("whether halves or neighbours are rotated (neox style, interleaved) is not a constant", at)
        return value.parts[0]


class _Frame:
    """One function on its way: what its names hold."""

    def __init__(self, machine: Machine, file: ParsedFile, names: dict[str, Value]) -> None:
        self.machine = machine
        self.file = file
        self.names = names

    # -- statements ----------------------------------------------------------------------------------------------------

    def block(self, body: Sequence[ast.stmt]) -> Value | None:
        """The value returned; both ways of an `if` that is not decided here must return the same. None: no return."""
        for index, step in enumerate(body):
            rest = body[index + 1 :]
            if isinstance(step, (ast.Assert, ast.Pass)) or (
                isinstance(step, ast.Expr) and isinstance(step.value, ast.Constant)
            ):
                continue
            if isinstance(step, ast.Return) and step.value is not None:
                return self.value(step.value)
            if isinstance(step, ast.ImportFrom):
                for alias in step.names:
                    self.names[alias.asname or alias.name] = self.machine.named(
                        f"{self.file.absolute(step)}.{alias.name}"
                    )
            elif isinstance(step, ast.Assign) and len(step.targets) == 1:
                self._bind(step.targets[0], self.value(step.value))
            elif isinstance(step, ast.AnnAssign) and step.value is not None:
                self._bind(step.target, self.value(step.value))
            elif isinstance(step, ast.If):
                return self._choice(step, rest)
            else:
                raise Refusal("it does more than rotate", step)
        return None

    def _choice(self, step: ast.If, rest: Sequence[ast.stmt]) -> Value | None:
        decided = self.truth(step.test)
        ways = [body for body, taken in ((step.body, True), (step.orelse, False)) if decided in (taken, None)]
        ways = [way for way in ways if not any(isinstance(s, ast.Raise) for s in way)]
        results = [_Frame(self.machine, self.file, dict(self.names)).block([*way, *rest]) for way in ways]
        if not results or any(r is None for r in results):
            return None
        result = results[0]
        for other in results[1:]:
            assert result is not None and other is not None
            result = merged(result, other, step)
        return result

    def _bind(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = value
        elif (
            isinstance(target, ast.Tuple)
            and isinstance(value, Term)
            and value.op == "tuple"
            and len(value.parts) == len(target.elts)
        ):
            for inner, part in zip(target.elts, value.parts):
                self._bind(inner, part)
        else:
            raise Refusal("it assigns something that is not understood", target)

    def truth(self, test: ast.expr) -> bool | None:
        """What a test comes to; None where that is not decided by constants."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self.truth(test.operand)
            return None if inner is None else not inner
        if isinstance(test, ast.BoolOp):
            settles = isinstance(test.op, ast.Or)
            parts = [self.truth(v) for v in test.values]
            return settles if settles in parts else None if None in parts else not settles
        value = self.names.get(test.id) if isinstance(test, ast.Name) else None
        return bool(value.parts[0]) if isinstance(value, Term) and value.op == "const" else None

    # -- expressions ---------------------------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> Value:
        if isinstance(node, ast.Constant):
            return Term("const", (node.value,))
        if isinstance(node, (ast.Tuple, ast.List)):
            return Term("tuple", tuple(self.value(e) for e in node.elts))
        if isinstance(node, ast.IfExp):
            decided = self.truth(node.test)
            if decided is None:
                return merged(self.value(node.body), self.value(node.orelse), node)
            return self.value(node.body if decided else node.orelse)
        if isinstance(node, ast.Name) and node.id in self.names:
            return self.names[node.id]
        root = dotted(node)
        if root is not None and root.partition(".")[0] not in self.names:
            name = self.machine.project.vllm(self.file, node) or self.machine.project.meaning(self.file, node)
            if name is not None:
                return self.machine.named(name)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Subscript):
            return self._subscript(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return Term("neg", (self.term(node.operand),))
        if isinstance(node, ast.BinOp):
            return self._arithmetic(node)
        raise Refusal(f"{ast.unparse(node)} is not a rotary step that is known", node)

    def term(self, node: ast.expr) -> Term:
        value = self.value(node)
        if isinstance(value, Rotation):
            raise Refusal("it works on after rotating", node)
        return value

    def _attribute(self, node: ast.Attribute) -> Value:
        value = self.value(node.value)
        if isinstance(value, Term):
            if node.attr in ("shape", "dtype"):
                return Term(node.attr, (value,))
            if value.op == "op" and node.attr.startswith("forward"):
                return value  # the same rotation, on a platform of one's choice
        raise Refusal(f"{ast.unparse(node)} is not a rotary step that is known", node)

    def _arithmetic(self, node: ast.BinOp) -> Value:
        left, right = self.term(node.left), self.term(node.right)
        two = Term("const", (2,))
        if isinstance(node.op, ast.FloorDiv) and left.op == "width" and right == two:
            return Term("half width", left.parts)
        if isinstance(node.op, ast.Mult):
            for a, b in ((left, right), (right, left)):
                if a.op == "width" and b == two:
                    return Term("double width", a.parts)
            return Term("mul", (left, right))
        if isinstance(node.op, ast.Add):
            return _turned(left, right) or _turned(right, left) or Term("add", (left, right))
        if isinstance(node.op, ast.Sub):
            return Term("sub", (left, right))
        raise Refusal(f"{ast.unparse(node)} is not a rotary step that is known", node)

    def _subscript(self, node: ast.Subscript) -> Value:
        value = self.term(node.value)
        index = node.slice
        if isinstance(index, (ast.Constant, ast.UnaryOp)):
            at = ast.literal_eval(index)
            if value.op == "shape" and at == -1:
                return Term("width", value.parts)
            if value.op == "tuple" and isinstance(at, int) and -len(value.parts) <= at < len(value.parts):
                part: Value = value.parts[at]
                return part
        elif isinstance(index, ast.Tuple):
            last = index.elts[-1]
            shape = [ast.unparse(e) for e in index.elts]
            if shape in (["...", "None", ":"], [":", "None", ":"]):
                return Term("heads", (value,))
            if shape == ["None", ":", "None", ":"]:
                return Term("lead", (Term("heads", (value,)),))
            if shape[:-1] == ["..."] and isinstance(last, ast.Slice):
                if last.step is not None:
                    raise Refusal("it rotates neighbouring elements (interleaved), not halves", node)
                return self._part(value, last, node)
        raise Refusal(f"{ast.unparse(node)} is not a rotary step that is known", node)

    def _part(self, value: Term, cut: ast.Slice, node: ast.AST) -> Term:
        edge = cut.upper or cut.lower
        if edge is None or (cut.upper is not None and cut.lower is not None):
            raise Refusal("which part of a head it takes is not understood", node)
        where = self.term(edge)
        if where == Term("half width", (value,)):
            return Term("first" if cut.upper is not None else "second", (value,))
        if where.op == "double width":
            return Term("covered" if cut.upper is not None else "rest", (value, where.parts[0]))
        raise Refusal("it rotates a part of each head whose width is not that of cos and sin", node)

    def _call(self, node: ast.Call) -> Value:
        function = node.func
        if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
            raise Refusal("it passes arguments on as a whole", node)
        root = (dotted(function) or "").partition(".")[0]
        if isinstance(function, ast.Attribute) and (root in self.names or not root):
            value = self.value(function.value)
            if not (isinstance(value, Term) and value.op == "op"):
                return self._method(value, function.attr, node)
        what = self.value(function)
        if isinstance(what, Term) and what.op == "name" and what.parts[0] != "functools.partial":
            return self._library(what.parts[0], node)
        positional = [self.value(a) for a in node.args]
        return self.machine.apply(
            what, positional, {k.arg: self.value(k.value) for k in node.keywords if k.arg is not None}, node
        )

    def _method(self, value: Value, name: str, node: ast.Call) -> Value:
        arguments = [*node.args, *(k.value for k in node.keywords)]
        if name == "contiguous" and not arguments:
            return value
        if name in ("type_as", "to") and len(arguments) == 1:
            if ast.unparse(arguments[0]) in ("torch.float32", "torch.float") and isinstance(value, Term):
                return Term("float", (value,))
            return _cast_back(value, self.term(arguments[0]), True)
        if isinstance(value, Rotation):
            raise Refusal("it works on after rotating", node)
        if name == "float" and not arguments:
            return value if value.op == "float" else Term("float", (value,))
        return self._tensor(name, value, arguments, node)

    def _library(self, name: str, node: ast.Call) -> Value:
        """Functions of torch and einops."""
        arguments = [*node.args, *(k.value for k in node.keywords)]
        package, _, function = name.rpartition(".")
        if package == "torch" and function in ("cat", "concat", "chunk", "cos", "sin") and arguments:
            if function in ("cat", "concat"):
                return self._joined(self.value(arguments[0]), arguments[1:], node)
            return self._tensor(function, self.term(arguments[0]), arguments[1:], node)
        if name == "einops.repeat" and len(arguments) == 2 and not node.keywords:
            pattern = self.value(arguments[1])
            if pattern == Term("const", ("... d -> ... 1 (2 d)",)):
                return Term("twice", (Term("heads", (self.term(arguments[0]),)),))
        raise Refusal(f"{ast.unparse(node.func)} is not a rotary step that is known", node)

    def _tensor(self, name: str, value: Term, arguments: Sequence[ast.expr], node: ast.Call) -> Value:
        numbers = [_number(a) for a in arguments]
        if name in ("cos", "sin") and not arguments:
            return Term(name, (value,))
        if name == "chunk" and numbers == [2, -1]:
            return Term("tuple", (Term("first", (value,)), Term("second", (value,))))
        if name == "size" and numbers == [-1]:
            return Term("width", (value,))
        if name == "unsqueeze" and numbers in ([-2], [0], [1]):
            return Term({-2: "heads", 0: "lead", 1: "axis 1"}[numbers[0] or 0], (value,))
        if name == "repeat" and numbers == [1, 1, 2] and value.op in ("axis 1", "heads"):
            # three counts fit no more than three axes, so axis 1 is the one before the last
            return Term("twice", (Term("heads", value.parts),))
        raise Refusal(f".{name}({', '.join(map(ast.unparse, arguments))}) is not a rotary step that is known", node)

    def _joined(self, items: Value, rest: Sequence[ast.expr], node: ast.Call) -> Value:
        """torch.cat along the last axis."""
        if not (
            isinstance(items, Term)
            and items.op == "tuple"
            and len(items.parts) == 2
            and [_number(r) for r in rest] == [-1]
        ):
            raise Refusal("what it joins is not two parts of a head", node)
        a, b = items.parts
        if isinstance(a, Rotation):
            if (
                isinstance(b, Term)
                and b.op == "rest"
                and a.x == Term("covered", b.parts)
                and stripped(b.parts[1]) == stripped(a.cos)
            ):
                return replace(a, x=b.parts[0], tail=True)
        elif isinstance(b, Term):
            if a == b:
                return Term("twice", (a,))
            if a.op == "neg" and b.op == "first" and a.parts[0] == Term("second", b.parts):
                return Term("swapped", b.parts)
            if a.op == "sub" and b.op == "add":
                found = _by_halves(a.parts, b.parts) or _by_halves(a.parts, b.parts[::-1])
                if found is not None:
                    return found
        raise Refusal("what it joins is not the rotated halves of a head", node)


# -- the two ways to write a rotation ----------------------------------------------------------------------------------


class _Angle(NamedTuple):
    core: Term
    own: bool  # cast to the dtype of x
    four_axes: bool


def _turned(left: Term, right: Term) -> Rotation | None:
    """`x * cos + swapped(x) * sin`, with cos and sin as wide as a head."""
    for x, cos in _factors(left):
        for swapped, sin in _factors(right):
            if swapped == Term("swapped", (x,)):
                a, b = _opened(cos, ("twice", "heads"), x), _opened(sin, ("twice", "heads"), x)
                if a is not None and b is not None:
                    return Rotation(x, a.core, b.core, own=a.own and b.own, four_axes=a.four_axes or b.four_axes)
    return None


def _by_halves(minus: tuple[Term, ...], plus: tuple[Term, ...]) -> Rotation | None:
    """`x1 * cos - x2 * sin` and `x2 * cos + x1 * sin`, with cos and sin as wide as half a head."""
    for first, cos in _factors(minus[0]):
        for second, sin in _factors(minus[1]):
            if (
                first.op == "first"
                and second == Term("second", first.parts)
                and (second, cos) in _factors(plus[0])
                and (first, sin) in _factors(plus[1])
            ):
                x = first.parts[0]
                a, b = _opened(cos, ("heads",), x), _opened(sin, ("heads",), x)
                if a is not None and b is not None:
                    return Rotation(x, a.core, b.core, own=a.own and b.own, four_axes=a.four_axes or b.four_axes)
    return None


def _factors(term: Term) -> list[tuple[Term, Term]]:
    return [term.parts, term.parts[::-1]] if term.op == "mul" else []


def _opened(angle: Term, axes: tuple[str, ...], x: Term) -> _Angle | None:
    """An angle without the axes that make it fit a head; None if they are not exactly these."""
    wanted = set(axes)
    own = four = False
    while wanted or angle.op in ("lead", "as"):
        if angle.op in wanted:
            wanted.remove(angle.op)
        elif angle.op == "lead":
            four = True
        elif angle.op == "as" and angle.parts[1] in (x, Term("dtype", (x,))):
            own = True
        elif angle.op != "float":
            return None
        angle = angle.parts[0]
    return _Angle(angle, own, four)


def _cast_back(value: Value, like: Term, cast: bool) -> Value:
    if isinstance(value, Rotation):
        return replace(value, back=like) if cast else value
    return Term("as", (value, like))


def merged(a: Value, b: Value, at: ast.AST) -> Value:
    """One value for two ways to compute it.

    Raises Refusal if they are not the same rotation.
    """
    if a == b:
        return a
    if isinstance(a, Rotation) and isinstance(b, Rotation):
        together = {"own": a.own and b.own, "tail": a.tail or b.tail, "four_axes": a.four_axes or b.four_axes}
        if replace(a, **together) == replace(b, **together):  # type: ignore[arg-type]
            return replace(a, **together)  # type: ignore[arg-type]
    elif isinstance(a, Term) and isinstance(b, Term):
        if a.op == b.op == "tuple" and len(a.parts) == len(b.parts):
            return Term("tuple", tuple(merged(x, y, at) for x, y in zip(a.parts, b.parts)))
        if a.op in _CALLABLE and b.op in _CALLABLE:
            return Term("either", (a, b))
    raise Refusal("its branches compute different things", at)


_CALLABLE = ("kernel", "vllm", "function", "bound", "either", "op")


def _number(node: ast.expr) -> int | None:
    try:
        found = ast.literal_eval(node)
    except ValueError:
        return None
    return found if isinstance(found, int) else None

"""The arms beside the flash arm: each must provably be the same attention of the same tensors.

An arm is followed symbolically. Tensors carry their role (q, k, v or the kernel's result) and, as far as known, their
axes; only views, slices, splits and concatenations are allowed on the way. Anything else is a Refusal.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from codemods.parsed_file import dotted, same, self_attribute
from codemods.vision_attention import layouts
from codemods.vision_attention import vocabulary as V
from codemods.vision_attention.bounds import Bounds


class Refusal(Exception):
    """Why a class is left alone: the check that failed, and the node at which it did."""

    def __init__(self, check: str, node: ast.AST) -> None:
        super().__init__(check)
        self.check = check
        self.node = node


OUT = "the result"
Axes = tuple[str, ...] | None


@dataclass(frozen=True)
class Tensor:
    role: str
    axes: Axes
    cut: bool = False  # it is one sequence of cu_seqlens, not the whole


@dataclass(frozen=True)
class Group:
    """Several tensors: a tuple of known members, or a list of equal ones (`many`)."""

    members: tuple[Value, ...]
    many: bool = False


Value = Tensor | Group | None  # None: not a tensor of the attention (a number, a length, a mask)

FIRST, SECOND = "x0", "x1"  # two axes of which one is the batch and one the sequence, before it is known which
_SEQUENCES = ("s", "1", FIRST, SECOND)
_NO_DROPOUT = ("0", "0.0")
_SDPA_PARAMETERS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
_XFORMERS_PARAMETERS = ("query", "key", "value", "attn_bias", "p", "scale")
_SHAPE_ATTRIBUTES = ("shape", "device", "dtype", "ndim")
_SPLITS = ("split", "chunk", "tensor_split", "unbind")
_REPEATS = ("repeat_interleave", "repeat", "expand", "repeat_kv")


class Arm:
    """One arm, run symbolically. `scales` holds what each kernel call was given as its scale, None where it was not."""

    def __init__(self, tensors: dict[str, Tensor], cu_seqlens: ast.expr) -> None:
        self.known: dict[str, Value] = dict(tensors)
        self.cu_seqlens = cu_seqlens
        self.assigned: dict[str, ast.expr] = {}
        self.scales: list[ast.expr | None] = []
        self.sequence_axes: set[str] = set()  # axes that this arm treats as the sequence
        self.bounds = Bounds(cu_seqlens)
        self.loops = 0  # how many loops the current statement stands in

    # -- statements --------------------------------------------------------------------------------------------------

    def run(self, body: Sequence[ast.stmt]) -> None:
        for step in body:
            self._step(step)

    def _step(self, step: ast.stmt) -> None:
        if isinstance(step, (ast.Import, ast.ImportFrom, ast.Assert, ast.Pass, ast.Raise)):
            return
        if isinstance(step, ast.If):
            before = dict(self.known)
            self.run(step.body)
            self.run(step.orelse)
            for name, value in before.items():
                if self.known.get(name) != value and not isinstance(value, Group):
                    raise Refusal(f"{name} changes under a condition inside an arm", step)
        elif isinstance(step, ast.For):
            self.bounds.loop(step.target, step.iter)
            self._bind(step.target, self._items(step.iter))
            gathered = [of for inner in step.body if (of := _appended_to(inner)) is not None]
            if len(set(gathered)) < len(gathered):
                raise Refusal("an arm puts a sequence into its list twice", step)
            self.loops += 1
            self.run(step.body)
            self.loops -= 1
            self.run(step.orelse)
        elif isinstance(step, (ast.Assign, ast.AnnAssign)) and step.value is not None:
            value = self._value(step.value)
            for target in step.targets if isinstance(step, ast.Assign) else [step.target]:
                self._bind(target, value)
                if isinstance(target, ast.Name):
                    self.assigned[target.id] = step.value
                    self.bounds.assign(target.id, step.value)
                elif isinstance(target, ast.Tuple) and isinstance(step.value, ast.Tuple):
                    for item, inner in zip(target.elts, step.value.elts):
                        if isinstance(item, ast.Name):
                            self.bounds.assign(item.id, inner)
        elif isinstance(step, ast.AugAssign):
            if not isinstance(step.target, ast.Name):
                raise Refusal("an arm stores something outside of itself", step)
            if self._value(step.value) is not None or self.known.get(step.target.id) is not None:
                raise Refusal("an arm does arithmetic on its tensors", step)
            self.bounds.forget(step.target.id)
        elif isinstance(step, ast.Expr):
            self._expression(step.value)
        else:
            raise Refusal("an arm does more than attention", step)

    def _expression(self, node: ast.expr) -> None:
        name = _appended_to(ast.Expr(node))
        if name is not None and isinstance(node, ast.Call):
            item = self._value(node.args[0]) if len(node.args) == 1 else None
            if isinstance(item, Tensor) and not self.loops:
                raise Refusal("an arm keeps one of its sequences only", node)
            self.known[name] = Group((item,), many=True)
        elif self._value(node) is not None:
            raise Refusal("an arm does more than attention", node)

    def _bind(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self.known[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            members = self._members(value, len(target.elts))
            for item, member in zip(target.elts, members):
                self._bind(item.value if isinstance(item, ast.Starred) else item, member)
        elif value is not None or isinstance(target, ast.Attribute):
            raise Refusal("an arm stores something outside of itself", target)

    @staticmethod
    def _members(value: Value, count: int) -> list[Value]:
        if isinstance(value, Group):
            if value.many:
                return [value.members[0] if value.members else None] * count
            if len(value.members) == count:
                return list(value.members)
        return [None] * count

    # -- expressions -------------------------------------------------------------------------------------------------

    def _value(self, node: ast.expr) -> Value:
        if isinstance(node, ast.Name):
            return self.known.get(node.id)
        if isinstance(node, (ast.Tuple, ast.List)):
            members = tuple(self._value(item) for item in node.elts)
            return Group(members) if any(m is not None for m in members) or isinstance(node, ast.List) else None
        if isinstance(node, (ast.GeneratorExp, ast.ListComp)):
            return self._comprehension(node)
        if isinstance(node, ast.IfExp):
            return self._either(node)
        if isinstance(node, ast.Subscript):
            return self._sliced(node)
        if isinstance(node, ast.Attribute):
            if self._value(node.value) is not None and node.attr not in _SHAPE_ATTRIBUTES:
                raise Refusal(f"an arm uses .{node.attr} of its tensors", node)
            return None
        if isinstance(node, ast.Call):
            return self._call(node)
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, ast.expr) and isinstance(self._value(inner), Tensor):
                raise Refusal("an arm does arithmetic on its tensors", node)
        return None

    def _comprehension(self, node: ast.GeneratorExp | ast.ListComp) -> Value:
        if len(node.generators) != 1 or node.generators[0].ifs:
            raise Refusal("an arm loops in a way that is not understood", node)
        over = node.generators[0]
        self.bounds.loop(over.target, over.iter)
        items = self._value(over.iter) if not isinstance(over.iter, ast.Call) else self._items_of_call(over.iter)
        if isinstance(items, Group) and not items.many:
            found = []
            for item in items.members:
                self._bind(over.target, item)
                found.append(self._value(node.elt))
            return Group(tuple(found))
        self._bind(over.target, items.members[0] if isinstance(items, Group) and items.members else None)
        return Group((self._value(node.elt),), many=True)

    def _items(self, node: ast.expr) -> Value:
        """What a loop variable is."""
        value = self._items_of_call(node) if isinstance(node, ast.Call) else self._value(node)
        if isinstance(value, Group):
            if value.many or len(set(value.members)) == 1:
                return value.members[0] if value.members else None
            raise Refusal("an arm loops over q, k and v", node)
        return None

    def _items_of_call(self, node: ast.Call) -> Value:
        name = dotted(node.func)
        if name == "zip":
            members = [value for a in node.args for value in self._zipped(a)]
            if any(m is not None for m in members):
                return Group(
                    (Group(tuple(m.members[0] if isinstance(m, Group) and m.members else None for m in members)),),
                    many=True,
                )
            return None
        if name == "enumerate" and node.args:
            inner = self._value(node.args[0])
            first = inner.members[0] if isinstance(inner, Group) and inner.members else None
            return Group((Group((None, first)),), many=True) if first is not None else None
        return self._value(node)

    def _zipped(self, node: ast.expr) -> list[Value]:
        """What an argument of `zip` brings: with a star, each of its members."""
        if not isinstance(node, ast.Starred):
            return [self._value(node)]
        value = self._value(node.value)
        if isinstance(value, Group) and not value.many:
            return list(value.members)
        if value is not None:
            raise Refusal("an arm loops in a way that is not understood", node)
        return [None]

    def _either(self, node: ast.IfExp) -> Value:
        first, second = self._value(node.body), self._value(node.orelse)
        if first == second:
            return first
        roles = {v.role for v in (first, second) if isinstance(v, Tensor)}
        if OUT in roles and isinstance(first, Tensor) and isinstance(second, Tensor):
            empty = node.orelse if first.role == OUT else node.body
            if isinstance(empty, ast.Subscript) and ":0" in ast.unparse(empty):  # nothing to attend: an empty slice
                return first if first.role == OUT else second
        raise Refusal("an arm chooses between different tensors", node)

    def _sliced(self, node: ast.Subscript) -> Value:
        base = self._value(node.value)
        if isinstance(base, Group):
            if base.many:
                return base.members[0] if base.members else None
            if (
                isinstance(node.slice, ast.Constant)
                and isinstance(node.slice.value, int)
                and node.slice.value < len(base.members)
            ):
                return base.members[node.slice.value]
            raise Refusal("an arm picks tensors in a way that is not understood", node)
        if base is None:
            return None
        indices = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        axes: list[str] | None = [] if base.axes is not None else None
        position = 0
        cut = base.cut
        for index in indices:
            if isinstance(index, ast.Slice):
                if index.step is not None:
                    raise Refusal("an arm takes every other row of its tensors", node)
                if index.lower is not None or index.upper is not None:
                    if not _is_empty(index):
                        if not self.bounds.is_sequence(index):
                            raise Refusal("how an arm cuts its sequences cannot be shown to follow cu_seqlens", node)
                        cut = True
                    self.sequence_axes.add(base.axes[position] if base.axes is not None else "?")
                if axes is not None and base.axes is not None:
                    axes.append(base.axes[position])
                position += 1
            elif isinstance(index, ast.Constant) and index.value is None:
                if axes is not None:
                    axes.append("1")
            elif isinstance(index, ast.Constant) and index.value is Ellipsis:
                axes, position = None, position + 1
            else:
                position += 1
        known = (*axes, *base.axes[position:]) if axes is not None and base.axes is not None else None
        return Tensor(base.role, known, cut)

    def _call(self, node: ast.Call) -> Value:
        name = V.called(node)
        if name == V.SDPA_KERNEL:
            return self._sdpa(node)
        if name in V.XFORMERS_KERNELS:
            return self._xformers(node)
        if name in (V.SDPA_WRAPPER, V.XFORMERS_WRAPPER):
            return self._wrapper(node, name)
        view = layouts.operation(node)
        if view is not None:
            inner = node.args[0] if view == "rearrange" else node.func.value  # type: ignore[attr-defined]
            base = self._value(inner)
            if isinstance(base, Tensor):
                if _scrambles(base.axes, node):
                    raise Refusal(f"an arm reshapes {base.role} where only a transpose keeps heads and sequence", node)
                return Tensor(base.role, axes_after(base.axes, node), base.cut)
            return base
        if name in ("cat", "concat", "concatenate") and node.args:
            return self._joined(node)
        if name in _SPLITS:
            base = self._value(node.func.value) if isinstance(node.func, ast.Attribute) else None
            base = base if isinstance(base, Tensor) else (self._value(node.args[0]) if node.args else None)
            return self._split(node, name, base) if isinstance(base, Tensor) else base
        if name in ("tuple", "list") and len(node.args) == 1:
            return self._value(node.args[0])
        if name == "map" and len(node.args) == 2 and isinstance(node.args[0], ast.Lambda):
            raise Refusal("an arm maps its tensors through a lambda", node)
        if name in _REPEATS:  # key and value heads spread over the query heads: MMEncoderAttention does that itself
            base = (
                self._value(node.func.value)
                if isinstance(node.func, ast.Attribute) and dotted(node.func) != f"torch.{name}"
                else None
            )
            base = base if isinstance(base, Tensor) else (self._value(node.args[0]) if node.args else None)
            if isinstance(base, Tensor) and base.role in ("k", "v"):
                return base
        arguments = [*node.args, *(k.value for k in node.keywords)]
        if isinstance(node.func, ast.Attribute):
            owner = self._value(node.func.value)
            if isinstance(owner, Tensor):
                if node.func.attr in ("size", "dim", "numel"):
                    return None
                raise Refusal(f"an arm puts {owner.role} through .{node.func.attr}()", node)
        for argument in arguments:
            value = self._value(argument.value if isinstance(argument, ast.Starred) else argument)
            if isinstance(value, (Tensor, Group)) and name not in ("len", "print"):
                role = value.role if isinstance(value, Tensor) else "its tensors"
                raise Refusal(f"an arm puts {role} through {ast.unparse(node.func)}()", node)
        return None

    def _split(self, node: ast.Call, name: str, base: Tensor) -> Group:
        """`torch.split(x, lengths, dim)`: the sequences of cu_seqlens, if the lengths are its differences."""
        function = isinstance(node.func, ast.Attribute) and dotted(node.func.value) == "torch"
        rest = node.args[1:] if function else node.args
        lengths = rest[0] if rest else next((k.value for k in node.keywords if "split_size" in (k.arg or "")), None)
        if name != "split" or base.cut or lengths is None or not self.bounds.is_lengths(lengths):
            raise Refusal("how an arm cuts its sequences cannot be shown to follow cu_seqlens", node)
        axis = _dim(node, 2 if function else 1)
        self.sequence_axes.add(base.axes[axis] if base.axes is not None and axis is not None else "?")
        return Group((Tensor(base.role, base.axes, cut=True),), many=True)

    def _joined(self, node: ast.Call) -> Value:
        value = self._value(node.args[0])
        members = value.members if isinstance(value, Group) else ()
        if not any(isinstance(m, Tensor) for m in members):
            return None
        if len(set(members)) != 1:
            raise Refusal("an arm joins different tensors", node)
        tensor = members[0]
        assert isinstance(tensor, Tensor)
        dim = _dim(node, 1)
        if tensor.axes is not None and dim is not None and tensor.axes[dim] not in _SEQUENCES:
            raise Refusal("an arm joins its sequences along another axis than the sequence", node)
        return tensor

    # -- kernels -----------------------------------------------------------------------------------------------------

    def _tensors(self, node: ast.Call, names: Sequence[str]) -> tuple[dict[str, ast.expr], list[Value]]:
        """The call's arguments by name, and the values of the first three."""
        values: list[Value] = []
        given: dict[str, ast.expr] = {}
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                group = self._value(argument.value)
                if not isinstance(group, Group) or group.many:
                    raise Refusal("what an arm passes to its kernel with * is not understood", argument)
                if len(values) + len(group.members) > 3:
                    raise Refusal("an arm passes more than q, k and v to its kernel with *", argument)
                values += group.members
            elif len(values) < 3:
                values.append(self._value(argument))
            elif len(values) < len(names):
                given[names[len(values)]] = argument
                values.append(None)
        for word in node.keywords:
            if word.arg is None:
                raise Refusal("an arm passes ** to its kernel", node)
            given[word.arg] = word.value
        for index, name in enumerate(names[:3]):
            word_value = given.get(name, given.get("qkv"[index]))
            if word_value is not None:
                values.insert(index, self._value(word_value))
        roles = [v.role if isinstance(v, Tensor) else None for v in values[:3]]
        if roles != ["q", "k", "v"]:
            raise Refusal(
                f"an arm attends with {', '.join(str(r or 'something else') for r in roles)} where the flash arm "
                f"has q, k, v",
                node,
            )
        return given, values

    def _sdpa(self, node: ast.Call) -> Tensor:
        given, values = self._tensors(node, _SDPA_PARAMETERS)
        for name, value in given.items():
            text = ast.unparse(value)
            if name == "attn_mask" and text != "None":
                raise Refusal("the SDPA arm uses a mask, which MMEncoderAttention has not", value)
            if name == "is_causal" and text != "False":
                raise Refusal("the SDPA arm is causal, which MMEncoderAttention is not", value)
            if name == "dropout_p" and text not in _NO_DROPOUT:
                raise Refusal("the SDPA arm uses dropout", value)
            if name not in _SDPA_PARAMETERS:
                raise Refusal(f"the SDPA arm is called with {name}=", value)
        self._scale(given.get("scale"))
        first = values[0]
        assert isinstance(first, Tensor)
        if not all(isinstance(v, Tensor) and v.cut for v in values[:3]):
            raise Refusal("the SDPA arm attends across the sequences of cu_seqlens", node)
        if first.axes is not None and (first.axes[-3], first.axes[-1]) != ("h", "d"):
            raise Refusal("the SDPA arm's tensors are not [..., heads, sequence, head_dim]", node)
        return Tensor(OUT, first.axes)

    def _xformers(self, node: ast.Call) -> Tensor:
        given, values = self._tensors(node, _XFORMERS_PARAMETERS)
        for name, value in given.items():
            if name == "p" and ast.unparse(value) not in _NO_DROPOUT:
                raise Refusal("the xFormers arm uses dropout", value)
            if name not in (*_XFORMERS_PARAMETERS, "op"):
                raise Refusal(f"the xFormers arm is called with {name}=", value)
        self._block_diagonal(given.get("attn_bias"), node)
        self._scale(given.get("scale"))
        first = values[0]
        assert isinstance(first, Tensor)
        self.sequence_axes.add(first.axes[1] if first.axes is not None and len(first.axes) > 1 else "?")
        return Tensor(OUT, first.axes)

    def _block_diagonal(self, bias: ast.expr | None, node: ast.Call) -> None:
        """The bias must be BlockDiagonalMask.from_seqlens of one list of lengths: attention within each sequence."""
        if isinstance(bias, ast.Name):
            bias = self.assigned.get(bias.id)
        made = dotted(bias.func) if isinstance(bias, ast.Call) else None
        if not isinstance(bias, ast.Call) or made is None or not made.endswith("BlockDiagonalMask.from_seqlens"):
            raise Refusal("the xFormers arm's bias is not a block diagonal of sequence lengths", bias or node)
        lengths = [*bias.args, *(k.value for k in bias.keywords if k.arg in ("q_seqlen", "kv_seqlen"))]
        lengths = [n for n in lengths if not (isinstance(n, ast.Constant) and n.value is None)]
        if not lengths or any(not same(n, lengths[0]) for n in lengths):
            raise Refusal("the xFormers arm gives k and v other lengths than q", bias)
        given = isinstance(lengths[0], ast.Name) and lengths[0].id not in self.assigned
        if not given and not self.bounds.is_lengths(lengths[0]):
            raise Refusal("the xFormers arm's lengths cannot be shown to follow cu_seqlens", bias)

    def _wrapper(self, node: ast.Call, name: str) -> Tensor:
        _, values = self._tensors(node, ("q", "k", "v", "cu_seqlens"))
        first = values[0]
        assert isinstance(first, Tensor)
        self.sequence_axes.add(first.axes[1] if first.axes is not None and len(first.axes) > 1 else "?")
        lengths = (
            node.args[3]
            if len(node.args) > 3
            else next((k.value for k in node.keywords if k.arg == "cu_seqlens"), None)
        )
        if name == V.SDPA_WRAPPER and not same(lengths, self.cu_seqlens):
            raise Refusal("an arm attends without the cu_seqlens of the flash arm", node)
        self._scale(None)
        return Tensor(OUT, ("s", "b", "(h d)"))  # as the wrappers returned it up to 0.12

    def _scale(self, value: ast.expr | None) -> None:
        self.scales.append(None if isinstance(value, ast.Constant) and value.value is None else value)


# -- axes ------------------------------------------------------------------------------------------------------------


def _is_empty(node: ast.Slice) -> bool:
    return node.lower is None and isinstance(node.upper, ast.Constant) and node.upper.value == 0


def _dim(node: ast.Call, position: int) -> int | None:
    value = next((k.value for k in node.keywords if k.arg in ("dim", "axis")), None)
    if value is None:
        value = node.args[position] if len(node.args) > position else ast.Constant(0)
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, int) else _negative(value)


def _negative(value: ast.expr) -> int | None:
    if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub) and isinstance(value.operand, ast.Constant):
        return -int(value.operand.value)  # type: ignore[arg-type]
    return None


def _appended_to(step: ast.stmt) -> str | None:
    """The list that a statement `parts.append(x)` puts something into."""
    call = step.value if isinstance(step, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr != "append":
        return None
    return call.func.value.id if isinstance(call.func.value, ast.Name) else None


def _scrambles(axes: Axes, call: ast.Call) -> bool:
    """Whether `view` or `reshape` gives the heads the place of the sequence, or the other way round.

    The heads are told by an attribute of self in their place, `reshape(1, self.heads, -1, self.head_dim)`.
    """
    if axes is None or len(axes) != 4 or axes[-1] != "d" or layouts.operation(call) not in ("view", "reshape"):
        return False
    sizes = call.args[0].elts if len(call.args) == 1 and isinstance(call.args[0], ast.Tuple) else call.args
    if len(sizes) != 4 or isinstance(sizes[1], ast.Starred) or isinstance(sizes[2], ast.Starred):
        return False
    second, third = (self_attribute(size) is not None for size in sizes[1:3])
    return second != third and axes[1 if third else 2] == "h"


def axes_after(axes: Axes, call: ast.Call) -> Axes:
    """The axes of a tensor after one view operation; None where that is not known."""
    if axes is None:
        return None
    name = layouts.operation(call)
    if name == "contiguous":
        return axes
    if name == "rearrange":
        return _rearranged(axes, call)
    arguments = (
        list(call.args[0].elts)
        if len(call.args) == 1 and isinstance(call.args[0], (ast.Tuple, ast.List))
        else list(call.args)
    )
    numbers = [a.value if isinstance(a, ast.Constant) and isinstance(a.value, int) else _negative(a) for a in arguments]
    if call.keywords or any(n is None for n in numbers):
        return None
    known = [n for n in numbers if n is not None]
    if any(not -len(axes) - 1 <= n <= len(axes) for n in known):
        return None
    if name == "transpose" and len(known) == 2:
        swapped = list(axes)
        swapped[known[0]], swapped[known[1]] = swapped[known[1]], swapped[known[0]]
        return tuple(swapped)
    if name == "permute" and sorted(n % len(axes) for n in known) == list(range(len(axes))):
        return tuple(axes[n] for n in known)
    if name == "unsqueeze" and len(known) == 1:
        place = known[0] if known[0] >= 0 else len(axes) + 1 + known[0]
        return (*axes[:place], "1", *axes[place:])
    if name == "squeeze" and len(known) == 1 and axes[known[0]] in ("1", "b"):
        place = known[0] % len(axes)
        return (*axes[:place], *axes[place + 1 :])
    if name == "flatten":
        start = (known[0] if known else 0) % len(axes)
        end = (known[1] if len(known) > 1 else -1) % len(axes)
        return (*axes[:start], f"({' '.join(axes[start : end + 1])})", *axes[end + 1 :])
    return None


def _rearranged(axes: tuple[str, ...], call: ast.Call) -> Axes:
    sides = layouts.pattern(call)
    if sides is None:
        return None
    left, right = sides
    if "..." in left:
        place = left.index("...")
        count = len(axes) - len(left) + 1
        names = [f"_{i}" for i in range(count)]
        left = [*left[:place], *names, *left[place + 1 :]]
        right = [n for axis in right for n in (names if axis == "..." else [axis])]
    if len(left) != len(axes):
        return None
    meaning: dict[str, str] = {}
    for name, axis in zip(left, axes):
        if name.startswith("("):
            inner, outer = name.strip("()").split(), axis.strip("()").split()
            if len(inner) != len(outer):
                return None
            meaning.update(zip(inner, outer))
        else:
            meaning[name] = axis
    result = []
    for name in right:
        if name.startswith("("):
            inner = name.strip("()").split()
            if any(n not in meaning for n in inner):
                return None
            result.append(f"({' '.join(meaning[n] for n in inner)})")
        elif name in meaning:
            result.append(meaning[name])
        else:
            return None
    return tuple(result)


def same_layout(first: Axes, second: Axes) -> bool:
    """Whether two layouts are the same as far as both are known; an axis of one and the batch axis count alike."""
    if first is None or second is None:
        return True
    return [a.replace("1", "b") for a in first] == [a.replace("1", "b") for a in second]

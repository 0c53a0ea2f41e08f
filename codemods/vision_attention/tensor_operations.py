"""What tensor operations do to a shape: by method or function name, as data and small functions.

Each takes the tensor and the evaluated arguments, and gives the result, or None where nothing can be said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from codemods.vision_attention.shapes import NOTHING, AnyValue, Each, Many, Sizes, Table, Token, Value

Arguments = Sequence[AnyValue]
Keywords = dict[str, AnyValue]
Operation = Callable[[Table, Value, Arguments, Keywords], "AnyValue | None"]

# the result has the shape of the tensor itself
# fmt: off
_SAME = (
    "add", "add_", "bfloat16", "clamp", "clone", "contiguous", "cpu", "cuda", "detach", "div", "div_", "double",
    "dropout", "float", "gelu", "half", "layer_norm", "masked_fill", "mul", "mul_", "neg", "normalize", "relu",
    "requires_grad_", "rms_norm", "sigmoid", "silu", "softmax", "tanh", "to", "type", "type_as",
)
# fmt: on
_REDUCTIONS = ("mean", "sum", "var", "std", "amax", "amin", "norm")


def number(value: AnyValue | None) -> object:
    """The constant a value is, or NOTHING."""
    return value.shape.constant if isinstance(value, Value) else NOTHING


def _integer(value: AnyValue | None, default: int | None) -> int | None:
    """An argument that must be a known integer; `default` where it is not given."""
    if value is None:
        return default
    found = number(value)
    return found if isinstance(found, int) else None


def _given(arguments: Arguments, keywords: Keywords, position: int, *names: str) -> AnyValue | None:
    return (
        arguments[position] if len(arguments) > position else next((keywords[n] for n in names if n in keywords), None)
    )


def _behind_lead(x: Value, axis: int | None) -> bool:
    """Whether an axis is neither batch nor sequence. Nothing here has fewer than three axes, so the last one is not."""
    return axis is not None and (axis >= 2 or axis == -1 or (axis < 0 and x.rank is not None and x.rank + axis >= 2))


def _same(t: Table, x: Value, arguments: Arguments, keywords: Keywords) -> AnyValue | None:
    return x


def _sizes(t: Table, arguments: Arguments) -> list[Token]:
    items = arguments[0].items if len(arguments) == 1 and isinstance(arguments[0], Many) else arguments
    return [t.flat(item) for item in items]


def _view(t: Table, x: Value, arguments: Arguments, keywords: Keywords) -> AnyValue | None:
    sizes = _sizes(t, arguments)
    if not sizes or (len(sizes) == 1 and sizes[0].constant is NOTHING):
        return None
    known = [size for size in sizes if size.constant != -1]
    rest = t.token("rest", x.shape, *known)
    return t.sized([rest if size.constant == -1 else size for size in sizes])


def _expand(t: Table, x: Value, arguments: Arguments, keywords: Keywords) -> AnyValue | None:
    sizes = _sizes(t, arguments)
    return (
        t.sized([t.axis(x, index) if size.constant == -1 else size for index, size in enumerate(sizes)])
        if len(sizes) > 1
        else None
    )


def _like_other(t: Table, x: Value, arguments: Arguments, keywords: Keywords) -> AnyValue | None:
    return arguments[0] if arguments and isinstance(arguments[0], Value) else None


def _reordered(t: Table, x: Value, order: Sequence[int], *parts: object) -> Value:
    return t.value(t.token(*parts, x.shape), x.rank, [t.axis(x, index) for index in order])


def _transpose(t: Table, x: Value, arguments: Arguments, keywords: Keywords) -> AnyValue | None:
    a, b = (_integer(_given(arguments, keywords, place, name), None) for place, name in enumerate(("dim0", "dim1")))
    if a is None or b is None:
        return None
    a, b = (axis + x.rank if axis < 0 and x.rank is not None else axis for axis in (a, b))
    if a < 0 or b < 0:
        return None
    order = [b if index == a else a if index == b else index for index in range(4)]
    return _reordered(t, x, order, "transpose", min(a, b), max(a, b))


def _permute(t: Table, x: Value, arguments: Arguments, keywords: Keywords) -> AnyValue | None:
    order = [size.constant for size in _sizes(t, arguments)]
    if not order or not all(isinstance(index, int) and index >= 0 for index in order):
        return None
    places = [index for index in order if isinstance(index, int)]
    return replace(_reordered(t, x, places, "permute", *places), rank=len(places))


def _flatten(t: Table, x: Value, arguments: Arguments, keywords: Keywords) -> AnyValue | None:
    start = _integer(_given(arguments, keywords, 0, "start_dim"), 0)
    end = _integer(_given(arguments, keywords, 1, "end_dim"), -1)
    if end != -1 and not (x.rank is not None and end == x.rank - 1):
        return None
    if start is None or not (start >= 2 or (start < -1 and x.rank is not None and start + x.rank >= 2)):
        return None
    return t.like(x, "flatten", start, rank=3 if start == 2 or x.rank == 4 else None)


def _unflatten(t: Table, x: Value, arguments: Arguments, keywords: Keywords) -> AnyValue | None:
    axis = _integer(_given(arguments, keywords, 0, "dim"), None)
    sizes = _given(arguments, keywords, 1, "sizes")
    if not _behind_lead(x, axis) or not isinstance(sizes, Many):
        return None
    return t.like(x, "unflatten", axis, t.flat(sizes), rank=(x.rank or 3) + len(sizes.items) - 1)


def _unsqueeze(t: Table, x: Value, arguments: Arguments, keywords: Keywords) -> AnyValue | None:
    axis = _integer(_given(arguments, keywords, 0, "dim"), None)
    rank = x.rank + 1 if x.rank is not None else None
    if axis is None or (axis < 0 and axis != -1):
        return None
    if axis == -1:
        return t.like(x, "unsqueeze", axis, rank=rank)
    lead = [*x.axes[:axis], t.constant(1).shape, *x.axes[axis:]]
    return t.value(t.token("unsqueeze", axis, x.shape), rank, lead)


def _squeeze(t: Table, x: Value, arguments: Arguments, keywords: Keywords) -> AnyValue | None:
    axis = _integer(_given(arguments, keywords, 0, "dim"), None)
    return None if axis is None else drop(t, x, axis, "squeeze")


def drop(t: Table, x: Value, axis: int, how: str) -> Value | None:
    """The tensor less one axis."""
    rank = x.rank - 1 if x.rank is not None else None
    token = t.token(how, axis, x.shape)
    if axis < 0:
        return t.value(token, rank, x.lead) if _behind_lead(x, axis) else None
    return t.value(token, rank, [*x.axes[:axis], *x.axes[axis + 1 :]])


def _pieces(t: Table, x: Value, arguments: Arguments, keywords: Keywords) -> AnyValue | None:
    """`chunk`, `split` and their kin: pieces along one axis."""
    how = _given(arguments, keywords, 0, "chunks", "split_size_or_sections", "split_size", "indices_or_sections")
    axis = _integer(_given(arguments, keywords, 1, "dim"), 0)
    if how is None or axis is None:
        return None
    count = len(how.items) if isinstance(how, Many) else None
    if _behind_lead(x, axis):
        like = t.like(x, "pieces", axis, t.flat(how), rank=x.rank)
        return Many(tuple(t.like(like, "piece", i, rank=x.rank) for i in range(count))) if count else Each(like, False)
    if axis not in (0, 1) or count is None:
        return None
    token = t.token("pieces", axis, t.flat(how), x.shape)
    return Many(tuple(t.value(t.token("piece", i, token), x.rank) for i in range(count)))


def _chunk(t: Table, x: Value, arguments: Arguments, keywords: Keywords) -> AnyValue | None:
    """Equal pieces along the last axis: attention needs them equal, and vLLM's own would raise if they were not."""
    pieces = _pieces(t, x, arguments, keywords)
    count = _integer(_given(arguments, keywords, 0, "chunks"), None)
    if isinstance(pieces, Each) and count:
        return Many((pieces.like,) * count)
    return None


def _unbind(t: Table, x: Value, arguments: Arguments, keywords: Keywords) -> AnyValue | None:
    axis = _integer(_given(arguments, keywords, 0, "dim"), 0)
    piece = drop(t, x, axis, "one of") if axis is not None else None
    return Each(piece) if piece is not None else None


def _reduced(t: Table, x: Value, arguments: Arguments, keywords: Keywords) -> AnyValue | None:
    axis = _integer(_given(arguments, keywords, 0, "dim", "axis"), None)
    kept = number(_given(arguments, keywords, 1, "keepdim"))
    return t.like(x, "reduced", axis, rank=x.rank) if kept is True and _behind_lead(x, axis) else None


def _repeat_interleave(t: Table, x: Value, arguments: Arguments, keywords: Keywords) -> AnyValue | None:
    axis = _integer(_given(arguments, keywords, 1, "dim"), None)
    times = _given(arguments, keywords, 0, "repeats")
    return (
        t.like(x, "repeat", axis, t.flat(times), rank=x.rank) if times is not None and _behind_lead(x, axis) else None
    )


def _size(t: Table, x: Value, arguments: Arguments, keywords: Keywords) -> AnyValue | None:
    if not arguments and not keywords:
        return Sizes(x)
    axis = _integer(_given(arguments, keywords, 0, "dim"), None)
    return t.value(t.axis(x, axis), 0) if axis is not None else None


def _dim(t: Table, x: Value, arguments: Arguments, keywords: Keywords) -> AnyValue | None:
    return t.constant(x.rank) if x.rank is not None else None


OPERATIONS: dict[str, Operation] = {
    **dict.fromkeys(_SAME, _same),
    **dict.fromkeys(_REDUCTIONS, _reduced),
    "view": _view,
    "reshape": _view,
    "expand": _expand,
    "view_as": _like_other,
    "expand_as": _like_other,
    "reshape_as": _like_other,
    "transpose": _transpose,
    "swapaxes": _transpose,
    "permute": _permute,
    "flatten": _flatten,
    "unflatten": _unflatten,
    "unsqueeze": _unsqueeze,
    "squeeze": _squeeze,
    "split": _pieces,
    "tensor_split": _chunk,
    "chunk": _chunk,
    "unbind": _unbind,
    "repeat_interleave": _repeat_interleave,
    "size": _size,
    "dim": _dim,
}


def concatenated(t: Table, parts: AnyValue | None, axis: int | None) -> Value | None:
    """`torch.cat` along an axis that is neither batch nor sequence, of tensors that agree in both."""
    if not isinstance(parts, Many) or not parts.items:
        return None
    tensors = [item for item in parts.items if isinstance(item, Value)]
    first = tensors[0] if len(tensors) == len(parts.items) else None
    if first is None or not _behind_lead(first, axis) or any(tensor.lead != first.lead for tensor in tensors):
        return None
    return t.value(t.token("cat", axis, t.flat(parts)), first.rank, first.lead)


def rearranged(t: Table, x: Value, sides: tuple[list[str], list[str]], keywords: Keywords) -> Value:
    """einops' `rearrange`; `sides` are both sides of its pattern as lists, `(b s)` being one item."""
    left, right = sides
    lengths: dict[str, Token] = {}
    given = {name: t.flat(value) for name, value in keywords.items()}
    behind = False
    for index, item in enumerate(left):
        behind = behind or item == "..."
        length = t.token("axis of", item, x.shape) if behind else t.axis(x, index)
        names = item.strip("()").split()
        if names == [item]:
            lengths[item] = length
            continue
        inner = [given[name] for name in names if name in given]
        for place, name in enumerate(names):
            lengths[name] = given.get(name) or t.token("factor", place, len(names), length, *inner)
    found: list[Token] = []
    for item in right:
        if item == "...":
            break
        names = item.strip("()").split()
        parts = [lengths.get(name) or given.get(name) or t.token("new axis", name) for name in names]
        found.append(parts[0] if names == [item] else t.token("product", *parts))
    shape = t.token("rearrange", " ".join(left), " ".join(right), x.shape, *given.values())
    return t.value(shape, None if "..." in right else len(right), found)

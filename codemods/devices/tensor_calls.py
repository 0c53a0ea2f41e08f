"""What PyTorch's methods and functions do to the memory of a tensor."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from codemods.devices.layout import NEW, SOMEWHERE, UNKNOWN, Layout
from codemods.parsed_file import keyword

# Position of `dim` among the arguments behind the tensor, its default, and whether a list comes out.
_PARTS = {"chunk": 1, "split": 1, "tensor_split": 1, "unsafe_chunk": 1, "unsafe_split": 1}
_CUTS = {"narrow": 0}
_PICKS = {"select": 0, "unbind": 0}
_SWAPS = frozenset({"transpose", "swapaxes", "swapdims", "permute", "movedim", "moveaxis", "t", "adjoint"})
SWAPPED = frozenset({"T", "mT", "H", "mH"})  # the same as attributes
_SAME_MEMORY = frozenset({"view", "view_as", "unflatten", "squeeze", "unsqueeze"})
_SAME_FORM = frozenset(
    {
        "to",
        "type",
        "type_as",
        "float",
        "double",
        "half",
        "bfloat16",
        "int",
        "long",
        "short",
        "byte",
        "bool",
        "detach",
        "detach_",
        "data",
        "cpu",
        "cuda",
        "npu",
        "xpu",
        "requires_grad_",
        "pin_memory",
        "alias",
    }
)
_GAPS = frozenset({"expand", "expand_as", "broadcast_to", "diagonal", "unfold"})
_COPIES = frozenset(
    {"clone", "empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like"}
)
LIKE = _COPIES - {"clone"}
_NEW = frozenset(
    {
        "empty",
        "zeros",
        "ones",
        "full",
        "tensor",
        "arange",
        "linspace",
        "rand",
        "randn",
        "randint",
        "cat",
        "concat",
        "concatenate",
        "stack",
        "hstack",
        "vstack",
        "eye",
        "new_empty",
        "new_zeros",
        "new_ones",
        "new_full",
        "new_tensor",
    }
)
_LISTED = frozenset({"list", "tuple", "reversed", "sorted"})


def called(name: str, base: Layout, arguments: Sequence[ast.expr], call: ast.Call, why: str) -> Layout:
    """What `base.name(*arguments)` gives, or PyTorch's function of that name."""
    if name == "contiguous":
        other_order = call.keywords or arguments
        return UNKNOWN if other_order else replace(NEW, fresh=base.fresh, bases=base.bases, listed=base.listed)
    if name in _PARTS:
        return _along(base, _dim(call, arguments, _PARTS[name], 0), why, listed=True)
    if name in _CUTS:
        return _along(base, _dim(call, arguments, _CUTS[name], None), why)
    if name in _PICKS:
        dim = _dim(call, arguments, _PICKS[name], 0 if name == "unbind" else None)
        found = base.without_first().view() if dim == 0 else _along(base, dim, why)
        return found.view(listed=name == "unbind")
    if name in _SWAPS:
        return base.swapped(_swap(name, arguments, call), why)
    if name in _SAME_MEMORY:
        front = name == "unsqueeze" and _dim(call, arguments, 0, None) == 0
        return base.view(gaps=frozenset(g + 1 if g > 0 else g for g in base.gaps)) if front else base.blurred()
    if name in _SAME_FORM:
        return base
    if name in _GAPS:
        return base.cut(SOMEWHERE, why)
    if name in _COPIES:
        ordered = keyword(call, "memory_format")
        if ordered is None:
            return base.copied()
        return NEW if ast.unparse(ordered).endswith("contiguous_format") else UNKNOWN
    if name in ("reshape", "flatten"):
        return base if base.contiguous else UNKNOWN
    return UNKNOWN


def creates(name: str) -> bool:
    """Whether a function of this name gives new, contiguous memory, whatever it is made from."""
    return name in _NEW


def lists(name: str) -> bool:
    return name in _LISTED


def _along(base: Layout, dim: int | None, why: str, listed: bool = False) -> Layout:
    """Parts of a tensor along a dimension: those along the first one lie behind one another."""
    if dim is None:
        return UNKNOWN
    if dim == 0:
        return base.view(listed=listed)
    return base.cut(dim if dim > 0 else SOMEWHERE, why).view(listed=listed)


def _dim(call: ast.Call, arguments: Sequence[ast.expr], position: int, default: int | None) -> int | None:
    """The number given as `dim`, the default if none is given, None if it is not written out."""
    node = keyword(call, "dim") or keyword(call, "axis") or (arguments[position] if len(arguments) > position else None)
    if node is None:
        return default
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return None
    return value if isinstance(value, int) else None


def _swap(name: str, arguments: Sequence[ast.expr], call: ast.Call) -> str:
    """A name for the exchange if making it twice undoes it."""
    dims = [ast.unparse(a) for a in [*arguments, *(k.value for k in call.keywords)]]
    return "|".join(sorted(dims)) if name in ("transpose", "swapaxes", "swapdims") else ""

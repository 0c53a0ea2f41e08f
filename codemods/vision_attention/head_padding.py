"""Heads padded with zeros to a size that a kernel likes, and cut back behind it: taken out where the two cancel.

Zeros behind the head_dim of q and k change no product, and zeros behind that of v are cut off again, so attention is
the same without them; but for a scale that is computed from the padded size.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from codemods.parsed_file import ParsedFile, loads, stores
from codemods.project import AnyFunction
from codemods.vision_attention import vocabulary as V
from codemods.vision_attention.arms import Refusal

_PAD = "torch.nn.functional.pad"


@dataclass(frozen=True)
class Padding:
    """What was taken out. `size`: the head size that the result is cut back to; None where it is whatever q has."""

    size: str | None


@dataclass
class _Pad:
    node: ast.Call
    sources: tuple[str, ...]  # the names of the tensors it pads
    width: str
    test: str | None  # the condition it stands under


def removed(
    file: ParsedFile, function: AnyFunction, at: ast.stmt, steps: list[ast.stmt], kernel: ast.Call
) -> tuple[list[ast.stmt], Padding | None]:
    """The statements of an arm without padding. Raises Refusal where padding and cut are not shown to cancel."""
    pads = [pad for step in steps for pad in _pads(file, at, step)]
    if not pads:
        return steps, None
    first = pads[0]
    if len({source for pad in pads for source in pad.sources}) != 3:
        raise Refusal("q, k and v are not all padded", first.node)
    if any((pad.width, pad.test) != (first.width, first.test) for pad in pads):
        raise Refusal("q, k and v are padded differently", first.node)
    results: set[str] = set()
    cuts: list[tuple[ast.Subscript, str | None]] = []
    for step in steps:
        inside = any(node is kernel for node in ast.walk(step))
        if inside or results & loads(step):
            cuts += _cuts(step, results, kernel)
            results |= stores(step)
    if len(cuts) != 1:
        raise Refusal("the padded heads are not cut back once behind the kernel", first.node)
    cut, test = cuts[0]
    size = _bound(cut)
    assert size is not None
    known = _assigned(function, at, steps)
    if ast.unparse(size) == f"-{first.width}" and test == first.test:
        found = Padding(None)
    elif test not in (None, first.test):
        raise Refusal("the padded heads are cut back under another condition", cut)
    elif _is_size_of_tensor(function, known.get(ast.unparse(size)), first):
        found = Padding(None)
    elif _subtracted(known, first.width) == ast.unparse(size):
        found = Padding(ast.unparse(size))
    else:
        raise Refusal(f"{ast.unparse(size)} cannot be shown to be the head size before padding", cut)
    _check_views(steps, [pad.node for pad in pads], cut)
    taken = _Taken([pad.node for pad in pads], cut)
    return [new for step in steps for new in taken.without(step)], found


def _pads(file: ParsedFile, at: ast.stmt, step: ast.stmt) -> list[_Pad]:
    """The calls in a statement that pad the last axis with zeros, at its end."""
    found = []
    test = ast.unparse(step.test) if isinstance(step, ast.If) else None
    each = {
        id(node): tuple(ast.unparse(item) for item in around.generators[0].iter.elts)
        for around in ast.walk(step)
        if isinstance(around, (ast.GeneratorExp, ast.ListComp))
        and isinstance(around.generators[0].iter, (ast.Tuple, ast.List))
        for node in ast.walk(around.elt)
    }
    for node in ast.walk(step):
        if not isinstance(node, ast.Call) or V.called(node) != "pad" or file.resolve(node.func, at) != _PAD:
            continue
        given = dict(zip(("input", "pad", "mode", "value"), node.args))
        given.update({k.arg: k.value for k in node.keywords if k.arg is not None})
        widths = given.get("pad")
        zeros = ast.unparse(given["value"]) in ("0", "0.0", "None") if "value" in given else True
        plain = ast.unparse(given["mode"]) == "'constant'" if "mode" in given else True
        if not (isinstance(widths, (ast.Tuple, ast.List)) and len(widths.elts) == 2 and zeros and plain):
            raise Refusal("a tensor is padded otherwise than with zeros behind its heads", node)
        if ast.unparse(widths.elts[0]) != "0" or not node.args:
            raise Refusal("a tensor is padded otherwise than with zeros behind its heads", node)
        sources = each.get(id(node), tuple(sorted(loads(node.args[0]))))
        found.append(_Pad(node, sources, ast.unparse(widths.elts[1]), test))
    return found


def cuts(step: ast.stmt) -> bool:
    """Whether a statement cuts some tensor along its last axis."""
    return any(isinstance(node, ast.Subscript) and _bound(node) is not None for node in ast.walk(step))


def _cuts(step: ast.stmt, results: set[str], kernel: ast.Call) -> list[tuple[ast.Subscript, str | None]]:
    """Places in a statement where the kernel's result is cut along its last axis."""
    test = ast.unparse(step.test) if isinstance(step, ast.If) else None
    return [
        (node, test)
        for node in ast.walk(step)
        if isinstance(node, ast.Subscript)
        and _bound(node) is not None
        and (loads(node.value) & results or any(inner is kernel for inner in ast.walk(node.value)))
    ]


def _bound(node: ast.Subscript) -> ast.expr | None:
    """`n` of `x[..., :n]` and `x[:, :, :n]`."""
    index = node.slice
    if not isinstance(index, ast.Tuple) or not isinstance(index.elts[-1], ast.Slice):
        return None
    ahead = [ast.unparse(part) for part in index.elts[:-1]]
    last = index.elts[-1]
    packed = ahead in (["..."], [":", ":"], [":", ":", ":"])
    return last.upper if packed and last.lower is None and last.step is None else None


def _assigned(function: AnyFunction, at: ast.stmt, steps: list[ast.stmt]) -> dict[str, ast.expr | None]:
    """Names of the method that are set once ahead of the kernel, and to what."""
    found: dict[str, ast.expr | None] = {}
    outside = [n for n in ast.walk(function) if isinstance(n, ast.Assign) and n.lineno < at.lineno]
    for step in [*outside, *(n for s in steps for n in ast.walk(s) if isinstance(n, ast.Assign))]:
        for name in stores(step):
            single = len(step.targets) == 1 and isinstance(step.targets[0], ast.Name) and name not in found
            found[name] = step.value if single else None
    return found


def _is_size_of_tensor(function: AnyFunction, value: ast.expr | None, pad: _Pad) -> bool:
    """`q.shape[-1]` of a tensor that is padded only afterwards."""
    if value is None or value.lineno >= pad.node.lineno:
        return False
    for name in pad.sources:
        if ast.unparse(value) in (f"{name}.shape[-1]", f"{name}.size(-1)"):
            return not any(
                isinstance(node, ast.Name)
                and isinstance(node.ctx, ast.Store)
                and node.id == name
                and value.lineno < node.lineno < pad.node.lineno
                for node in ast.walk(function)
            )
    return False


def _subtracted(known: dict[str, ast.expr | None], width: str) -> str | None:
    """`b` of a padding that is `a - b` wide."""
    node: ast.expr | None = ast.parse(width, mode="eval").body
    if isinstance(node, ast.Name):
        node = known.get(node.id)
    return ast.unparse(node.right) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) else None


def _check_views(steps: list[ast.stmt], pads: list[ast.Call], cut: ast.Subscript) -> None:
    """Between padding and cut nothing may name the sizes of a tensor: they are those of the padded heads."""
    padded = False
    for step in steps:
        here = [node for node in ast.walk(step) if any(node is pad for pad in pads)]
        ends = any(node is cut for node in ast.walk(step))
        for node in ast.walk(cut.value if ends else step):
            around = any(inner is pad for inner in ast.walk(node) for pad in pads)
            if (
                isinstance(node, ast.Call)
                and V.called(node) in ("view", "reshape", "unflatten", "expand", "repeat")
                and ((padded and not here) or around)
            ):
                raise Refusal("padded tensors are viewed by sizes that the padding changes", node)
        padded = (padded or bool(here)) and not ends


class _Taken(ast.NodeTransformer):
    """Takes padding and cut out; conditions that held nothing else go with them."""

    def __init__(self, pads: list[ast.Call], cut: ast.Subscript) -> None:
        self.gone = [*pads, cut]

    def without(self, step: ast.stmt) -> list[ast.stmt]:
        if not any(node is gone for node in ast.walk(step) for gone in self.gone):
            return [step]
        if isinstance(step, ast.If):
            each = [any(node is gone for node in ast.walk(s) for gone in self.gone) for s in step.body]
            if step.orelse or not all(each):
                raise Refusal("more than padding depends on whether heads are padded", step)
            return [self.visit(inner) for inner in step.body]
        return [self.visit(step)]

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if any(node is gone for gone in self.gone):
            return self.visit(node.args[0])  # type: ignore[no-any-return]
        return self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if any(node is gone for gone in self.gone):
            return self.visit(node.value)  # type: ignore[no-any-return]
        return self.generic_visit(node)

"""Attention kernels of other devices, told as the flash kernel they stand for.

A kernel is a row of data: what its parameters are called, how it is given the sequences and where it puts its result.
An arm that calls one is restated with a flash kernel, head padding taken out where it is shown to cancel, and then read
like any other arm.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field

from codemods.parsed_file import ParsedFile, dotted, loads, same, stores
from codemods.project import AnyFunction
from codemods.vision_attention import head_padding
from codemods.vision_attention import vocabulary as V
from codemods.vision_attention.arms import Refusal
from codemods.vision_attention.head_padding import Padding


@dataclass(frozen=True)
class Kernel:
    """One kernel for sequences that lie packed one behind the other, [tokens, heads, head_dim]."""

    name: str
    parameters: tuple[str, ...]  # those that may be passed by position
    lengths: tuple[str, ...]  # parameters that say where the sequences are
    ends: bool  # they are where each sequence ends; else how long it is
    scale: str
    default_scale: str | None  # None: it has to be given
    op: str  # the out-of-tree op that calls it, and whose it is
    out: str | None = None  # the parameter that the result is written to; else the first of what is returned
    wanted: dict[str, str] = field(default_factory=dict)  # parameters that must be given, and with which value
    heads: tuple[str, ...] = ()  # head counts, which the tensors tell as well
    harmless: dict[str, tuple[str, ...]] = field(default_factory=dict)  # values that change nothing


_ASCEND = "vllm-ascend registers its own, AscendMMEncoderAttention"
_NO_WINDOW = ("2147483647",)

KERNELS: dict[str, Kernel] = {
    kernel.name: kernel
    for kernel in (
        Kernel(
            name="_npu_flash_attention_unpad",
            parameters=("query", "key", "value", "seq_len", "scale_value", "num_heads", "num_kv_heads", "out"),
            lengths=("seq_len",),
            ends=False,
            scale="scale_value",
            default_scale=None,
            op=_ASCEND,
            out="out",
            heads=("num_heads", "num_kv_heads"),
        ),
        Kernel(
            name="npu_fusion_attention",
            parameters=("query", "key", "value", "head_num", "input_layout"),
            lengths=("actual_seq_qlen", "actual_seq_kvlen"),
            ends=True,
            scale="scale",
            default_scale="1.0",
            op=_ASCEND,
            wanted={"input_layout": "'TND'"},
            heads=("head_num",),
            harmless={
                "pse": ("None",),
                "padding_mask": ("None",),
                "atten_mask": ("None",),
                "keep_prob": ("1", "1.0"),
                "pre_tockens": _NO_WINDOW,
                "next_tockens": _NO_WINDOW,
                "inner_precise": ("0",),
                "sparse_mode": ("0",),
                "gen_mask_parallel": ("True", "False"),
                "sync": ("True", "False"),
            },
        ),
        Kernel(
            name="npu_fused_infer_attention_score",
            parameters=("query", "key", "value"),
            lengths=("actual_seq_lengths", "actual_seq_lengths_kv"),
            ends=True,
            scale="scale",
            default_scale="1.0",
            op=_ASCEND,
            wanted={"input_layout": "'TND'"},
            heads=("num_heads", "num_key_value_heads"),
            harmless={
                "pse_shift": ("None",),
                "atten_mask": ("None",),
                "block_table": ("None",),
                "pre_tokens": _NO_WINDOW,
                "next_tokens": _NO_WINDOW,
                "inner_precise": ("0",),
                "sparse_mode": ("0",),
                "softmax_lse_flag": ("False",),
            },
        ),
    )
}

_TENSORS = ("query", "key", "value")
_SAME_NUMBERS = ("tolist", "cpu", "to", "int", "long", "numpy", "detach", "contiguous", "npu", "cuda")
_BUFFERS = ("empty_like", "zeros_like", "ones_like", "empty", "zeros", "new_empty", "new_zeros")


@dataclass(frozen=True)
class Told:
    """An arm as it reads with a flash kernel in place of the device's own."""

    body: list[ast.stmt]
    kernel: Kernel
    spelled: str  # the call's function, as written
    padding: Padding | None


def is_device(call: ast.Call) -> bool:
    return V.called(call) in KERNELS


def calls(body: Sequence[ast.AST]) -> list[ast.Call]:
    """The device kernels that some statements call."""
    return [n for step in body for n in ast.walk(step) if isinstance(n, ast.Call) and is_device(n)]


def as_flash(file: ParsedFile, function: AnyFunction, body: Sequence[ast.stmt]) -> Told:
    """An arm, restated. Raises Refusal where the kernel is not shown to be plain attention within cu_seqlens."""
    copied = [deepcopy(step) for step in body]
    found = calls(copied)
    if len(found) != 1:
        raise Refusal("an arm calls a device's kernel more than once", found[1] if found else body[0])
    call = found[0]
    kernel = KERNELS[V.called(call) or ""]
    given = _arguments(kernel, call)
    flash = _flash(_Lengths(function, copied, call).cumulative(kernel, given), kernel, given, call)
    out = given.get(kernel.out) if kernel.out is not None else None
    steps = [_replaced(step, call, flash, kernel, out) for step in copied]
    if isinstance(out, ast.Name):
        steps = [step for step in steps if not _allocates(step, out.id)]
    steps, padding = head_padding.removed(file, function, body[0], steps, flash)
    if padding is not None and kernel.scale not in given:
        raise Refusal("the heads are padded and no scale is given, so it is taken from the padded head size", call)
    return Told([ast.fix_missing_locations(step) for step in steps], kernel, ast.unparse(call.func), padding)


def region(file: ParsedFile, call: ast.Call) -> tuple[list[ast.stmt], int, int]:
    """A block, and the first and last of its statements that belong to a kernel: its buffer, padding and cut."""
    statement = file.statement(call)
    above = file.parents[statement]
    blocks = [getattr(above, name, None) for name in ("body", "orelse", "finalbody")]
    block: list[ast.stmt] = next(b for b in blocks if isinstance(b, list) and statement in b)
    at = first = last = block.index(statement)
    names = {n for a in [*call.args, *(k.value for k in call.keywords)] for n in loads(a)}
    for index, step in enumerate(block):
        if index < at and stores(step) & names and (_pads(step) or any(_allocates(step, name) for name in names)):
            first = min(first, index)
        elif index > at and first < at and head_padding.cuts(step):
            last = index
            break
    return block, first, last


def _pads(step: ast.stmt) -> bool:
    return any(isinstance(node, ast.Call) and V.called(node) == "pad" for node in ast.walk(step))


def _arguments(kernel: Kernel, call: ast.Call) -> dict[str, ast.expr]:
    if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
        raise Refusal(f"the arguments of {kernel.name} are not written out", call)
    if len(call.args) > len(kernel.parameters):
        raise Refusal(f"{kernel.name} has more positional arguments than are known", call)
    given = dict(zip(kernel.parameters, call.args))
    given.update({k.arg: k.value for k in call.keywords if k.arg is not None})
    known = {*_TENSORS, *kernel.lengths, *kernel.heads, *kernel.wanted, kernel.scale, kernel.out}
    for name, value in given.items():
        if name in kernel.harmless and ast.unparse(value) not in kernel.harmless[name]:
            written = f"{name}={ast.unparse(value)}"
            raise Refusal(f"{kernel.name} is called with {written}, which is no plain attention", value)
        if name not in known and name not in kernel.harmless:
            raise Refusal(f"{kernel.name} is called with {name}=, which is not known", value)
    for name, text in kernel.wanted.items():
        if name not in given or ast.unparse(given[name]) != text:
            raise Refusal(f"{kernel.name} is not called with {name}={text}", given.get(name, call))
    needed = [*_TENSORS, *kernel.lengths, kernel.out, kernel.scale if kernel.default_scale is None else None]
    if lacking := [name for name in needed if name is not None and name not in given]:
        raise Refusal(f"{kernel.name} is called without {lacking[0]}", call)
    return given


def _flash(cumulative: ast.expr, kernel: Kernel, given: dict[str, ast.expr], call: ast.Call) -> ast.Call:
    """The same attention as a call of the flash kernel."""
    cu = ast.unparse(cumulative)
    scale = ast.unparse(given[kernel.scale]) if kernel.scale in given else kernel.default_scale
    words = [f"cu_seqlens_q={cu}", f"cu_seqlens_k={cu}"]
    words += [f"max_seqlen_{which}=({cu}[1:] - {cu}[:-1]).max()" for which in "qk"]
    words.append(f"softmax_scale={scale}")
    tensors = [ast.unparse(given[name]) for name in _TENSORS]
    made = ast.parse(f"{V.FLASH_KERNEL}({', '.join([*tensors, *words])})", mode="eval").body
    for node in ast.walk(made):
        if isinstance(node, (ast.expr, ast.keyword)):
            ast.copy_location(node, call)
    assert isinstance(made, ast.Call)
    return made


def _replaced(step: ast.stmt, call: ast.Call, flash: ast.Call, kernel: Kernel, out: ast.expr | None) -> ast.stmt:
    """A statement with the flash kernel in it."""
    if not any(node is call for node in ast.walk(step)):
        return step
    if kernel.out is not None:
        if not (isinstance(step, ast.Expr) and step.value is call and isinstance(out, ast.Name)):
            raise Refusal(f"where {kernel.name} puts its result is not understood", call)
        return ast.copy_location(ast.Assign([ast.Name(out.id, ast.Store())], flash), step)

    class Put(ast.NodeTransformer):
        done = False

        def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
            if node.value is call and ast.unparse(node.slice) == "0":
                self.done = True
                return flash
            return self.generic_visit(node)

    put = Put()
    new = put.visit(step)
    if not put.done:
        raise Refusal(f"which part of what {kernel.name} returns is used is not understood", call)
    assert isinstance(new, ast.stmt)
    return new


def _allocates(step: ast.stmt, name: str) -> bool:
    """`out = torch.empty_like(q)`: the buffer of a kernel that writes its result."""
    return (
        isinstance(step, ast.Assign)
        and [ast.unparse(target) for target in step.targets] == [name]
        and isinstance(step.value, ast.Call)
        and V.called(step.value) in _BUFFERS
    )


class _Lengths:
    """The sequences of a kernel, followed back to cu_seqlens through the names of an arm and its method."""

    def __init__(self, function: AnyFunction, arm: list[ast.stmt], call: ast.Call) -> None:
        self.call = call
        outside = [
            n
            for n in ast.walk(function)
            if isinstance(n, ast.Assign) and n.lineno < arm[0].lineno  # in line order
        ]
        inside = [n for step in arm for n in ast.walk(step) if isinstance(n, ast.Assign) and n.lineno <= call.lineno]
        self.assigned = [*outside, *inside]
        self.written = [
            n
            for n in [*ast.walk(function)]
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and n.lineno <= call.lineno
        ]
        self.since = call.lineno

    def cumulative(self, kernel: Kernel, given: dict[str, ast.expr]) -> ast.expr:
        """cu_seqlens itself: what the lengths are the differences of, or the ends all but the first of."""
        found = [self._source(kernel, given[name]) for name in kernel.lengths]
        if any(node is None or not same(node, found[0]) for node in found):
            raise Refusal(
                f"{' and '.join(kernel.lengths)} of {kernel.name} cannot be shown to follow one cu_seqlens", self.call
            )
        cu = found[0]
        assert cu is not None
        if any(n.id == dotted(cu) and n.lineno >= self.since for n in self.written):
            raise Refusal(f"{ast.unparse(cu)} is set anew before {kernel.name} is called", self.call)
        return cu

    def _source(self, kernel: Kernel, node: ast.expr) -> ast.expr | None:
        node = self._peeled(node)
        for _ in range(6):  # names that stand for one another
            if not isinstance(node, ast.Name):
                break
            values = [a for a in self.assigned if any(ast.unparse(t) == node.id for t in a.targets)]
            stores = [n for n in self.written if n.id == node.id]
            if len(values) != 1 or len(stores) != 1:
                return None
            self.since = min(self.since, values[0].lineno)
            node = self._peeled(values[0].value)
        source = _but_first(node) if kernel.ends else _differences(node)
        return source if isinstance(source, (ast.Name, ast.Attribute)) else None

    @staticmethod
    def _peeled(node: ast.expr) -> ast.expr:
        """An expression without what changes its type or device only."""
        while isinstance(node, ast.Call):
            function = node.func
            if isinstance(function, ast.Attribute) and function.attr in _SAME_NUMBERS:
                node = function.value
            elif isinstance(function, ast.Name) and function.id in ("tuple", "list") and len(node.args) == 1:
                node = node.args[0]
            else:
                break
        return node


def _differences(node: ast.expr) -> ast.expr | None:
    """`x` of `torch.diff(x)`, `x.diff()` and `x[1:] - x[:-1]`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
        first, last = _but_first(node.left), _but_last(node.right)
        return first if first is not None and same(first, last) else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "diff":
        if not node.args and not node.keywords:
            return node.func.value
        if dotted(node.func.value) in ("torch", "np", "numpy") and len(node.args) == 1 and not node.keywords:
            return node.args[0]
    return None


def _but_first(node: ast.expr) -> ast.expr | None:
    return node.value if isinstance(node, ast.Subscript) and ast.unparse(node.slice) == "1:" else None


def _but_last(node: ast.expr) -> ast.expr | None:
    return node.value if isinstance(node, ast.Subscript) and ast.unparse(node.slice) == ":-1" else None

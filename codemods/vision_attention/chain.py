"""Hand-written dispatch over attention kernels in a method: recognised by structure, or refused with the check that
failed.

A chain is one outermost `if` whose arms all compute self-attention of the same q, k, v within the same `cu_seqlens`: a
packed variable-length flash kernel, a loop of SDPA calls, xFormers, or vLLM's wrappers of these; `else: raise` may
follow.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, replace

from codemods.parsed_file import (
    ParsedFile,
    attribute_loads,
    keyword,
    loads,
    same,
    self_attribute,
    stores,
)
from codemods.project import AnyFunction, Project
from codemods.vision_attention import device_kernels, layouts
from codemods.vision_attention import vocabulary as V
from codemods.vision_attention.arms import FIRST, OUT, SECOND, Arm, Axes, Refusal, Tensor, axes_after, same_layout
from codemods.vision_attention.backend import of_the_process
from codemods.vision_attention.device_kernels import Told


@dataclass(frozen=True)
class Chain:
    """A dispatch chain in terms of MMEncoderAttention. Expressions are source text."""

    function: AnyFunction
    statement: ast.stmt
    query: str
    key: str
    value: str
    cu_seqlens: ast.expr
    max_seqlen: ast.expr | None
    scale: ast.expr | None  # as given to the flash kernel; None: the kernel's default, head_dim**-0.5
    entry: layouts.Entry
    result: str
    epilogue: str  # text with {x}, or ""
    hoisted: tuple[ast.stmt, ...] = ()  # statements of the flash arm that compute cu_seqlens or max_seqlen
    result_axes: Axes = None  # the result's layout as the flash arm leaves it, where known
    unscaled_arm: bool = False  # an arm beside the flash arm uses its kernel's default scale
    rest: tuple[ast.stmt, ...] = ()  # statements behind the first that go with it, where there is no `if`
    devices: tuple[Told, ...] = ()  # other devices' kernels among the arms


@dataclass
class _Arm:
    body: list[ast.stmt]
    test: ast.expr | None
    device: Told | None = None


_FLASH_PARAMETERS = (
    "q",
    "k",
    "v",
    "cu_seqlens_q",
    "cu_seqlens_k",
    "max_seqlen_q",
    "max_seqlen_k",
    "dropout_p",
    "softmax_scale",
    "causal",
)
_WRAPPER_PARAMETERS = ("q", "k", "v", "cu_seqlens", "max_seqlen", "batch_size", "is_rocm_aiter", "use_upstream_fa")
_HARMLESS: dict[str, tuple[str, ...]] = {
    "dropout_p": ("0", "0.0"),
    "causal": ("False",),
    "window_size": ("(-1, -1)", "[-1, -1]", "None"),
    "softcap": ("0", "0.0"),
    "alibi_slopes": ("None",),
    "deterministic": ("False",),
    "return_attn_probs": ("False",),
    "block_table": ("None",),
}


def is_flash(call: ast.Call) -> bool:
    return V.called(call) in (V.FLASH_KERNEL, V.FLASH_WRAPPER) or keyword(call, "cu_seqlens_q") is not None


def is_sdpa(call: ast.Call) -> bool:
    return V.called(call) in (V.SDPA_KERNEL, V.SDPA_WRAPPER)


def is_xformers(call: ast.Call) -> bool:
    return V.called(call) in (*V.XFORMERS_KERNELS, V.XFORMERS_WRAPPER)


def _calls(nodes: list[ast.stmt]) -> Iterator[ast.Call]:
    for node in nodes:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Call):
                yield inner


def find_chains(function: AnyFunction) -> list[ast.If]:
    """Outermost `if` statements of a method that hold a flash kernel in one arm and another kernel in another."""
    found: list[ast.If] = []

    def look(body: list[ast.stmt]) -> None:
        for statement in body:
            if isinstance(statement, ast.If):
                arms = _arms(statement)
                kinds = {kind for arm in arms for kind in _kinds(arm.body)}
                if kinds & {"flash", "device"} and sum(1 for arm in arms if _kinds(arm.body)) > 1:
                    found.append(statement)
                    continue
            for name in ("body", "orelse", "finalbody"):
                look(getattr(statement, name, []) if not isinstance(statement, (ast.FunctionDef, ast.ClassDef)) else [])

    look(function.body)
    return found


def _kinds(body: list[ast.stmt]) -> set[str]:
    kinds = set()
    for call in _calls(body):
        if device_kernels.is_device(call):
            kinds.add("device")
        elif is_flash(call):
            kinds.add("flash")
        elif is_sdpa(call):
            kinds.add("sdpa")
        elif is_xformers(call):
            kinds.add("xformers")
    return kinds


def _arms(statement: ast.If) -> list[_Arm]:
    arms = []
    node: ast.stmt = statement
    while isinstance(node, ast.If):
        arms.append(_Arm(node.body, node.test))
        if len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
            node = node.orelse[0]
            continue
        if node.orelse:
            arms.append(_Arm(node.orelse, None))
        break
    return arms


def describe(
    project: Project, file: ParsedFile, function: AnyFunction, statement: ast.If, backend: frozenset[str]
) -> Chain:
    """What a chain computes. `backend`: attributes of self (and local names) that hold the choice of a backend.

    Raises Refusal with the first check that fails.
    """
    arms = _arms(statement)
    for arm in arms:
        if device := device_kernels.calls(arm.body):
            if project.callee(file, device[0]) is not None:
                raise Refusal(f"{ast.unparse(device[0].func)} is a function of the given files", device[0])
            arm.device = device_kernels.as_flash(file, function, arm.body)
            arm.body = arm.device.body
    devices = tuple(arm.device for arm in arms if arm.device is not None)
    for arm in arms:
        if arm.test is not None and not (devices and of_the_process(file, function, arm.test)):
            _check_test(project, file, arm.test, backend)
    flash = sorted((arm for arm in arms if "flash" in _kinds(arm.body)), key=lambda arm: arm.device is not None)
    if len(flash) - len(devices) > 1:
        raise Refusal("more than one arm calls a flash kernel", statement)
    found = _flash_arm(file, function, statement, flash[0])
    for arm in flash[1:]:
        _check_alike(found, _flash_arm(file, function, statement, arm))
    others = [arm for arm in arms if arm not in flash]
    if found.entry.order_unknown:
        axes = {
            axis for arm in others if (run := _check_arm(file, arm, found, statement)) for axis in run.sequence_axes
        }
        if axes not in ({FIRST}, {SECOND}):
            raise Refusal("which axis of q is the sequence is not provable", statement)
        prologue = "s b h d -> b s h d" if axes == {FIRST} else None
        found = replace(found, entry=replace(found.entry, order_unknown=False, prologue=prologue))
    checked = [run for arm in others if (run := _check_arm(file, arm, found, statement)) is not None]
    unscaled = any(scale is None for run in checked for scale in run.scales)
    return replace(found, unscaled_arm=unscaled or _unscaled(flash), devices=devices)


def describe_alone(file: ParsedFile, function: AnyFunction, call: ast.Call) -> Chain:
    """What the statements around a device's kernel compute that stands in no `if`.

    Raises Refusal with the first check that fails.
    """
    block, first, last = device_kernels.region(file, call)
    told = device_kernels.as_flash(file, function, block[first : last + 1])
    found = _flash_arm(file, function, block[last], _Arm(told.body, None))
    return replace(found, statement=block[first], rest=tuple(block[first + 1 : last + 1]), devices=(told,))


def _unscaled(flash: list[_Arm]) -> bool:
    """Whether one of several flash arms gives its kernel no scale, and another does."""
    given = [keyword(call, "softmax_scale") is not None for arm in flash for call in _calls(arm.body) if is_flash(call)]
    return any(given) and not all(given)


def _check_alike(one: Chain, other: Chain) -> None:
    """Two flash arms must be the same attention: the same tensors, sequences and layout."""
    if (one.query, one.key, one.value) != (other.query, other.key, other.value):
        raise Refusal("the arms attend with different tensors", other.statement)
    if not same(one.cu_seqlens, other.cu_seqlens):
        raise Refusal("the arms attend within different sequences", other.statement)
    if (one.entry, one.result, one.epilogue) != (other.entry, other.result, other.epilogue):
        raise Refusal("the arms leave their results in layouts that cannot be shown to be the same", other.statement)
    if one.scale is not None and other.scale is not None and not same(one.scale, other.scale):
        raise Refusal("an arm scales differently from the flash arm", other.scale)


def _check_test(project: Project, file: ParsedFile, test: ast.expr, backend: frozenset[str]) -> None:
    """A dispatch test may ask for the backend and the platform only, else the arms may mean different things."""
    for node in ast.walk(test):
        attribute = self_attribute(node)
        if attribute is not None and attribute not in backend:
            raise Refusal(f"the dispatch also depends on self.{attribute}", node)
        if isinstance(node, ast.Name) and node.id != "self" and node.id not in backend:
            meaning = project.meaning(file, node) or ""
            if V.last(meaning) not in (*V.ENUMS, "current_platform"):
                raise Refusal(f"the dispatch also depends on {node.id}", node)


def _flash_arm(file: ParsedFile, function: AnyFunction, statement: ast.stmt, arm: _Arm) -> Chain:
    kernels = [call for call in _calls(arm.body) if is_flash(call)]
    if len(kernels) != 1:
        raise Refusal("the flash arm calls its kernel more than once", statement)
    kernel = kernels[0]
    wrapper = V.called(kernel) == V.FLASH_WRAPPER
    values: dict[str, layouts.Value | None] = {}
    local: dict[str, ast.stmt] = {}  # other names the arm computes
    at_kernel: dict[str, layouts.Value | None] = {}
    for step in arm.body:
        if _ignorable(step):
            continue
        pairs = _assignments(step)
        if pairs is None:
            raise Refusal("the flash arm does more than attention", step)
        if any(node is kernel for node in ast.walk(step)):
            at_kernel = dict(values)
        new = {name: layouts.evaluate(value, values, kernel) for name, value in pairs}
        for name, value in new.items():
            if value is None:
                if any(node is kernel for node in ast.walk(step)):
                    raise Refusal("what is done to the kernel's result is not understood", step)
                local[name] = step
        values.update(new)
    given = _kernel_arguments(kernel, wrapper)
    tensors = []
    for name in ("q", "k", "v"):
        node = given.get(name)
        value = layouts.evaluate(node, at_kernel) if node is not None else None
        if value is None:
            raise Refusal(f"how {name} reaches the flash kernel is not understood", node or kernel)
        tensors.append(value)
    if len({tuple(layouts.signature(t)) for t in tensors}) != 1:
        raise Refusal("q, k and v are packed differently", kernel)
    if len({tensor.base for tensor in tensors}) != 3:
        raise Refusal("q, k and v are not three tensors", kernel)
    entry = layouts.Entry(packed=False) if wrapper else layouts.entry(tensors[0])
    if entry is None or (wrapper and any(t.operations for t in tensors)):
        raise Refusal("the layout of q, k and v is not provable", kernel)
    cu, longest = _lengths(kernel, given, wrapper)
    scale = given.get("softmax_scale", given.get("scale"))
    if isinstance(scale, ast.Constant) and scale.value is None:
        scale = None
    result, value = _result(file, function, statement, arm, values)
    exit_ = _exit(file, value, entry, wrapper, kernel)
    result_axes = _result_axes(value, entry, wrapper)
    written = {n for s in arm.body for n in stores(s)}
    hoisted = _hoisted(local, [cu, longest], kernel, written)
    kept = {n for step in hoisted for n in stores(step)}
    if exit_ and loads(ast.parse(exit_.format(x="self"))) & (written - kept):
        raise Refusal("the layout of the result depends on names that only the arm sets", kernel)
    after = _loaded_after(file, function, statement)
    rebound = (written - {result} - kept) & after
    if rebound:
        raise Refusal(f"{sorted(rebound)[0]} is set in an arm and used after it", statement)
    return Chain(
        function,
        statement,
        tensors[0].base,
        tensors[1].base,
        tensors[2].base,
        cu,
        longest,
        scale,
        entry,
        result,
        exit_,
        hoisted,
        result_axes,
    )


def _ignorable(step: ast.stmt) -> bool:
    """Imports (also chosen by `if`), assertions, `if x is None: raise`, comments and copies made for a platform."""
    if isinstance(step, (ast.Import, ast.ImportFrom, ast.Assert, ast.Pass)):
        return True
    if isinstance(step, ast.Expr):
        return isinstance(step.value, ast.Constant)
    if isinstance(step, ast.If):
        if all(isinstance(s, ast.Raise) for s in step.body) and not step.orelse:
            return True
        if all(_ignorable(s) for s in [*step.body, *step.orelse]):
            return True
        return all(_only_contiguous(s) for s in step.body) and not step.orelse
    return False


def _only_contiguous(step: ast.stmt) -> bool:
    """`q = q.contiguous()`: vLLM's SDPA wrapper does this itself from 0.13 on, where a platform needs it."""
    pairs = _assignments(step)
    if not pairs:
        return False
    values = [(name, layouts.evaluate(value, {})) for name, value in pairs]
    return all(
        v is not None and v.base == name and all(layouts.operation(o) == "contiguous" for o in v.operations)
        for name, v in values
    )


def _assignments(step: ast.stmt) -> list[tuple[str, ast.expr]] | None:
    """(name, expression) pairs of an assignment; a generator over names is written out for each of them."""
    if isinstance(step, ast.AnnAssign) and isinstance(step.target, ast.Name) and step.value is not None:
        return [(step.target.id, step.value)]
    if not (isinstance(step, ast.Assign) and len(step.targets) == 1):
        return None
    target, value = step.targets[0], step.value
    if isinstance(target, ast.Name):
        return [(target.id, value)]
    if not isinstance(target, ast.Tuple) or not all(isinstance(t, ast.Name) for t in target.elts):
        return None
    names = [t.id for t in target.elts if isinstance(t, ast.Name)]
    if (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Name)
        and value.func.id in ("tuple", "list")
        and len(value.args) == 1
    ):
        value = value.args[0]
    if isinstance(value, ast.Tuple) and len(value.elts) == len(names):
        return list(zip(names, value.elts))
    if isinstance(value, (ast.GeneratorExp, ast.ListComp)) and len(value.generators) == 1:
        over = value.generators[0]
        if (
            isinstance(over.target, ast.Name)
            and isinstance(over.iter, (ast.Tuple, ast.List))
            and not over.ifs
            and len(over.iter.elts) == len(names)
        ):
            return [(name, _substituted(value.elt, over.target.id, item)) for name, item in zip(names, over.iter.elts)]
    if isinstance(value, ast.Call):
        return [(name, value) for name in names]
    return None


def _substituted(node: ast.expr, name: str, item: ast.expr) -> ast.expr:
    class Put(ast.NodeTransformer):
        def visit_Name(self, inner: ast.Name) -> ast.AST:
            return item if inner.id == name else inner

    return Put().visit(deepcopy(node))  # type: ignore[no-any-return]


def _kernel_arguments(kernel: ast.Call, wrapper: bool) -> dict[str, ast.expr]:
    names: tuple[str, ...] = _WRAPPER_PARAMETERS if wrapper else _FLASH_PARAMETERS
    if any(isinstance(a, ast.Starred) for a in kernel.args) or any(k.arg is None for k in kernel.keywords):
        raise Refusal("the flash kernel's arguments are not written out", kernel)
    if (
        not wrapper
        and len(kernel.args) >= 7
        and same(kernel.args[3], kernel.args[5])
        and same(kernel.args[4], kernel.args[6])
    ):
        # vLLM's own build of the kernel takes max_seqlen_q, cu_seqlens_q, max_seqlen_k, cu_seqlens_k in turn
        names = ("q", "k", "v", "max_seqlen_q", "cu_seqlens_q", "max_seqlen_k", "cu_seqlens_k")
    if len(kernel.args) > len(names):
        raise Refusal("the flash kernel has more positional arguments than are known", kernel)
    given = dict(zip(names, kernel.args))
    given.update({k.arg: k.value for k in kernel.keywords if k.arg is not None})
    known = {*_FLASH_PARAMETERS, *_WRAPPER_PARAMETERS, "scale"}
    for name, value in given.items():
        if name in _HARMLESS:
            if ast.unparse(value) not in _HARMLESS[name]:
                raise Refusal(
                    f"the flash kernel is called with {name}={ast.unparse(value)}, which MMEncoderAttention has not",
                    value,
                )
        elif name not in known:
            raise Refusal(f"the flash kernel is called with {name}=, which MMEncoderAttention has not", value)
    return given


def _lengths(kernel: ast.Call, given: dict[str, ast.expr], wrapper: bool) -> tuple[ast.expr, ast.expr | None]:
    if wrapper:
        if "cu_seqlens" not in given or "max_seqlen" not in given:
            raise Refusal("the flash wrapper's cu_seqlens or max_seqlen is missing", kernel)
        return given["cu_seqlens"], given["max_seqlen"]
    for name in ("cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"):
        if name not in given:
            raise Refusal(f"the flash kernel is called without {name}", kernel)
    if not same(given["cu_seqlens_q"], given["cu_seqlens_k"]):
        raise Refusal("cu_seqlens differs between q and k: this is cross-attention", kernel)
    if not same(given["max_seqlen_q"], given["max_seqlen_k"]):
        raise Refusal("max_seqlen differs between q and k: this is cross-attention", kernel)
    return given["cu_seqlens_q"], given["max_seqlen_q"]


def _loaded_after(file: ParsedFile, function: AnyFunction, statement: ast.stmt) -> set[str]:
    """Names whose value at the end of the statement is read behind it, in its function."""
    names: set[str] = set()
    set_again: set[str] = set()
    node: ast.AST = statement
    while node is not function:
        above = file.parents[node]
        for block in ("body", "orelse", "finalbody"):
            body = getattr(above, block, [])
            if node in body:
                for later in body[body.index(node) + 1 :]:
                    names |= loads(later) - set_again
                    if isinstance(later, (ast.Assign, ast.AnnAssign)):
                        set_again |= stores(later)
        if isinstance(above, (ast.For, ast.While)):
            names |= loads(above)
        node = above
    return names


def _result(
    file: ParsedFile, function: AnyFunction, statement: ast.stmt, arm: _Arm, values: dict[str, layouts.Value | None]
) -> tuple[str, layouts.Value]:
    after = _loaded_after(file, function, statement)
    found = [
        (name, value)
        for name, value in values.items()
        if value is not None and value.base == layouts.KERNEL and name in after
    ]
    if len(found) != 1:
        if any(isinstance(s, ast.Return) for s in arm.body):
            raise Refusal("an arm returns instead of setting a result", statement)
        raise Refusal("the chain's result is not one name", statement)
    return found[0]


def _exit(file: ParsedFile, value: layouts.Value, entry: layouts.Entry, wrapper: bool, kernel: ast.Call) -> str:
    rearrange = rearrange_name(file)
    if wrapper:  # up to 0.12 the wrappers gave [s, b, h * d]
        start = f'{rearrange}({{x}}, "b s h d -> s b (h d)").contiguous()'
        return layouts._replay(start, list(value.operations))
    found = layouts.exit_layout(value, entry, rearrange)
    if found is None:
        raise Refusal("the layout of the result is not provable", kernel)
    return found.code


def _result_axes(value: layouts.Value, entry: layouts.Entry, wrapper: bool) -> Axes:
    axes: Axes = ("s", "b", "(h d)") if wrapper else ("s", "h", "d") if entry.packed else ("(b s)", "h", "d")
    for call in value.operations:
        if (
            layouts.operation(call) in ("view", "reshape")
            and layouts.unpacks(call, entry)
            and axes == ("(b s)", "h", "d")
        ):
            axes = ("b", "s", "h", "d")
        else:
            axes = axes_after(axes, call)
    return axes


def rearrange_name(file: ParsedFile) -> str:
    """How this file calls einops' rearrange."""
    for imported in file.imports:
        if imported.qualified == "einops.rearrange" and isinstance(imported.scope, ast.Module):
            return imported.alias
    for imported in file.imports:
        if imported.qualified == "einops" and imported.name is None and isinstance(imported.scope, ast.Module):
            return f"{imported.alias}.rearrange"
    return "rearrange"


def _hoisted(
    local: dict[str, ast.stmt], wanted: list[ast.expr | None], kernel: ast.Call, stores_in_arm: set[str]
) -> tuple[ast.stmt, ...]:
    """Statements of the arm that compute what the kernel's lengths need, in order."""
    needed: list[ast.stmt] = []
    names = {n for node in wanted if node is not None for n in loads(node)}
    while names:
        name = names.pop()
        if name not in stores_in_arm:
            continue
        step = local.get(name)
        if step is None:
            raise Refusal(f"{name} is not understood", kernel)
        if step not in needed:
            needed.append(step)
            names |= loads(step)
    if any(loads(step) & stores_in_arm - {n for s in needed for n in stores(s)} for step in needed):
        raise Refusal("how the arm computes its lengths is not understood", kernel)
    return tuple(sorted(needed, key=lambda step: step.lineno))


def _check_arm(file: ParsedFile, arm: _Arm, chain: Chain, statement: ast.If) -> Arm | None:
    """Every other arm must be the same attention: same tensors in the same roles, same cu_seqlens, no mask."""
    if all(isinstance(step, ast.Raise) for step in arm.body):
        return None
    where: ast.AST = arm.test or arm.body[0]
    kinds = _kinds(arm.body)
    if not kinds:
        raise Refusal("an arm calls no attention kernel that is known", where)
    written = {n for step in arm.body for n in stores(step)}
    if any(isinstance(inner, ast.Return) for step in arm.body for inner in ast.walk(step)):
        raise Refusal("an arm returns instead of setting a result", where)
    after = _loaded_after(file, chain.function, statement)
    if rebound := (written - {chain.result}) & after:
        raise Refusal(f"{sorted(rebound)[0]} is set in an arm and used after it", where)
    read = {n for step in arm.body for n in loads(step)} | {n for step in arm.body for n in attribute_loads(step)}
    lengths = loads(chain.cu_seqlens) | attribute_loads(chain.cu_seqlens)
    if "xformers" not in kinds and not lengths & read and not chain.hoisted:
        raise Refusal("an arm attends without the cu_seqlens of the flash arm", where)
    axes = (FIRST, SECOND, "h", "d") if chain.entry.order_unknown else chain.entry.axes
    run = Arm(
        {name: Tensor(role, axes) for name, role in ((chain.query, "q"), (chain.key, "k"), (chain.value, "v"))},
        chain.cu_seqlens,
    )
    run.run(arm.body)
    found = run.known.get(chain.result)
    if not isinstance(found, Tensor) or found.role != OUT:
        raise Refusal(f"an arm does not set {chain.result} to what its kernel gives", where)
    if not chain.entry.order_unknown and not same_layout(found.axes, chain.result_axes):
        raise Refusal(f"the arms leave {chain.result} in different layouts", where)
    for scale in run.scales:
        if scale is not None and not same(scale, chain.scale):
            raise Refusal("an arm scales differently from the flash arm", scale)
    return run

"""How many heads of which size a class attends with, read from the shapes it gives its tensors."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from codemods.parsed_file import attribute_loads, dotted, keyword, self_attribute
from codemods.project import Class, Project
from codemods.vision_attention import layouts, sizes
from codemods.vision_attention import vocabulary as V
from codemods.vision_attention.arms import Refusal
from codemods.vision_attention.backend import BackendState
from codemods.vision_attention.chain import Chain


@dataclass(frozen=True)
class Heads:
    """Attributes of self: heads per tensor-parallel rank, head size, key/value heads where they differ, and the scale.

    `scale` is an expression in terms of self; `default_scale` says whether it provably is head_size**-0.5.
    """

    num_heads: str
    head_size: str
    num_kv_heads: str | None
    scale: str
    default_scale: bool


def heads(
    project: Project,
    owner: Class,
    constructor: ast.FunctionDef | ast.AsyncFunctionDef,
    chain: Chain,
    state: BackendState,
) -> Heads:
    """The class's heads. Raises Refusal where two readings are possible or nothing proves one."""
    cls = owner.node
    assigned = _assigned(constructor)
    shapes = list(_shapes(cls))
    size = _size(constructor, shapes, assigned, state)
    count = _count(shapes, assigned, size, constructor, chain)
    kv = _kv(cls, chain, count, size, assigned)
    sizes.check_kept(project, owner, constructor, [count, size, *([kv] if kv else [])])
    scale, default = _scale(project, owner, constructor, chain, size, assigned)
    sizes.check_kept(project, owner, constructor, attribute_loads(ast.parse(scale)))
    return Heads(count, size, kv, scale, default)


def _assigned(constructor: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, ast.expr]:
    """Attribute of self -> the expression it is set to (the last one) in the constructor."""
    found: dict[str, ast.expr] = {}
    for node in ast.walk(constructor):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and (name := self_attribute(node.targets[0])):
            found[name] = node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None and (name := self_attribute(node.target)):
            found[name] = node.value
    return found


def _changed(cls: ast.ClassDef) -> set[str]:
    """Attributes of self that are set more than once in the class."""
    seen: list[str] = [
        name
        for node in ast.walk(cls)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and (name := self_attribute(node)) is not None
    ]
    return {name for name in seen if seen.count(name) > 1}


def _shapes(cls: ast.ClassDef) -> list[tuple[str | None, str | None, str | None]]:
    """(tensor, heads attribute, head size attribute) for every shape a method gives a tensor as its last two axes."""
    found: list[tuple[str | None, str | None, str | None]] = []
    for node in ast.walk(cls):
        if isinstance(node, ast.Call):
            name = layouts.operation(node)
            if name in ("view", "reshape"):
                arguments = (
                    list(node.args[0].elts)
                    if len(node.args) == 1 and isinstance(node.args[0], (ast.Tuple, ast.List))
                    else node.args
                )
                found += _last_two(dotted(node.func.value), arguments)  # type: ignore[attr-defined]
            elif name == "rearrange":
                sides = layouts.pattern(node)
                if sides is not None and len(sides[1]) >= 3:
                    given = {k.arg: self_attribute(k.value) for k in node.keywords}
                    pair = (given.get(sides[1][-2]), given.get(sides[1][-1]))
                    if any(pair):
                        found.append((dotted(node.args[0]), *pair))
            elif (
                V.called(node) in ("unflatten",)
                and len(node.args) == 2
                and isinstance(node.args[1], (ast.Tuple, ast.List))
            ):
                found += _last_two(None, list(node.args[1].elts))
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple) and len(node.value.elts) >= 3:
            found += _last_two(None, list(node.value.elts))
    return found


def _last_two(tensor: str | None, arguments: list[ast.expr]) -> list[tuple[str | None, str | None, str | None]]:
    if len(arguments) < 3 and not any(isinstance(a, ast.Starred) for a in arguments):
        return []
    pair = [self_attribute(a) for a in arguments[-2:]]
    return [(tensor, pair[0], pair[1])] if len(pair) == 2 and pair[0] and pair[1] else []


def _size(
    constructor: ast.FunctionDef | ast.AsyncFunctionDef,
    shapes: list[tuple[str | None, str | None, str | None]],
    assigned: dict[str, ast.expr],
    state: BackendState,
) -> str:
    given = {
        name
        for call in state.calls
        if (name := self_attribute(keyword(call, "head_size") or (call.args[0] if call.args else None))) is not None
    }
    seen = {size for _, _, size in shapes if size}
    if given and seen and not given & seen:
        raise Refusal(
            f"the backend is asked for with self.{min(given)}, and tensors are viewed with self.{min(seen)}",
            constructor,
        )
    for candidates in (given, seen):
        if len(candidates) == 1:
            return candidates.pop()
        if len(candidates) > 1:
            raise Refusal(f"the head size is not one attribute ({', '.join(sorted(candidates))})", constructor)
    computed = {
        name
        for name, value in assigned.items()
        if (by := _divided(value)) is not None and "head" in ast.unparse(by) and not _by_ranks(by, assigned)
    }
    if len(computed) == 1:
        return computed.pop()
    raise Refusal("the head size is not an attribute of self that can be told", constructor)


def _count(
    shapes: list[tuple[str | None, str | None, str | None]],
    assigned: dict[str, ast.expr],
    size: str,
    constructor: ast.AST,
    chain: Chain,
) -> str:
    per_rank = {
        name for name, value in assigned.items() if (by := _divided(value)) is not None and _by_ranks(by, assigned)
    }
    seen = {count for tensor, count, of in shapes if count and of in (size, None) and tensor in (chain.query, None)}
    seen = seen or {
        count for tensor, count, of in shapes if count and of in (size, None) and tensor not in (chain.key, chain.value)
    }
    if len(seen) > 1:
        seen &= per_rank
    if len(seen) == 1:
        return seen.pop()
    per_rank -= {count for tensor, count, _ in shapes if count and tensor in (chain.key, chain.value)}
    if not seen and len(per_rank) == 1:
        return per_rank.pop()
    raise Refusal("the number of heads per rank is not one attribute of self that can be told", constructor)


def _kv(cls: ast.ClassDef, chain: Chain, count: str, size: str, assigned: dict[str, ast.expr]) -> str | None:
    seen = {c for tensor, c, of in _shapes(cls) if tensor in (chain.key, chain.value) and c and of in (size, None)}
    different = seen - {count}
    if len(different) > 1:
        raise Refusal("the number of key/value heads is not one attribute of self", chain.statement)
    if _spread(chain):
        return None
    if (free := _free_heads(cls, chain, size)) is not None:
        raise Refusal("how many heads k and v have is left to -1", free)
    others = {c for tensor, c, of in _shapes(cls) if c and of == size and tensor != chain.query} - {count}
    if not different and others:
        raise Refusal(f"which heads k and v have is not shown: some tensor has self.{min(others)}", chain.statement)
    return different.pop() if different else None


def _free_heads(cls: ast.ClassDef, chain: Chain, size: str) -> ast.Call | None:
    """A view of k or v whose heads follow from the width, `k.view(b, s, -1, self.head_dim)`: as many as k has."""
    for node in ast.walk(cls):
        if (
            isinstance(node, ast.Call)
            and layouts.operation(node) in ("view", "reshape")
            and isinstance(node.func, ast.Attribute)
            and dotted(node.func.value) in (chain.key, chain.value)
            and len(node.args) > 2
            and self_attribute(node.args[-1]) == size
            and ast.unparse(node.args[-2]) == "-1"
        ):
            return node
    return None


def _spread(chain: Chain) -> bool:
    """Whether k or v are repeated over the query heads before the dispatch: they then have as many heads as q."""
    for statement in ast.walk(chain.function):
        if isinstance(statement, ast.Assign) and statement.lineno < chain.statement.lineno:
            names = {n.id for target in statement.targets for n in ast.walk(target) if isinstance(n, ast.Name)}
            calls = {V.called(n) or "" for n in ast.walk(statement.value) if isinstance(n, ast.Call)}
            if names & {chain.key, chain.value} and any(
                word in call for call in calls for word in ("repeat", "expand", "tile")
            ):
                return True
    return False


def _divided(value: ast.expr) -> ast.expr | None:
    """The divisor of `divide(a, b)` or `a // b`, also inside `max(1, ...)`."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.FloorDiv):
        return value.right
    if isinstance(value, ast.Call):
        if V.called(value) == "divide" and len(value.args) == 2:
            return value.args[1]
        if V.called(value) in ("max", "int"):
            return next((by for a in value.args if (by := _divided(a)) is not None), None)
    return None


def _by_ranks(divisor: ast.expr | None, assigned: dict[str, ast.expr]) -> bool:
    """Whether a divisor is the tensor-parallel size."""
    if divisor is None:
        return False
    text = ast.unparse(divisor)
    name = self_attribute(divisor)
    if name is not None and name in assigned:
        text += ast.unparse(assigned[name])
    return "tp_size" in text or "tensor_model_parallel_world_size" in text


def is_default_scale(value: ast.expr, size: str) -> bool:
    """Whether an expression reads as head_size**-0.5 (`size`: the head size's attribute)."""
    below = sizes.rooted(value)
    return below is not None and dotted(below) in (size, f"self.{size}")


def _scale(
    project: Project,
    owner: Class,
    constructor: ast.FunctionDef | ast.AsyncFunctionDef,
    chain: Chain,
    size: str,
    assigned: dict[str, ast.expr],
) -> tuple[str, bool]:
    default = f"self.{size}**-0.5"
    known = sizes.Constructor(constructor, sizes.set_by_bases(project, owner))

    def is_default(name: str) -> bool:
        scale, head = (ast.parse(f"self.{one}", mode="eval").body for one in (name, size))
        return known.is_root(scale, known.end, head, known.end)

    changed = _changed(owner.node)
    if chain.scale is None:  # the kernels took that of the size that reached them, whatever the class calls its scale
        own = next(
            (
                name
                for name in assigned
                if name not in changed
                and known.always(f"self.{name}")
                and is_default(name)
                and not any(sizes.setters(project, owner, constructor, name))
            ),
            None,
        )
        return (f"self.{own}" if own else default), True
    name = self_attribute(chain.scale)
    if name is not None and name in changed:
        raise Refusal(f"self.{name} is set more than once", chain.scale)
    if name is not None and name in assigned:
        return f"self.{name}", is_default(name)
    if (below := sizes.rooted(chain.scale)) is not None and self_attribute(below) == size:
        return default, True
    if all(
        isinstance(n, (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)) for n in ast.walk(chain.scale)
    ):
        return ast.unparse(chain.scale), False
    raise Refusal("the scale given to the flash kernel is not known in the constructor", chain.scale)

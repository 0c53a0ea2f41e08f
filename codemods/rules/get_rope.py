"""VA502: get_rope is called the way the target's get_rope is: the share of a head that rotates is a rope parameter."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from codemods import edits as E
from codemods.findings import Severity
from codemods.parsed_file import ParsedFile, dotted, keyword, same, self_attribute
from codemods.plan import FilePlan, Plan
from codemods.rule import Example, Rule
from codemods.uses import is_pure
from codemods.vision_attention import vocabulary as V
from codemods.vision_attention.arms import Refusal

GET_ROPE = "vllm.model_executor.layers.rotary_embedding.get_rope"

# The parameters of get_rope in order; 0.12 put rope_parameters in place of base and rope_scaling.
_WITH_BASE = ("head_size", "rotary_dim", "max_position", "base", "is_neox_style", "rope_scaling", "dtype")
_WITH_PARAMETERS = ("head_size", "rotary_dim", "max_position", "is_neox_style", "rope_parameters", "dtype")
_LINE = 88  # the formatter default of vLLM and of most plugins
_GONE = ("rotary_dim", "base", "rope_scaling", "partial_rotary_factor")

_BEFORE = """\
from torch import nn
from vllm.model_executor.layers.rotary_embedding import get_rope


class Tower(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        head_dim = width // heads
        self.rotary = get_rope(head_size=head_dim, rotary_dim=head_dim // 2, max_position=8192, is_neox_style=True)
"""

_AFTER = """\
from torch import nn
from vllm.model_executor.layers.rotary_embedding import get_rope


class Tower(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        head_dim = width // heads
        self.rotary = get_rope(head_size=head_dim, rope_parameters={"partial_rotary_factor": 0.5}, max_position=8192, is_neox_style=True)
"""  # noqa: E501  the rewritten call stays on its line

_OLDER = """\
from vllm.model_executor.layers.rotary_embedding import get_rope

HEAD = 64


def build(positions: int):
    return get_rope(
        HEAD,
        rotary_dim=HEAD,
        max_position=positions,
        base=10000.0,
        rope_scaling={"rope_type": "linear", "factor": 2.0},
    )
"""

_NEWER = """\
from vllm.model_executor.layers.rotary_embedding import get_rope

HEAD = 64


def build(positions: int):
    return get_rope(
        HEAD,
        max_position=positions,
        rope_parameters={"rope_theta": 10000.0, "rope_type": "linear", "factor": 2.0},
    )
"""

_CONFIGURED = """\
from vllm.model_executor.layers.rotary_embedding import get_rope


def build(config):
    return get_rope(config.head_dim, rotary_dim=config.head_dim, max_position=8192, base=config.rope_theta)
"""


def plan(run: Plan) -> None:
    signature = run.api.signature(GET_ROPE)
    if signature is None or "rotary_dim" in signature:
        return
    for file in run.open_files:
        if not any(i.name == V.last(GET_ROPE) for i in file.file.imports):
            continue
        for call in file.file.nodes[ast.Call]:
            assert isinstance(call, ast.Call)
            if run.project.vllm(file.file, call.func) != GET_ROPE or file.gone(call) or not _is_old(file, call):
                continue
            try:
                _plan_call(file, call, run.target.version)
            except Refusal as refusal:
                file.find(
                    RULE,
                    refusal.node,
                    Severity.ERROR,
                    f"get_rope is left as it is: {refusal.check}",
                    "Pass rope_parameters with rope_theta, and with partial_rotary_factor for rotary_dim / head_size: "
                    "config.rope_parameters has them where the configuration says so.",
                    covers=call,
                )


def _is_old(file: FilePlan, call: ast.Call) -> bool:
    """Whether a call is written for 0.12 or before: it passes what is gone, or the size of a head twice."""
    if any(k.arg in _GONE for k in call.keywords):
        return True
    if len(call.args) < 2 or (keyword(call, "max_position") is None and len(call.args) < 3):
        return False
    head, second = call.args[:2]
    return same(head, second) or (isinstance(second, ast.BinOp) and same(head, second.left))


def _plan_call(file: FilePlan, call: ast.Call, version: str) -> None:
    if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
        raise Refusal("its arguments are passed on as a whole", call)
    names = _order(call)
    given: dict[str, ast.expr] = dict(zip(names, call.args))
    given.update({k.arg: k.value for k in call.keywords if k.arg is not None})
    share = _share(file.file, call, given)
    items = _rope_items(file.file, call, given)
    if share is not None:
        items = {**items, "partial_rotary_factor": share}
    parts = _parts(file.file, call, items, given.get("rope_parameters"))
    kept = [n for n in names[: len(call.args)] if n not in _GONE]
    if kept != ["head_size", "max_position", "is_neox_style", "rope_parameters", "dtype"][: len(kept)]:
        raise Refusal("its positional arguments do not follow the new order", call)
    if parts and "rope_parameters" in kept:
        raise Refusal("rope_parameters is passed by position", call)
    message = f"get_rope takes {'rope_parameters' if parts else 'no rotary_dim'} in vLLM {version}"
    file.rewrite(RULE, call, message, [], review=_review(given, share))
    _carry_out(file, call, names, parts)


def _order(call: ast.Call) -> tuple[str, ...]:
    words = {k.arg for k in call.keywords}
    fourth = call.args[3] if len(call.args) > 3 else None
    if words & {"base", "rope_scaling"}:
        return _WITH_BASE
    if (
        fourth is None
        or "rope_parameters" in words
        or (isinstance(fourth, ast.Constant) and isinstance(fourth.value, bool))
    ):
        return _WITH_PARAMETERS
    if isinstance(fourth, ast.Constant):
        return _WITH_BASE
    raise Refusal("whether its fourth argument is the base or the style is not clear", fourth)


def _carry_out(file: FilePlan, call: ast.Call, names: tuple[str, ...], parts: list[str]) -> None:
    """Take out what is gone; rope_parameters stands in place of the last keyword that goes."""
    ref = E.Ref.of(call)
    for index in reversed(range(len(call.args))):
        if names[index] in _GONE:
            file.add(E.RemoveArgument(ref, index))
            file.removed.append(E.Ref.of(call.args[index]))
            file.rewritten.append(E.Ref.of(call.args[index]))
    going = [k for k in call.keywords if k.arg in _GONE]
    place = next((k for k in call.keywords if k.arg == "rope_parameters"), going[-1] if going else None)
    for word in going:
        if word is not place or not parts:
            file.remove_argument(call, word.arg or "")
    if parts:
        value = _laid_out(file.file, call, place, parts)
        file.add(E.SetArgument(ref, (place.arg if place else None) or "rope_parameters", "rope_parameters", value))
        file.inserted.append((ref, value))
        if place is not None:
            file.removed.append(E.Ref.of(place.value))
            file.rewritten.append(E.Ref.of(place))


def _laid_out(file: ParsedFile, call: ast.Call, place: ast.keyword | None, parts: list[str]) -> str:
    """The entries as a display: on one line, or one a line where a line of the keyword's own is too short."""
    line = f"{{{', '.join(parts)}}}"
    if place is None or place.col_offset + len(f"rope_parameters={line},") <= _LINE:
        return line
    if file.lines[place.lineno - 1][: place.col_offset].strip():
        return line
    indent = " " * (place.col_offset - file.statement(call).col_offset)
    return "\n".join(["{", *(f"{indent}    {part}," for part in parts), f"{indent}}}"])


# -- what the call meant -----------------------------------------------------------------------------------------------


def _share(file: ParsedFile, call: ast.Call, given: Mapping[str, ast.expr]) -> str | None:
    """The share of a head that rotates, as source text; None for the whole head."""
    head, rotary, factor = (given.get(n) for n in ("head_size", "rotary_dim", "partial_rotary_factor"))
    if isinstance(factor, ast.Constant) and factor.value in (1, 1.0):
        factor = None
    if head is None:
        raise Refusal("it is not given head_size", call)
    share = _of_head(file, call, head, rotary) if rotary is not None else None
    if factor is None:
        return share
    if share is not None:
        raise Refusal("rotary_dim and partial_rotary_factor both cut the head", call)
    return file.written(factor)  # get_rope made int(head_size * factor) of the two, as it does now


def _of_head(file: ParsedFile, call: ast.Call, head: ast.expr, rotary: ast.expr) -> str | None:
    whole = _expanded(file, call, head)

    def is_head(node: ast.expr) -> bool:
        return same(_expanded(file, call, node), whole)

    for part in _forms(file, call, rotary):
        if is_head(part):
            return None
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.FloorDiv) and is_head(part.left):
            by = _integer(part.right)
            # only a power of two has an exact inverse, so that int(head_size * share) is rotary_dim again
            if by and by > 0 and by & (by - 1) == 0:
                return repr(1 / by)
        if isinstance(part, ast.Call) and V.called(part) == "int" and len(part.args) == 1:
            product = part.args[0]
            if isinstance(product, ast.BinOp) and isinstance(product.op, ast.Mult):
                for one, other in ((product.left, product.right), (product.right, product.left)):
                    if is_head(one) and _reads_alike(file, call, other):
                        return file.written(other)
        size, width = _integer(whole), _integer(part)
        if size and width and int(size * (width / size)) == width:
            return repr(width / size)
    raise Refusal(f"which share of the head {file.written(rotary)} is cannot be shown", rotary)


def _integer(node: ast.expr) -> int | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int) else None


def _reads_alike(file: ParsedFile, call: ast.Call, node: ast.expr) -> bool:
    """Whether an expression means the same at the call: a number, an attribute of self, or of the same parameter."""
    if isinstance(node, ast.Constant) or self_attribute(node) is not None:
        return True
    bound = file.bound((dotted(node) or "").partition(".")[0], call)
    return len(bound) == 1 and isinstance(bound[0], ast.arg) and file.function(node) is file.function(call)


def _expanded(file: ParsedFile, call: ast.Call, node: ast.expr) -> ast.expr:
    """An expression with every name in it replaced by what it was computed from."""

    def expand(inner: ast.AST, depth: int) -> ast.AST:
        if isinstance(inner, (ast.Name, ast.Attribute)) and depth < 8:
            value = _only_value(file, call, inner)
            if value is not None and is_pure(value):
                return expand(value, depth + 1)
        fields = {}
        for name, value in ast.iter_fields(inner):
            items = (
                [expand(v, depth) if isinstance(v, ast.AST) else v for v in value] if isinstance(value, list) else value
            )
            fields[name] = expand(value, depth) if isinstance(value, ast.AST) else items
        return type(inner)(**fields)

    found = expand(node, 0)
    assert isinstance(found, ast.expr)
    return found


def _forms(file: ParsedFile, call: ast.Call, node: ast.expr) -> list[ast.expr]:
    """An expression, and what it was computed from, as long as each name on the way is set exactly once."""
    found = [node]
    while len(found) < 5:
        value = _only_value(file, call, found[-1])
        if value is None or not is_pure(value):
            break
        found.append(value)
    return found


def _only_value(file: ParsedFile, call: ast.Call, node: ast.expr) -> ast.expr | None:
    """The expression a name, or an attribute of self, is set to; None unless it is set in one place only."""
    attribute = self_attribute(node)
    if attribute is not None:
        inside: ast.AST | None = file.class_of(call)
    elif isinstance(node, ast.Name):
        bound = file.bound(node.id, node)
        inside = file.scope(bound[0]) if len(bound) == 1 and isinstance(bound[0], ast.Name) else None
    else:
        return None
    places = [n for n in file.below(inside) if _sets(n, node, attribute)] if inside is not None else []
    step = file.parents[places[0]] if len(places) == 1 else None
    if isinstance(step, ast.Assign) and len(step.targets) == 1 and step.value is not places[0]:
        return step.value
    return step.value if isinstance(step, ast.AnnAssign) else None


def _sets(place: ast.AST, node: ast.expr, attribute: str | None) -> bool:
    if attribute is not None:
        return self_attribute(place) == attribute and isinstance(place.ctx, ast.Store)  # type: ignore[attr-defined]
    return isinstance(place, ast.Name) and isinstance(place.ctx, ast.Store) and place.id == getattr(node, "id", None)


def _rope_items(file: ParsedFile, call: ast.Call, given: Mapping[str, ast.expr]) -> dict[str, str]:
    """What base and rope_scaling said, as entries of rope_parameters."""
    items: dict[str, str] = {}
    base = given.get("base")
    if base is not None:
        if not isinstance(_forms(file, call, base)[-1], ast.Constant):
            text = file.written(base)
            raise Refusal(
                f"base={text} is not a plain number, and configurations keep theirs in rope_parameters now", base
            )
        items["rope_theta"] = file.written(base)
    scaling = given.get("rope_scaling")
    if scaling is None or (isinstance(scaling, ast.Constant) and scaling.value is None):
        return items
    found = _entries(file, scaling)
    if found is None or "rope_type" not in found:
        raise Refusal(f"what rope_scaling={file.written(scaling)} holds is not written out here", scaling)
    return {**items, **found}


def _entries(file: ParsedFile, node: ast.expr) -> dict[str, str] | None:
    if not isinstance(node, ast.Dict):
        return None
    keys = [k.value if isinstance(k, ast.Constant) and isinstance(k.value, str) else None for k in node.keys]
    return None if None in keys else {str(k): file.written(v) for k, v in zip(keys, node.values)}


def _parts(file: ParsedFile, call: ast.Call, items: Mapping[str, str], old: ast.expr | None) -> list[str]:
    """The entries of rope_parameters as source text; none where the argument can stay as it is."""
    if not items or old is None or (isinstance(old, ast.Constant) and old.value is None):
        start: list[str] = []
    elif (written := _entries(file, old)) is not None:
        start, items = [], {**written, **items}
    else:
        text = file.written(old)
        start = [f"**{text}" if isinstance(_forms(file, call, old)[-1], ast.Dict) else f"**({text} or {{}})"]
    return [*start, *(f'"{name}": {value}' for name, value in items.items())]


def _review(given: Mapping[str, ast.expr], share: str | None) -> str:
    old = given.get("rope_parameters")
    if share is not None or old is None or isinstance(old, (ast.Constant, ast.Dict)):
        return ""
    return "a partial_rotary_factor in rope_parameters, which rotary_dim used to overrule, counts now"


RULE = Rule(
    code="VA502",
    name="get-rope",
    summary="get_rope is told how much of a head rotates by rope_parameters, not by rotary_dim.",
    why=(
        "vLLM 0.12 put rope_parameters in place of base and rope_scaling, 0.13 took rotary_dim and "
        "partial_rotary_factor out: a call that passes one of them is a TypeError. Half a head is "
        'rope_parameters={"partial_rotary_factor": 0.5}; the whole head needs no argument at all.'
    ),
    follows="vLLM 0.12.0 (rope_parameters), 0.13.0 (rotary_dim and partial_rotary_factor removed)",
    names=frozenset({"rotary_dim"}),
    plan=plan,
    examples=(
        Example(before=_BEFORE, after=_AFTER),
        Example(before=_OLDER, after=_NEWER, source="0.11.2"),
        Example(before=_CONFIGURED, after=_CONFIGURED, source="0.11.2", refused=True),
    ),
)

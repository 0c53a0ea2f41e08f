"""VA501: rotary helpers of vision towers become vLLM's ApplyRotaryEmb, built once in the class that rotates."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from codemods import edits as E
from codemods import emit
from codemods.findings import Severity
from codemods.parsed_file import FunctionNode, ParsedFile, loads, self_attribute, stores
from codemods.plan import FilePlan, Plan
from codemods.project import AnyFunction, Class, Function
from codemods.rule import Example, Rule
from codemods.target import release_key
from codemods.uses import uses_of
from codemods.vision_attention import rotary
from codemods.vision_attention import rotary_symbols as symbols
from codemods.vision_attention import vocabulary as V
from codemods.vision_attention.arms import Refusal
from codemods.vision_attention.attention_class import RETARGETED, AttentionClass
from codemods.vision_attention.tensor_axes import axes_of, is_stacked

_LINE = 88  # the formatter default of vLLM and of most plugins

_BEFORE = """\
import torch
from torch import nn
from vllm.model_executor.layers.rotary_embedding.common import dispatch_rotary_emb_function


def turn_halves(x: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, dim=-1)
    return torch.cat((-right, left), dim=-1)


def rotate_plain(x, cos, sin):
    cos = torch.cat((cos, cos), dim=-1).unsqueeze(-2)
    sin = torch.cat((sin, sin), dim=-1).unsqueeze(-2)
    return x * cos + turn_halves(x) * sin


def rotate(heads: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    kernel = dispatch_rotary_emb_function(default=rotate_plain)
    return kernel(heads.float(), angles.cos(), angles.sin()).type_as(heads)


class PatchAttention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)

    def forward(self, qk, angles):
        return rotate(qk, angles)
"""

_AFTER = """\
from torch import nn
from vllm.model_executor.layers.rotary_embedding.common import ApplyRotaryEmb


class PatchAttention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.apply_rotary_emb = ApplyRotaryEmb(
            enforce_enable=True,
            enable_fp32_compute=True,
        )

    def forward(self, qk, angles):
        return self.apply_rotary_emb(qk, angles.cos(), angles.sin())
"""

_PAIR_BEFORE = """\
import math
from functools import partial

from torch import nn
from vllm.model_executor.layers.rotary_embedding.common import apply_rotary_emb_torch
from vllm.platforms import current_platform


def rotate_both(q, k, cos, sin, is_flash_attn_backend: bool = False):
    cos = cos.chunk(2, dim=-1)[0].contiguous()
    sin = sin.chunk(2, dim=-1)[0].contiguous()
    if is_flash_attn_backend and current_platform.is_cuda():
        from vllm.vllm_flash_attn.layers.rotary import apply_rotary_emb
    else:
        apply_rotary_emb = partial(apply_rotary_emb_torch, is_neox_style=True)
    return apply_rotary_emb(q, cos, sin), apply_rotary_emb(k, cos, sin)


class PatchAttention(nn.Module):
    def __init__(self, is_flash: bool) -> None:
        super().__init__()
        self.is_flash = is_flash

    def forward(self, q, k, angles):
        cos, sin = angles
        q, k = rotate_both(q, k, cos, sin, self.is_flash)
        return q @ k.mT / math.sqrt(q.shape[-1])
"""

_PAIR_AFTER = """\
import math

from torch import nn
from vllm.model_executor.layers.rotary_embedding.common import ApplyRotaryEmb


class PatchAttention(nn.Module):
    def __init__(self, is_flash: bool) -> None:
        super().__init__()
        self.apply_rotary_emb = ApplyRotaryEmb(enforce_enable=True)
        self.is_flash = is_flash

    def forward(self, q, k, angles):
        cos, sin = angles
        cos = cos.chunk(2, dim=-1)[0].contiguous()
        sin = sin.chunk(2, dim=-1)[0].contiguous()
        q = self.apply_rotary_emb(q, cos, sin)
        k = self.apply_rotary_emb(k, cos, sin)
        return q @ k.mT / math.sqrt(q.shape[-1])
"""

_SCALED = """\
from torch import nn
from vllm.model_executor.models.qwen2_vl import apply_rotary_pos_emb_vision


def rotate(x, angles, scale):
    return apply_rotary_pos_emb_vision(x * scale, angles)


class PatchAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()

    def forward(self, q, angles):
        return rotate(q, angles, 0.5)
"""


def plan(run: Plan) -> None:
    calls = _calls(run)
    helpers = _helpers(run, calls)
    planned = {id(file): _Ops(run, file) for file in run.open_files}
    replaced: set[tuple[str, int]] = set()
    for file, call, reached in calls:
        ops = planned.get(id(file))
        if ops is None or file.gone(call):
            continue
        names = _names(run, file, call, reached, helpers, ops.aware)
        if names == {symbols.OP} and not _reads_configuration(run):
            names = frozenset()  # vLLM's op already, and where it is built does not matter yet
        if not names and not (reached is not None and _is_function(reached) and file.file.class_of(call) in ops.towers):
            continue
        owner = _owner(file.file, call)
        if isinstance(owner, ast.FunctionDef) and _key(file.file, owner) in helpers:
            continue  # a helper inside a helper: settled where the outer one is called
        if _plan_call(run, file, call, reached, names, ops) and reached is not None:
            replaced.add(_key(reached.file, reached.node))
    for file in run.open_files:
        _take_out(run, file, replaced)
    if _reads_configuration(run):
        for ops in planned.values():
            if ops.aware:
                _built_late(run, ops.file)


def _reads_configuration(run: Plan) -> bool:
    """Whether the op reads vLLM's configuration when it is built, and so cannot be built in a forward."""
    return release_key(run.target.version) >= (0, 14)


# -- which calls -------------------------------------------------------------------------------------------------------


def _key(file: ParsedFile, node: ast.AST) -> tuple[str, int]:
    return (file.module, getattr(node, "lineno", 0))


def _is_function(reached: Function) -> bool:
    return reached.skip == 0 and reached.file.class_of(reached.node) is None


_LAST = {name.rpartition(".")[2] for name in symbols.KNOWN}


def _aware(file: ParsedFile) -> bool:
    """Whether a file imports something by the name of a rotary function or of vLLM's op."""
    return any(i.name in _LAST for i in file.imports)


def _calls(run: Plan) -> list[tuple[FilePlan, ast.Call, Function | None]]:
    """The calls of the run's vision files, and of files that rotate without having another part in attention."""
    others = [file for file in run.files if _aware(file.file) and file not in run.vision]
    return run.calls() + [
        (file, call, run.project.callee(file.file, call))
        for file in others
        for call in file.file.nodes[ast.Call]
        if isinstance(call, ast.Call)
    ]


def _helpers(
    run: Plan, calls: list[tuple[FilePlan, ast.Call, Function | None]]
) -> dict[tuple[str, int], frozenset[str]]:
    """Module-level functions that rotate by a kernel, by vLLM's functions or op, or by one another; and by which."""
    found: dict[tuple[str, int], frozenset[str]] = {}
    for file in run.files:
        if not _aware(file.file):
            continue
        for node in file.file.functions:
            names = _mentioned(run, file.file, node)
            if names:
                found[_key(file.file, node)] = names
    grows = bool(found)
    while grows:
        grows = False
        for file, call, reached in calls:
            names = found.get(_key(reached.file, reached.node), frozenset()) if reached is not None else frozenset()
            owner = _owner(file.file, call) if names else None
            if not isinstance(owner, ast.FunctionDef):
                continue
            here = found.get(_key(file.file, owner), frozenset())
            if not names <= here:
                found[_key(file.file, owner)] = here | names
                grows = True
    return found


def _mentioned(run: Plan, file: ParsedFile, function: AnyFunction) -> frozenset[str]:
    found = set()
    for node in ast.walk(function):
        if isinstance(node, ast.ImportFrom):
            found |= {f"{file.absolute(node)}.{alias.name}" for alias in node.names}
        elif isinstance(node, (ast.Name, ast.Attribute)) and not file.in_annotation(node):
            name = run.project.vllm(file, node)
            found |= {name} if name else set()
    return frozenset(found & symbols.KNOWN)


def _owner(file: ParsedFile, node: ast.AST) -> ast.AST | None:
    """The module-level function or the class that a node stands in."""
    above = [n for n in file.above(node) if isinstance(n, (*FunctionNode, ast.ClassDef))]
    return above[-1] if above else None


def _names(
    run: Plan,
    file: FilePlan,
    call: ast.Call,
    reached: Function | None,
    helpers: dict[tuple[str, int], frozenset[str]],
    aware: bool,
) -> frozenset[str]:
    """By which rotary functions of vLLM or of a kernel library a call rotates; empty if by none."""
    if reached is not None:
        return helpers.get(_key(reached.file, reached.node), frozenset()) if _is_function(reached) else frozenset()
    name = (run.project.vllm(file.file, call.func) or file.file.resolve(call.func)) if aware else None
    return frozenset({name} & (symbols.KNOWN - {symbols.OP, symbols.CHOOSER})) if name else frozenset()


def _severity(run: Plan, names: frozenset[str], call: ast.Call) -> Severity:
    removed = any(run.api.has(*name.rpartition(".")[::2]) is False for name in names)
    if removed or (symbols.OP in names and _reads_configuration(run)):
        return Severity.ERROR
    # the flag of MMEncoderAttention does not say that the flash_attn package is there
    asks = any(self_attribute(n) in RETARGETED for n in ast.walk(call))
    return Severity.WARNING if asks and names else Severity.NOTE


# -- one call ----------------------------------------------------------------------------------------------------------


def _plan_call(
    run: Plan, file: FilePlan, call: ast.Call, reached: Function | None, names: frozenset[str], ops: _Ops
) -> bool:
    """Replace a call by the op, or say why not. Whether it was replaced."""
    called = V.called(call) or "it"
    try:
        found = rotary.describe(run.project, file.file, call, reached)
    except Refusal as refusal:
        if names:
            where = (
                f" ({file.file.line(refusal.node.lineno)})"
                if hasattr(refusal.node, "lineno") and refusal.node is not call
                else ""
            )
            _refuse(run, file, call, names, f"{called} is not replaced by ApplyRotaryEmb: {refusal.check}{where}")
        return False
    try:
        method = _method(file.file, call)
        if found.four_axes and (axes := axes_of(method, found.turns[0].x)) != 4:
            shape = "they may be three" if axes is None else f"they are {axes}"
            raise Refusal(f"it needs the four axes [batch, sequence, heads, head_dim], and here {shape}", call)
        edits = _edits(file, method, call, found, ops.name(call, found))
    except Refusal as refusal:
        _refuse(run, file, call, names, f"{called} is not replaced by ApplyRotaryEmb: {refusal.check}")
        return False
    file.rewrite(
        RULE,
        call,
        f"{called} is one call of ApplyRotaryEmb{'' if len(found.turns) == 1 else ' for each of q and k'}",
        edits,
        review=_review(run, method, found),
    )
    ops.build(call, found)
    return True


def _refuse(run: Plan, file: FilePlan, call: ast.Call, names: frozenset[str], message: str) -> None:
    file.find(
        RULE,
        call,
        _severity(run, names, call),
        message,
        "Build ApplyRotaryEmb(enforce_enable=True) in __init__, with enable_fp32_compute=True if the helper upcasts, "
        "and call it with x and with cos and sin of half the head size; or keep the helper on plain torch operations.",
    )


def _review(run: Plan, method: AnyFunction, found: rotary.Rotary) -> str:
    reasons = []
    if found.tail:
        reasons.append(
            "the op turns whole heads, the helper also took narrower angles: cos and sin must be half the head size"
        )
    if release_key(run.target.version) < (0, 14) and not all(is_stacked(method, turn.x) for turn in found.turns):
        reasons.append("vllm-ascend 0.13 reads four axes as q and k stacked by torch.cat; other platforms do not")
    return "; ".join(reasons)


def _method(file: ParsedFile, call: ast.Call) -> AnyFunction:
    """The method a call stands in: only there is a `self` that can hold the op."""
    above = [n for n in file.above(call) if isinstance(n, (*FunctionNode, ast.ClassDef))]
    if len(above) < 2 or not isinstance(above[-1], ast.ClassDef) or not isinstance(above[-2], FunctionNode):
        raise Refusal("it is called outside of a class, where nothing can hold the op", call)
    method = above[-2]
    first = [*method.args.posonlyargs, *method.args.args][:1]
    if not first or first[0].arg != "self":
        raise Refusal("it is called where there is no self to hold the op", call)
    return method


def _edits(file: FilePlan, method: AnyFunction, call: ast.Call, found: rotary.Rotary, op: str) -> list[E.Edit]:
    if len(found.turns) == 1:
        turn = found.turns[0]
        if found.plain and _in_order(call, turn):
            return [E.ReplaceExpression(E.Ref.of(call.func), f"self.{op}")]
        if not found.plain and any(isinstance(n, ast.Call) for n in ast.walk(ast.parse(turn.cos)) if not _is_angle(n)):
            raise Refusal("its angles are computed in the call, and would be computed twice", call)
        return [E.ReplaceExpression(E.Ref.of(call), _call(op, turn, call.col_offset))]
    return _pair(file, method, call, found, op)


def _is_angle(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("cos", "sin", "chunk", "contiguous")
    )


def _in_order(call: ast.Call, turn: rotary.Turn) -> bool:
    """Whether the arguments can stay as they are: x, cos, sin by position, or cos= and sin=."""
    given = [*(("", a) for a in call.args), *((k.arg or "", k.value) for k in call.keywords)]
    wanted = [("x", ast.unparse(turn.x)), ("cos", turn.cos), ("sin", turn.sin)]
    return len(given) == 3 and all(
        word in ("", name) and ast.unparse(value) == text for (word, value), (name, text) in zip(given, wanted)
    )


def _call(op: str, turn: rotary.Turn, column: int, target: str | None = None) -> str:
    arguments = [ast.unparse(turn.x), turn.cos, turn.sin]
    line = f"{f'{target} = ' if target else ''}self.{op}({', '.join(arguments)})"
    return line if column + len(line) <= _LINE else emit.call(f"self.{op}", arguments, target)


def _pair(file: FilePlan, method: AnyFunction, call: ast.Call, found: rotary.Rotary, op: str) -> list[E.Edit]:
    """`q, k = helper(q, k, cos, sin)`: the angles are halved where the helper did so, then q and k rotated in turn."""
    statement = file.file.statement(call)
    targets = (
        statement.targets[0]
        if isinstance(statement, ast.Assign) and statement.value is call and len(statement.targets) == 1
        else None
    )
    if not isinstance(targets, ast.Tuple) or len(targets.elts) != 2:
        raise Refusal("its query and key are not assigned to two targets", call)
    lines = []
    turns = list(found.turns)
    for part in ("cos", "sin"):
        texts = {getattr(turn, part) for turn in turns}
        text = texts.pop()
        if texts:
            raise Refusal("it rotates query and key by different angles", call)
        if not isinstance(ast.parse(text, mode="eval").body, (ast.Name, ast.Attribute)):
            others = [turns[0].sin if part == "cos" else turns[0].cos, *(ast.unparse(turn.x) for turn in turns)]
            name = _free(file, method, statement, text, part, others)
            lines.append(f"{name} = {text}")
            turns = [
                rotary.Turn(t.x, name if part == "cos" else t.cos, name if part == "sin" else t.sin) for t in turns
            ]
    first, second = targets.elts
    if stores(first) & (loads(turns[1].x) | {turns[1].cos, turns[1].sin}):
        both = ", ".join(_call(op, turn, 0) for turn in turns)
        lines.append(f"{file.file.written(targets)} = {both}")
    else:
        lines += [
            _call(op, turn, statement.col_offset, ast.unparse(target)) for turn, target in zip(turns, (first, second))
        ]
    return [E.ReplaceStatement(E.Ref.of(statement), "\n".join(lines) + "\n")]


def _free(file: FilePlan, method: AnyFunction, statement: ast.stmt, text: str, part: str, others: Sequence[str]) -> str:
    """A name for an angle: the one it had, if nobody reads that one again, else one that is not taken."""
    node: ast.AST = ast.parse(text, mode="eval").body
    while isinstance(node, ast.Subscript) or (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        node = node.value if isinstance(node, ast.Subscript) else node.func.value  # type: ignore[attr-defined]
    if isinstance(node, ast.Name):
        looped = any(isinstance(n, (ast.For, ast.While)) for n in file.file.above(statement))
        end = statement.end_lineno or statement.lineno
        again = any(n.lineno > end for n in uses_of(file).before(node.id, method))
        if not looped and not again and not any(node.id in loads(ast.parse(other)) for other in others):
            return node.id
    taken = loads(method) | stores(method) | {a.arg for a in ast.walk(method.args) if isinstance(a, ast.arg)}
    return next(name for name in (part, f"{part}_half", f"rotary_{part}", f"rotary_{part}_half") if name not in taken)


# -- the op ------------------------------------------------------------------------------------------------------------


class _Ops:
    """The ops that the classes of one file hold: one for each way to rotate.

    `towers`: the file's vision attention classes, in which plain torch helpers are looked at as well.
    """

    def __init__(self, run: Plan, file: FilePlan) -> None:
        self.run = run
        self.file = file
        self.aware = _aware(file.file)
        self.towers = {found.cls.node for found in run.attention(file) if isinstance(found, AttentionClass)}
        self.names: dict[tuple[int, bool, bool], str] = {}
        self.built: set[tuple[int, bool, bool]] = set()

    def _slot(self, call: ast.Call, found: rotary.Rotary) -> tuple[ast.ClassDef, tuple[int, bool, bool]]:
        cls = next(n for n in self.file.file.above(call) if isinstance(n, ast.ClassDef))
        return cls, (cls.lineno, found.fp32, found.neox)

    def name(self, call: ast.Call, found: rotary.Rotary) -> str:
        """The attribute that holds the op. Raises Refusal where the class has no place to build it."""
        cls, key = self._slot(call, found)
        if key not in self.names:
            _anchor(self.file, cls)
            here = Class(self.file.file, cls)
            family = [*self.run.project.bases(here), *self.run.project.subclasses.get(here.qualified, [])]
            taken = {self_attribute(n) for c in family for n in ast.walk(c.node)} | {
                name for (line, *_), name in self.names.items() if line == cls.lineno
            }
            self.names[key] = next(
                n for n in ("apply_rotary_emb", *(f"apply_rotary_emb_{i}" for i in range(2, 99))) if n not in taken
            )
        return self.names[key]

    def build(self, call: ast.Call, found: rotary.Rotary) -> None:
        cls, key = self._slot(call, found)
        if key in self.built:
            return
        self.built.add(key)
        arguments = [
            "enforce_enable=True",
            *(["is_neox_style=False"] if not found.neox else []),
            *(["enable_fp32_compute=True"] if found.fp32 else []),
        ]
        target = f"self.{self.names[key]}"
        code = (
            f"{target} = ApplyRotaryEmb({arguments[0]})"
            if len(arguments) == 1
            else emit.call("ApplyRotaryEmb", arguments, target)
        )
        where = _anchor(self.file, cls)
        precision = ", computing in float32 as the helper did" if found.fp32 else ""
        message = f"{cls.name}: ApplyRotaryEmb is built as {target}{precision}"
        module, _, name = symbols.OP.rpartition(".")
        self.file.rewrite(
            RULE, where, message, [E.InsertAfter(E.Ref.of(where), f"{code}\n"), E.AddImport(module, name)]
        )


def _anchor(file: FilePlan, cls: ast.ClassDef) -> ast.stmt:
    """The statement of the constructor behind which the op is built: one that no rule takes out."""
    constructor = Class(file.file, cls).own("__init__")
    if constructor is None:
        raise Refusal(f"{cls.name} has no constructor of its own to build the op in", cls)
    start = next(
        (
            i
            for i, s in enumerate(constructor.body)
            if isinstance(s, ast.Expr) and ast.unparse(s).startswith("super(") and ".__init__(" in ast.unparse(s)
        ),
        None,
    )
    if start is None:
        raise Refusal(f"the constructor of {cls.name} does not call super().__init__()", cls)
    replaced = {e.statement for e in file.edits if isinstance(e, E.ReplaceStatement) and e.code}
    found = constructor.body[start]
    for statement in constructor.body[start:]:
        if E.Ref.of(statement) in replaced or (not file.gone(statement) and _builds(statement)):
            found = statement
    return found


def _builds(statement: ast.stmt) -> bool:
    """`self.x = Class(...)`."""
    if not (
        isinstance(statement, ast.Assign)
        and self_attribute(statement.targets[0])
        and isinstance(statement.value, ast.Call)
    ):
        return False
    return (V.called(statement.value) or "")[:1].isupper()


def _take_out(run: Plan, file: FilePlan, replaced: set[tuple[str, int]]) -> None:
    """Helpers that only other files called: their own file shows no call that went."""
    for node in file.file.functions:
        if _key(file.file, node) not in replaced or uses_of(file).before(node.name):
            continue
        taken = [
            (p, i) for p in run.files for i in p.file.imports if (i.module, i.name) == (file.file.module, node.name)
        ]
        by_module = any(
            isinstance(n, ast.Attribute) and n.attr == node.name and not p.gone(n)
            for p in run.files
            for n in p.file.nodes[ast.Attribute]
        )
        if taken and not by_module and not any(p.file.is_package or uses_of(p).now(i.alias) for p, i in taken):
            file.rewrite(RULE, node, f"{node.name} is no longer called", [E.ReplaceStatement(E.Ref.of(node), "")])


def _built_late(run: Plan, file: FilePlan) -> None:
    """ApplyRotaryEmb built while the model runs: vLLM 0.14 and later refuse that."""
    for call in file.file.nodes[ast.Call]:
        method = file.file.function(call)
        if method is None or method.name != "forward" or file.gone(call) or not isinstance(call, ast.Call):
            continue
        if run.project.vllm(file.file, call.func) == symbols.OP:
            file.find(
                RULE,
                call,
                Severity.ERROR,
                "ApplyRotaryEmb is built in forward, which vLLM 0.14 and later refuse",
                "Build it once in __init__, as an attribute of self.",
            )


RULE = Rule(
    code="VA501",
    name="rotary-embedding",
    summary="Rotary helpers of vision attention become vLLM's ApplyRotaryEmb, built once in the class that rotates.",
    why=(
        "vLLM 0.13 took the functions out that such helpers are built on, and gave one op in their place that picks "
        "the kernel itself and that a device plugin can replace. A helper that upcasts keeps its numbers by "
        "enable_fp32_compute=True; one that does not must not get it. The op is built in the constructor because vLLM "
        "0.14 and later refuse to build ops outside of a configuration context."
    ),
    follows="vLLM 0.13.0, PR #29873 (ApplyRotaryEmb); built in __init__ as of 0.14.0",
    names=frozenset(_LAST),
    plan=plan,
    examples=(
        Example(before=_BEFORE, after=_AFTER),
        Example(before=_PAIR_BEFORE, after=_PAIR_AFTER),
        Example(before=_SCALED, after=_SCALED, refused=True),
    ),
    unported=Severity.WARNING,
)

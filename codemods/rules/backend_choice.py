"""VA202: the choice of a kernel in an attention class's constructor becomes MMEncoderAttention."""

from __future__ import annotations

import ast

from codemods import edits as E
from codemods import emit
from codemods.findings import Severity
from codemods.parsed_file import attribute_loads, keyword, parameters, self_attribute
from codemods.plan import FilePlan, Plan
from codemods.rule import Example, Rule
from codemods.rules.dispatch_chain import _AFTER, _BEFORE
from codemods.rules.tower_backend import tell_of_forced
from codemods.vision_attention import vocabulary as V
from codemods.vision_attention.attention_class import FLASH_FLAG, RETARGETED, AttentionClass
from codemods.vision_attention.lengths import computes_longest


def plan(run: Plan) -> None:
    for file in run.open_vision:
        for found in run.attention(file):
            if isinstance(found, AttentionClass):
                _plan_class(run, file, found)


def _plan_class(run: Plan, file: FilePlan, found: AttentionClass) -> None:
    code = _constructor_call(run, found)
    needed = set(_attributes(code))
    place = _place(found, needed)
    edits: list[E.Edit] = []
    for statement in found.state.statements:
        edits.append(E.ReplaceStatement(E.Ref.of(statement), code if statement is place else ""))
    if place not in found.state.statements:
        edits.append(E.InsertAfter(E.Ref.of(place), code))
    edits.append(E.AddImport(run.target.encoder_attention, V.ENCODER_ATTENTION))
    guards = [
        s
        for s in found.state.statements
        if isinstance(s, ast.If) and not any(isinstance(i, ast.Raise) for i in ast.walk(s))
    ]
    falls_back = any(
        isinstance(inner, ast.Assign)
        and any(V.is_backend_enum(run.project, file.file, n) for n in ast.walk(inner.value))
        and "TORCH_SDPA" in ast.unparse(inner.value)
        for guard in guards
        for inner in guard.body
    )
    fixed = next(
        (s.value for s in found.constructor.body if isinstance(s, ast.Assign) and _is_member(run, file, s.value)), None
    )
    review = "an unsupported backend used to fall back to TORCH_SDPA here; vLLM now refuses it" if falls_back else ""
    if fixed is not None and not found.state.calls:
        review = f"{ast.unparse(fixed)} was the backend here whatever vLLM had chosen; vLLM now chooses"
    file.rewrite(
        RULE,
        found.state.statements[0] if found.state.statements else place,
        f"{found.cls.node.name}: MMEncoderAttention is built as self.{found.op} and chooses its own backend",
        edits,
        review=review,
    )
    for call in found.state.calls:
        tell_of_forced(run, file, RULE, call, keyword(call, V.OVERRIDE))
    _retarget(run, file, found)


def _is_member(run: Plan, file: FilePlan, value: ast.expr) -> bool:
    return V.is_backend_enum(run.project, file.file, value)


def _constructor_call(run: Plan, found: AttentionClass) -> str:
    heads = found.heads
    arguments = [f"num_heads=self.{heads.num_heads}", f"head_size=self.{heads.head_size}", f"scale={heads.scale}"]
    if heads.num_kv_heads:
        arguments.append(f"num_kv_heads=self.{heads.num_kv_heads}")
    if found.has_prefix:
        arguments.append(f'prefix=f"{{prefix}}.{found.op}"')
    has_config = any(a.arg == "multimodal_config" for a in parameters(found.constructor))
    renamed = found.override is not None and "VA402" in run.active
    if run.target.takes_multimodal_config and (has_config or renamed):
        arguments.append("multimodal_config=multimodal_config")
    return emit.call(V.ENCODER_ATTENTION, arguments, f"self.{found.op}") + "\n"


def _attributes(code: str) -> set[str]:
    return attribute_loads(ast.parse(code))


def _place(found: AttentionClass, needed: set[str]) -> ast.stmt:
    """The first statement of the old choice at which all attributes are set; else the statement that sets the last."""
    set_at = [
        s
        for s in found.constructor.body
        if any(
            self_attribute(n) in needed and isinstance(n.ctx, ast.Store)
            for n in ast.walk(s)
            if isinstance(n, ast.Attribute)
        )
    ]
    ready = [
        s
        for s in found.constructor.body
        if "super().__init__" in ast.unparse(s) or "nn.Module.__init__" in ast.unparse(s)
    ]
    last = max([*set_at, *ready], key=lambda s: s.lineno, default=found.constructor.body[0])
    return next((s for s in found.state.statements if s.lineno > last.lineno), last)


def _retarget(run: Plan, file: FilePlan, found: AttentionClass) -> None:
    """Other reads of the backend in the class go to the op, which has attributes of the same names."""
    gone = [*found.state.statements, found.chain.statement, *found.chain.rest]
    inside = {id(node) for statement in gone for node in ast.walk(statement)}
    for node in ast.walk(found.cls.node):
        name = self_attribute(node)
        if (
            name in RETARGETED
            and name in found.state.names
            and id(node) not in inside
            and isinstance(node, ast.Attribute)
        ):
            file.rewrite(
                RULE,
                node,
                f"self.{name} is read from self.{found.op}",
                [E.ReplaceExpression(E.Ref.of(node), f"self.{found.op}.{name}")],
            )
            if name == FLASH_FLAG and "TRITON_ATTN" in run.target.varlen_backends and _gates_longest(file, node):
                file.find(
                    RULE,
                    node,
                    Severity.WARNING,
                    f"max_seqlen is computed only where self.{name} holds; it does not under Triton, whose kernel "
                    f"reads max_seqlen",
                    "Compute max_seqlen for every backend.",
                )


def _gates_longest(file: FilePlan, flag: ast.AST) -> bool:
    """Whether the flag is asked for by an `if` that sets max_seqlen."""
    return any(
        isinstance(node, ast.If) and any(inner is flag for inner in ast.walk(node.test)) and computes_longest(node.body)
        for node in file.file.nodes[ast.If]
    )


RULE = Rule(
    code="VA202",
    name="backend-choice",
    summary="The kernel choice in an attention class's constructor becomes MMEncoderAttention, guards and all.",
    why=(
        "MMEncoderAttention asks the platform for a backend itself, so a model no longer resolves, checks or "
        "stores one. "
        "It is built in the constructor because vLLM 0.14 and later refuse to build ops outside of a "
        "configuration context. "
        "scale and, where the constructor has one, prefix are always passed: later releases key FP8 scales on the"
        " prefix."
    ),
    follows="vLLM 0.13.0, PR #30125; scale passed as of PR #31947; multimodal_config only in 0.13 and 0.14 (PR #31972)",
    names=frozenset({V.GET_BACKEND, V.GET_FLASH, V.UPSTREAM_FA, V.XFORMERS_AVAILABLE, *V.ENUMS}),
    plan=plan,
    examples=(Example(before=_BEFORE, after=_AFTER),),
    requires=("VA201",),
    unported=Severity.WARNING,
)

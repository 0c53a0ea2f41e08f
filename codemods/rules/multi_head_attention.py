"""VA101: MultiHeadAttention becomes MMEncoderAttention, in every role the class has in a file."""

from __future__ import annotations

import ast
import io
import tokenize

from codemods import edits as E
from codemods.findings import Severity
from codemods.parsed_file import FunctionNode, keyword, parameters, self_attribute
from codemods.plan import FilePlan, Plan
from codemods.project import AnyFunction
from codemods.rule import Example, Rule
from codemods.vision_attention import vocabulary as V
from codemods.vision_attention.origins import is_four_dimensional, origins

_BEFORE = '''\
from torch import nn
from vllm.attention.layer import MultiHeadAttention


class PatchAttention(nn.Module):
    def __init__(self, heads: int, head_dim: int, qkv: nn.Module, prefix: str = "") -> None:
        super().__init__()
        self.qkv = qkv
        self.scale = head_dim**-0.5
        self.attn = MultiHeadAttention(heads, head_dim, self.scale)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return self.attn(q, k, v)
'''

_AFTER = '''\
from torch import nn
from vllm.model_executor.layers.attention import MMEncoderAttention


class PatchAttention(nn.Module):
    def __init__(self, heads: int, head_dim: int, qkv: nn.Module, prefix: str = "") -> None:
        super().__init__()
        self.qkv = qkv
        self.scale = head_dim**-0.5
        self.attn = MMEncoderAttention(heads, head_dim, self.scale, prefix=f"{prefix}.attn")

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return self.attn(q, k, v)
'''

_CROSS = '''\
from torch import nn
from vllm.attention.layer import MultiHeadAttention


class Pooling(nn.Module):
    def __init__(self, heads: int, head_dim: int) -> None:
        super().__init__()
        self.attn = MultiHeadAttention(heads, head_dim, head_dim**-0.5)

    def forward(self, latents, patches):
        return self.attn(latents, patches, patches)
'''

# what both classes have, in every release: an override that reads anything else cannot simply change its base
_SHARED = {"num_heads", "head_size", "scale", "num_kv_heads", "num_queries_per_kv", "layer_name", "attn_backend", "is_flash_attn_backend", "training"}


def plan(run: Plan) -> None:
    for file in run.open_files:
        uses = _uses(run, file)
        imports = _imports(run, file)
        if not uses and not imports:
            continue
        refused = _refusals(run, file, uses)
        for node, why in refused:
            covers: ast.AST = file.file.class_of(node) or file.file.statement(node)
            severity = Severity.NOTE if not run.target.replaces_multi_head_attention else Severity.ERROR
            file.find(RULE, node, severity, *why, covers=covers)
        kept = {id(inner) for node, _ in refused for inner in ast.walk(file.file.class_of(node) or file.file.statement(node))}
        if not run.target.replaces_multi_head_attention:
            for statement, _ in imports:
                file.refused.append(E.Ref.of(statement))
            continue
        done = [node for node in uses if id(node) not in kept]
        if refused and not done:
            for statement, _ in imports:
                file.refused.append(E.Ref.of(statement))
            continue
        _rewrite(run, file, done, imports, all_done=not refused)


def _uses(run: Plan, file: FilePlan) -> list[ast.expr]:
    """Expressions that stand for vLLM's class (string annotations included)."""
    found: list[ast.expr] = list(run.project.standing_for(file.file, V.MULTI_HEAD_ATTENTION))
    for node in file.file.nodes[ast.Constant]:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and V.MULTI_HEAD_ATTENTION in node.value and _is_annotation(file, node):
            if V.last(run.project.vllm(file.file, node, node)) == V.MULTI_HEAD_ATTENTION:
                found.append(node)
    return found


def _is_annotation(file: FilePlan, node: ast.AST) -> bool:
    above = file.file.parents[node]
    return isinstance(above, (ast.arg, ast.AnnAssign)) or getattr(above, "returns", None) is node


def _imports(run: Plan, file: FilePlan) -> list[tuple[ast.ImportFrom, ast.alias]]:
    found = []
    for statement in file.file.nodes[ast.ImportFrom]:
        assert isinstance(statement, ast.ImportFrom)
        for alias in statement.names:
            name = run.project.follow(f"{file.file.absolute(statement)}.{alias.name}")
            if name.startswith("vllm.") and V.last(name) == V.MULTI_HEAD_ATTENTION:
                found.append((statement, alias))
    return found


def _refusals(run: Plan, file: FilePlan, uses: list[ast.expr]) -> list[tuple[ast.AST, tuple[str, str]]]:
    if not run.target.replaces_multi_head_attention:
        sites: list[ast.AST] = [n for n in uses if isinstance(file.file.parents[n], (ast.Call, ast.ClassDef, ast.keyword))] or list(uses)
        return [
            (
                node,
                (
                    "MultiHeadAttention stays at this target: MMEncoderAttention of vLLM 0.13 only takes calls with cu_seqlens",
                    "Nothing to do for 0.13, where MultiHeadAttention still works; port to 0.14 or later to move it.",
                ),
            )
            for node in sites
        ]
    found: list[tuple[ast.AST, tuple[str, str]]] = []
    for node in uses:
        above = file.file.parents[node]
        if isinstance(above, ast.ClassDef) and node in above.bases:
            why = _subclass(above)
            if why is not None:
                found.append((above, (why, "Port the subclass by hand; a device's own implementation belongs in an out-of-tree op (MMEncoderAttention.register_oot).")))
        elif isinstance(above, ast.Call) and above.func is node:
            cls = file.file.class_of(above)
            if cls is not None:
                found += _crossing(file, cls, above)
    return found


def _subclass(cls: ast.ClassDef) -> str | None:
    """Why a subclass cannot simply change its base, or None."""
    forward = next((n for n in cls.body if isinstance(n, FunctionNode) and n.name == "forward"), None)
    if forward is not None and len(parameters(forward)) != 4:
        return f"{cls.name}.forward takes more than query, key and value"
    own = {name for n in ast.walk(cls) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store) and (name := self_attribute(n))}
    own |= {n.name for n in cls.body if isinstance(n, FunctionNode)}
    read = {name for n in ast.walk(cls) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load) and (name := self_attribute(n))}
    foreign = sorted(read - own - _SHARED)
    return f"{cls.name} reads self.{foreign[0]}, which MMEncoderAttention has not" if foreign else None


def _held_in(file: FilePlan, call: ast.Call) -> str | None:
    statement = file.file.statement(call)
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target] if isinstance(statement, ast.AnnAssign) else []
    return next((name for t in targets if (name := self_attribute(t))), None)


def _crossing(file: FilePlan, cls: ast.ClassDef, constructed: ast.Call) -> list[tuple[ast.AST, tuple[str, str]]]:
    """Calls whose k or v come from another input than q: MMEncoderAttention's kernels use one length for all three."""
    attribute = _held_in(file, constructed)
    found: list[tuple[ast.AST, tuple[str, str]]] = []
    for method, call in _calls_of(cls, attribute):
        given = _three(call)
        if given is None:
            found.append((call, (f"{cls.name} calls its attention with more than query, key and value", "MMEncoderAttention has no mask, bias or causal mode: keep this attention on torch SDPA.")))
            continue
        query, key, value = (origins(method, node) for node in given)
        others = (key | value) - query
        if others:
            found.append(
                (
                    call,
                    (
                        f"{cls.name} is cross-attention: k and v also come from {', '.join(sorted(others))}, q does not",
                        "MMEncoderAttention gives q's length to k and v on flash and Triton: keep torch SDPA here, or prove that the lengths are equal.",
                    ),
                )
            )
    return found


def _calls_of(cls: ast.ClassDef, attribute: str | None) -> list[tuple[AnyFunction, ast.Call]]:
    if attribute is None:
        return []
    methods = [n for n in cls.body if isinstance(n, FunctionNode)]
    return [(m, n) for m in methods for n in ast.walk(m) if isinstance(n, ast.Call) and self_attribute(n.func) == attribute]


def _three(call: ast.Call) -> list[ast.expr] | None:
    if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg not in ("query", "key", "value") for k in call.keywords):
        return None
    given = [*call.args, *(value for name in ("query", "key", "value") if (value := keyword(call, name)) is not None)]
    return given if len(given) == 3 else None


def _rewrite(run: Plan, file: FilePlan, uses: list[ast.expr], imports: list[tuple[ast.ImportFrom, ast.alias]], all_done: bool) -> None:
    kept_alias = {alias.asname for _, alias in imports if alias.asname}
    for node in uses:
        above = file.file.parents[node]
        edits: list[E.Edit] = []
        if isinstance(node, ast.Constant):
            edits.append(E.ReplaceExpression(E.Ref.of(node), f'"{str(node.value).replace(V.MULTI_HEAD_ATTENTION, V.ENCODER_ATTENTION)}"'))
        elif isinstance(node, ast.Attribute) or node.id not in kept_alias:  # type: ignore[attr-defined]
            edits.append(E.ReplaceExpression(E.Ref.of(node), V.ENCODER_ATTENTION))
        message = "MultiHeadAttention is MMEncoderAttention"
        if isinstance(above, ast.Call) and above.func is node:
            edits += _constructor(run, file, above)
            cls = file.file.class_of(above)
            for method, call in _calls_of(cls, _held_in(file, above)) if cls is not None else []:
                if any(is_four_dimensional(method, argument) for argument in call.args[:1]):
                    file.rewrite(
                        RULE,
                        call,
                        "the result has three axes again: MMEncoderAttention gives back four for four",
                        [E.ReplaceExpression(E.Ref.of(call), f"{ast.unparse(call)}.flatten(2)")],
                    )
        elif isinstance(above, ast.ClassDef):
            file.find(
                RULE,
                above,
                Severity.NOTE,
                f"{above.name} is a subclass: a device plugin replaces MMEncoderAttention by class name, so it does not replace this one",
                "Hold an MMEncoderAttention in a module instead if the model has to run on an out-of-tree device.",
            )
        file.rewrite(RULE, node, message, edits)
        file.rewritten.append(E.Ref.of(node))
    if not all_done:
        _import_new(run, file, imports, drop=False)
        return
    _import_new(run, file, imports, drop=True)
    for constant in file.file.nodes[ast.Constant]:
        if isinstance(constant, ast.Constant) and constant.value == V.MULTI_HEAD_ATTENTION and _in_all(file, constant):
            file.add(E.ReplaceExpression(E.Ref.of(constant), f'"{V.ENCODER_ATTENTION}"'))
    if _in_comments(file.file.text):
        file.add(E.RenameInComments(V.MULTI_HEAD_ATTENTION, V.ENCODER_ATTENTION))


def _constructor(run: Plan, file: FilePlan, call: ast.Call) -> list[E.Edit]:
    edits: list[E.Edit] = []
    if keyword(call, "multimodal_config") is not None and not run.target.takes_multimodal_config:
        file.remove_argument(call, "multimodal_config")
    function = file.file.function(call)
    attribute = _held_in(file, call)
    has_prefix = function is not None and any(a.arg == "prefix" for a in parameters(function))
    if attribute and has_prefix and keyword(call, "prefix") is None and len(call.args) < 5:
        edits.append(E.SetArgument(E.Ref.of(call), "prefix", "prefix", f'f"{{prefix}}.{attribute}"'))
    return edits


def _import_new(run: Plan, file: FilePlan, imports: list[tuple[ast.ImportFrom, ast.alias]], drop: bool) -> None:
    for statement, alias in imports:
        top = isinstance(file.file.parents[statement], ast.Module)
        if top and drop:
            file.add(E.RemoveImport(E.Ref.of(statement), alias.name))
            file.add(E.AddImport(run.target.encoder_attention, V.ENCODER_ATTENTION, alias.asname))
        elif top:
            file.add(E.AddImport(run.target.encoder_attention, V.ENCODER_ATTENTION))
            file.refused.append(E.Ref.of(statement))
        else:
            others = [a for a in statement.names if a is not alias]
            line = f"from {run.target.encoder_attention} import {V.ENCODER_ATTENTION}" + (f" as {alias.asname}" if alias.asname else "")
            own = ast.unparse(ast.ImportFrom(statement.module, others, statement.level)) + "\n" if others else ""
            file.add(E.ReplaceStatement(E.Ref.of(statement), f"{own}{line}\n"))
        file.rewritten.append(E.Ref.of(statement))
    if not imports:  # reached through a module: vllm.attention.layer.MultiHeadAttention
        file.add(E.AddImport(run.target.encoder_attention, V.ENCODER_ATTENTION))


def _in_all(file: FilePlan, node: ast.AST) -> bool:
    return any(isinstance(a, (ast.Assign, ast.AugAssign)) and "__all__" in ast.unparse(a) for a in file.file.above(node) if isinstance(a, ast.stmt))


def _in_comments(text: str) -> bool:
    if V.MULTI_HEAD_ATTENTION not in text:
        return False
    return any(t.type == tokenize.COMMENT and V.MULTI_HEAD_ATTENTION in t.string for t in tokenize.generate_tokens(io.StringIO(text).readline))


RULE = Rule(
    code="VA101",
    name="multi-head-attention",
    summary="MultiHeadAttention becomes MMEncoderAttention: constructor, class as a value, annotation, subclass, alias, re-export.",
    why=(
        "vLLM 0.14 removed MultiHeadAttention. MMEncoderAttention takes the same first five arguments in the same order, forwards scale, "
        "and gives a three-axis result for three-axis input, so self-attention moves as it stands. In 0.13 the new class asserts cu_seqlens, "
        "so nothing moves there. Cross-attention does not move at all: the flash and Triton paths measure k and v by q's length."
    ),
    follows="vLLM 0.14.0 (MultiHeadAttention removed); prefix as of 0.16.0, PR #33674",
    names=frozenset({V.MULTI_HEAD_ATTENTION}),
    plan=plan,
    examples=(
        Example(before=_BEFORE, after=_AFTER),
        Example(before=_CROSS, after=_CROSS, refused=True),
    ),
)

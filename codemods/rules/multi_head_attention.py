"""VA101: MultiHeadAttention becomes MMEncoderAttention, in every role the class has in a file."""

from __future__ import annotations

import ast
import io
import tokenize

from codemods import edits as E
from codemods import import_moves, string_annotations
from codemods.findings import Severity
from codemods.parsed_file import keyword, parameters
from codemods.plan import FilePlan, Plan
from codemods.rule import Example, Rule
from codemods.vision_attention import vocabulary as V
from codemods.vision_attention.instances import held_in, modules_around
from codemods.vision_attention.multi_head import Followers
from codemods.vision_attention.multi_head_sites import Sites, sites_of

_BEFORE = """\
from torch import nn
from vllm.attention.layer import MultiHeadAttention
from vllm.model_executor.layers.linear import QKVParallelLinear


class PatchAttention(nn.Module):
    def __init__(self, width: int, heads: int, prefix: str = "") -> None:
        super().__init__()
        head_dim = width // heads
        self.qkv = QKVParallelLinear(width, head_dim, heads, prefix=f"{prefix}.qkv")
        self.attn = MultiHeadAttention(heads, head_dim, head_dim**-0.5)

    def forward(self, x):
        qkv, _ = self.qkv(x)
        q, k, v = qkv.chunk(3, dim=-1)
        return self.attn(q, k, v)
"""

_AFTER = """\
from torch import nn
from vllm.model_executor.layers.attention import MMEncoderAttention
from vllm.model_executor.layers.linear import QKVParallelLinear


class PatchAttention(nn.Module):
    def __init__(self, width: int, heads: int, prefix: str = "") -> None:
        super().__init__()
        head_dim = width // heads
        self.qkv = QKVParallelLinear(width, head_dim, heads, prefix=f"{prefix}.qkv")
        self.attn = MMEncoderAttention(heads, head_dim, head_dim**-0.5, prefix=f"{prefix}.attn")

    def forward(self, x):
        qkv, _ = self.qkv(x)
        q, k, v = qkv.chunk(3, dim=-1)
        return self.attn(q, k, v)
"""

_CROSS = """\
from torch import nn
from vllm.attention.layer import MultiHeadAttention


class Pooling(nn.Module):
    def __init__(self, heads: int, head_dim: int) -> None:
        super().__init__()
        self.attn = MultiHeadAttention(heads, head_dim, head_dim**-0.5)

    def forward(self, latents, patches):
        return self.attn(latents, patches, patches)
"""

_OTHER_NAME = "VllmMMEncoderAttention"  # where a file has its own MMEncoderAttention


def plan(run: Plan) -> None:
    followers = Followers(run)
    for file in run.open_files:
        sites = sites_of(run, file)
        for statement, alias in sites.ambiguous:
            module = run.target.encoder_attention
            remedy = f"Bind it once, to {V.ENCODER_ATTENTION} of {module}, and run again."
            import_moves.tell_of_rivals(run, file, RULE, statement, alias, remedy)
        if not sites.uses and not sites.strings and not sites.imports:
            continue
        if not run.target.replaces_multi_head_attention:
            _keep(file, sites)
            continue
        new = next(
            (n for n in (V.ENCODER_ATTENTION, _OTHER_NAME) if import_moves.is_free(file.file, n, V.ENCODER_ATTENTION)),
            None,
        )
        kept = _refuse(run, file, sites.uses, followers, new)
        done = [node for node in sites.uses if id(node) not in kept]
        if new is None or (kept and not done):
            file.refused += [E.Ref.of(statement) for statement, _ in sites.imports]
            continue
        _rewrite(run, file, done, sites, followers, new, drop=not kept)


# -- what stays ----------------------------------------------------------------------------------------------------


def _keep(file: FilePlan, sites: Sites) -> None:
    """The target's MMEncoderAttention does not take plain batched calls; MultiHeadAttention is still there."""
    told = [n for n in sites.uses if isinstance(file.file.parents[n], (ast.Call, ast.ClassDef, ast.keyword))] or [
        *sites.uses,
        *sites.strings,
    ]
    for node in told:
        file.find(
            RULE,
            node,
            Severity.NOTE,
            "MultiHeadAttention stays at this target: MMEncoderAttention of vLLM 0.13 only takes calls with cu_seqlens",
            "Nothing to do for 0.13, where MultiHeadAttention still works; port to 0.14 or later to move it.",
            covers=file.file.class_of(node) or file.file.statement(node),
        )
    file.refused += [E.Ref.of(statement) for statement, _ in sites.imports]


def _refuse(run: Plan, file: FilePlan, uses: list[ast.expr], followers: Followers, new: str | None) -> set[int]:
    """Findings for uses that must stay; the nodes of the classes and statements that stay with them."""
    kept: set[int] = set()
    for use in uses:
        region: ast.AST = file.file.class_of(use) or file.file.statement(use)
        above = file.file.parents[use]
        if isinstance(above, ast.ClassDef):
            region = above
        problems = followers.follow(file.file, use).problems
        for problem in problems:
            node = problem.node if problem.file is file.file else use
            gone = f"MultiHeadAttention is not in vLLM {run.target.version}: until then the file cannot be imported."
            file.find(RULE, node, Severity.ERROR, problem.message, f"{problem.remedy} {gone}", covers=region)
        if new is None:
            message = f"{V.ENCODER_ATTENTION} and {_OTHER_NAME} mean something else in this file"
            file.find(
                RULE, use, Severity.ERROR, message, "Rename the file's own classes, and run again.", covers=region
            )
        if problems or new is None:
            kept |= {id(inner) for inner in ast.walk(region)}
    return kept


# -- what changes --------------------------------------------------------------------------------------------------


def _rewrite(
    run: Plan, file: FilePlan, uses: list[ast.expr], sites: Sites, followers: Followers, new: str, drop: bool
) -> None:
    aliases = {alias.asname for _, alias in sites.imports if alias.asname and alias.asname != alias.name}
    kept_alias = aliases if drop else set()  # else it goes on standing for what could not be moved
    for node in uses:
        above = file.file.parents[node]
        edits: list[E.Edit] = []
        if isinstance(node, ast.Attribute) or (isinstance(node, ast.Name) and node.id not in kept_alias):
            edits.append(E.ReplaceExpression(E.Ref.of(node), new))
        if isinstance(above, ast.Call) and above.func is node:
            edits += _constructor(run, file, above)
        elif isinstance(above, ast.Attribute) and above.attr == "__init__":
            call = file.file.parents[above]
            edits += _without_config(run, file, call, 1) if isinstance(call, ast.Call) else []
        elif isinstance(above, ast.ClassDef):
            edits += _subclass(run, file, above)
        for call, (where, flat) in followers.follow(file.file, node).calls.items():
            if not flat:
                _give_three_axes(run.of(where), call)
        file.rewrite(RULE, node, "MultiHeadAttention is MMEncoderAttention", edits)
        file.rewritten.append(E.Ref.of(node))
    for string in sites.strings:
        edit = string_annotations.renamed(file, string, V.MULTI_HEAD_ATTENTION, new)
        file.rewrite(RULE, string, "MultiHeadAttention is MMEncoderAttention", [edit])
    _import_new(run, file, sites.imports, new, drop)
    if drop:
        for constant in file.file.nodes[ast.Constant]:
            if (
                isinstance(constant, ast.Constant)
                and constant.value == V.MULTI_HEAD_ATTENTION
                and _in_all(file, constant)
            ):
                file.add(E.ReplaceExpression(E.Ref.of(constant), f'"{new}"'))
        if not sites.ambiguous and _in_comments(file.file.text):
            file.add(E.RenameInComments(V.MULTI_HEAD_ATTENTION, V.ENCODER_ATTENTION))


def _text(file: FilePlan, node: ast.expr) -> str:
    return ast.get_source_segment(file.file.text, node) or ast.unparse(node)


def _give_three_axes(file: FilePlan, call: ast.Call) -> None:
    file.rewrite(
        RULE,
        call,
        "the result has three axes as before: MMEncoderAttention gives back four for four",
        [E.ReplaceExpression(E.Ref.of(call), f"{_text(file, call)}.flatten(2)")],
    )


def _constructor(run: Plan, file: FilePlan, call: ast.Call) -> list[E.Edit]:
    edits = _without_config(run, file, call, 0)
    function = file.file.function(call)
    if function is None or not any(a.arg == "prefix" for a in parameters(function)):
        return edits
    known = not any(isinstance(a, ast.Starred) for a in call.args) and all(k.arg is not None for k in call.keywords)
    attribute = held_in(file.file, call)
    if not known or attribute is None or keyword(call, "prefix") is not None or len(call.args) > 4:
        return edits
    counter = modules_around(file.file, call)
    if counter is None:
        file.find(
            RULE,
            call,
            Severity.NOTE,
            f"the attentions in self.{attribute} get no prefix: they are built without a counter",
            'Count them, and pass prefix=f"{prefix}.' + attribute + '.{i}": later vLLM looks up FP8 scales by it.',
        )
        file.refused.pop()  # the class itself is rewritten
        return edits
    return [*edits, E.SetArgument(E.Ref.of(call), "prefix", "prefix", f'f"{{prefix}}.{attribute}{counter}"')]


def _without_config(run: Plan, file: FilePlan, call: ast.Call, shift: int) -> list[E.Edit]:
    """Take multimodal_config out of a construction where the target has no such parameter."""
    if run.target.takes_multimodal_config or any(isinstance(a, ast.Starred) for a in call.args):
        return []
    if keyword(call, "multimodal_config") is not None:
        file.remove_argument(call, "multimodal_config")
    elif len(call.args) == 6 + shift:
        file.removed.append(E.Ref.of(call.args[-1]))
        return [E.RemoveArgument(E.Ref.of(call), 5 + shift)]
    return []


def _subclass(run: Plan, file: FilePlan, cls: ast.ClassDef) -> list[E.Edit]:
    file.find(
        RULE,
        cls,
        Severity.NOTE,
        f"{cls.name} is a subclass: a device plugin replaces MMEncoderAttention by its class name, and not this one",
        "Hold an MMEncoderAttention in a module instead if the model has to run on an out-of-tree device.",
    )
    calls = [
        n
        for n in ast.walk(cls)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "__init__"
    ]
    return [
        edit
        for call in calls
        if ast.unparse(call.func).startswith("super(")
        for edit in _without_config(run, file, call, 0)
    ]


def _import_new(
    run: Plan, file: FilePlan, imports: list[tuple[ast.ImportFrom, ast.alias]], new: str, drop: bool
) -> None:
    module = run.target.encoder_attention
    asname = None if new == V.ENCODER_ATTENTION else new
    for statement, alias in imports:
        if drop:
            kept = alias.asname if alias.asname and alias.asname != alias.name else asname
            for edit in import_moves.moved(file, statement, alias, module, V.ENCODER_ATTENTION, kept):
                file.add(edit)
        else:
            file.add(E.AddImport(module, V.ENCODER_ATTENTION, asname))
            file.refused.append(E.Ref.of(statement))
        file.rewritten.append(E.Ref.of(alias))
    if not imports:  # reached through a module: vllm.attention.layer.MultiHeadAttention
        file.add(E.AddImport(module, V.ENCODER_ATTENTION, asname))


def _in_all(file: FilePlan, node: ast.AST) -> bool:
    return any(
        isinstance(a, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and "__all__" in ast.unparse(a)
        for a in file.file.above(node)
        if isinstance(a, ast.stmt)
    )


def _in_comments(text: str) -> bool:
    if V.MULTI_HEAD_ATTENTION not in text:
        return False
    return any(
        t.type == tokenize.COMMENT and V.MULTI_HEAD_ATTENTION in t.string
        for t in tokenize.generate_tokens(io.StringIO(text).readline)
    )


RULE = Rule(
    code="VA101",
    name="multi-head-attention",
    summary=(
        "MultiHeadAttention becomes MMEncoderAttention: constructor, class as a value, annotation, subclass, alias, "
        "re-export."
    ),
    why=(
        "vLLM 0.14 removed MultiHeadAttention. MMEncoderAttention takes the same first five arguments in the same "
        "order, forwards scale, and gives a three-axis result for three-axis input, so self-attention moves as it "
        "stands. In 0.13 the new class asserts cu_seqlens, so nothing moves there. Cross-attention does not move at "
        "all: the flash and Triton paths measure k and v by q's length. So every call is followed back, and q, k and v "
        "must provably have one length."
    ),
    follows="vLLM 0.14.0 (MultiHeadAttention removed); prefix as of 0.16.0, PR #33674",
    names=frozenset({V.MULTI_HEAD_ATTENTION}),
    plan=plan,
    examples=(
        Example(before=_BEFORE, after=_AFTER),
        Example(before=_CROSS, after=_CROSS, refused=True),
    ),
    unported=Severity.WARNING,
)

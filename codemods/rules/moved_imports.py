"""VA601: an import whose name moved follows it; a name that is gone is reported."""

from __future__ import annotations

import ast

from codemods import edits as E
from codemods.findings import Severity
from codemods.plan import FilePlan, Plan
from codemods.rule import Example, Rule
from codemods.vision_attention import vocabulary as V

_BEFORE = '''\
from vllm.attention.layers.mm_encoder_attention import MMEncoderAttention

attention = MMEncoderAttention
'''

_AFTER = '''\
from vllm.model_executor.layers.attention import MMEncoderAttention

attention = MMEncoderAttention
'''

# handled where they are understood: by the rules that take their uses out
_OWNED = {V.MULTI_HEAD_ATTENTION, *V.ENUMS}


def plan(run: Plan) -> None:
    for file in run.open_files:
        for statement in file.file.nodes[ast.ImportFrom]:
            assert isinstance(statement, ast.ImportFrom)
            for alias in statement.names:
                _plan_name(run, file, statement, alias)


def _plan_name(run: Plan, file: FilePlan, statement: ast.ImportFrom, alias: ast.alias) -> None:
    module = _vllm_module(run, file, statement)
    name = alias.name
    if module is None or name in _OWNED or name == "*" or file.gone(statement) or E.RemoveImport(E.Ref.of(statement), name) in file.edits:
        return
    wanted = run.target.encoder_attention if name == V.ENCODER_ATTENTION else None
    if wanted is None:
        if run.api.has(module, name) is not False:
            return
        wanted = _new_home(run, module, name)
    if wanted == module:
        return
    if wanted is None:
        file.find(
            RULE,
            alias,
            Severity.ERROR,
            f"{module}.{name} is not in vLLM {run.target.version}",
            "Take its uses out or replace them; no module of this release defines the name.",
        )
        return
    if _in_use(run, file, statement, alias):
        file.find(RULE, alias, Severity.ERROR, f"{name} is imported under several names or conditions", f"Import it from {wanted}.")
        return
    message = f"{name} is imported from {wanted}"
    if isinstance(file.file.parents[statement], ast.Module):
        file.rewrite(RULE, statement, message, [E.RemoveImport(E.Ref.of(statement), name), E.AddImport(wanted, name, alias.asname)])
    else:
        others = [a for a in statement.names if a is not alias]
        tail = f" as {alias.asname}" if alias.asname else ""
        own = ast.unparse(ast.ImportFrom(statement.module, others, statement.level)) + "\n" if others else ""
        file.rewrite(RULE, statement, message, [E.ReplaceStatement(E.Ref.of(statement), f"{own}from {wanted} import {name}{tail}\n")])


def _vllm_module(run: Plan, file: FilePlan, statement: ast.ImportFrom) -> str | None:
    module = file.file.absolute(statement)
    if module.startswith("vllm.") or module == "vllm":
        # a relative import inside vLLM's own models folder means the file beside it
        return None if module in run.project.by_module else module
    return None


def _new_home(run: Plan, module: str, name: str) -> str | None:
    """Where the target exports the name from: its one definition, or the shortest public way to it."""
    homes = run.api.where(name)
    if len(homes) == 1:
        return homes[0]
    near = [home for home in homes if home.split(".")[:2] == module.split(".")[:2] or home.startswith(module.rpartition(".")[0])]
    return near[0] if len(near) == 1 else None


def _in_use(run: Plan, file: FilePlan, statement: ast.ImportFrom, alias: ast.alias) -> bool:
    """A statement inside `try` or `if` chooses between several sources: that is the author's to decide."""
    return any(isinstance(above, ast.Try) for above in file.file.above(statement))


RULE = Rule(
    code="VA601",
    name="moved-imports",
    summary="Imports follow names that moved between vLLM releases; names that are gone are reported.",
    why="vLLM moved its attention code twice (0.14, 0.16) and much around it since. Where a name lives at the target is read from the index of its releases.",
    follows="vLLM 0.14.0 and 0.16.0 (vllm.attention dissolved), and whatever else the index shows",
    names=frozenset({V.ENCODER_ATTENTION}),
    plan=plan,
    examples=(Example(before=_BEFORE, after=_AFTER, source="0.13"),),
)

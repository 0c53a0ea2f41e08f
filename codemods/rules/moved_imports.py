"""VA601: an import whose name moved follows it; a name that is gone is reported."""

from __future__ import annotations

import ast

from codemods import edits as E
from codemods.findings import Severity
from codemods.plan import FilePlan, Plan
from codemods.rule import Example, Rule
from codemods.target import release_key
from codemods.vision_attention import vocabulary as V
from codemods.vllm_api import Api, releases, store

_BEFORE = """\
from vllm.attention.layers.mm_encoder_attention import MMEncoderAttention

attention = MMEncoderAttention
"""

_AFTER = """\
from vllm.model_executor.layers.attention import MMEncoderAttention

attention = MMEncoderAttention
"""

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
    if (
        module is None
        or name in _OWNED
        or name == "*"
        or file.gone(statement)
        or E.RemoveImport(E.Ref.of(statement), name) in file.edits
    ):
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
        file.find(
            RULE,
            alias,
            Severity.ERROR,
            f"{name} is imported under several names or conditions",
            f"Import it from {wanted}.",
        )
        return
    message = f"{name} is imported from {wanted}"
    if isinstance(file.file.parents[statement], ast.Module):
        file.rewrite(
            RULE,
            statement,
            message,
            [E.RemoveImport(E.Ref.of(statement), name), E.AddImport(wanted, name, alias.asname)],
        )
    else:
        others = [a for a in statement.names if a is not alias]
        tail = f" as {alias.asname}" if alias.asname else ""
        own = ast.unparse(ast.ImportFrom(statement.module, others, statement.level)) + "\n" if others else ""
        file.rewrite(
            RULE,
            statement,
            message,
            [E.ReplaceStatement(E.Ref.of(statement), f"{own}from {wanted} import {name}{tail}\n")],
        )


def _vllm_module(run: Plan, file: FilePlan, statement: ast.ImportFrom) -> str | None:
    module = file.file.absolute(statement)
    if module.startswith("vllm.") or module == "vllm":
        # a relative import inside vLLM's own models folder means the file beside it
        return None if module in run.project.by_module else module
    return None


def _new_home(run: Plan, module: str, name: str) -> str | None:
    """Where the target has the name, followed release by release: a name moved where it went in one place and
    came in another.

    The same name elsewhere is not enough: models define helpers of the same names.
    """
    for _ in range(8):
        if run.api.has(module, name):
            return _public(run, module, name)
        step = _moved(run, module, name)
        if step is None:
            return None
        module = step
    return None


def _moved(run: Plan, module: str, name: str) -> str | None:
    known = [Api.of(r) for r in releases() if release_key(r) <= release_key(run.target.version)]
    having = [index for index, api in enumerate(known) if api.has(module, name)]
    if not having or having[-1] + 1 >= len(known):
        return None
    before, after = known[having[-1]], known[having[-1] + 1]
    origin = (before.names(module) or {}).get(name)
    if origin and origin != store.OUTSIDE:  # a re-export went: what it stood for may still be there
        home, _, own = origin.rpartition(".")
        return home if own == name else None
    came = [m for m in after.where(name) if m not in before.where(name)]
    return came[0] if len(came) == 1 else None


def _public(run: Plan, module: str, name: str) -> str:
    """The shortest package around the module that exports the same thing."""
    around = [m for m in run.api.exported_from(name) if module.startswith(f"{m}.") and m.count(".") >= 1]
    return around[0] if around else module


def _in_use(run: Plan, file: FilePlan, statement: ast.ImportFrom, alias: ast.alias) -> bool:
    """A statement inside `try` or `if` chooses between several sources: that is the author's to decide."""
    return any(isinstance(above, ast.Try) for above in file.file.above(statement))


RULE = Rule(
    code="VA601",
    name="moved-imports",
    summary="Imports follow names that moved between vLLM releases; names that are gone are reported.",
    why=(
        "vLLM moved its attention code twice (0.14, 0.16) and much around it since. Where a name lives at the target "
        "is read from the index of its releases."
    ),
    follows="vLLM 0.14.0 and 0.16.0 (vllm.attention dissolved), and whatever else the index shows",
    names=frozenset({V.ENCODER_ATTENTION}),
    plan=plan,
    examples=(Example(before=_BEFORE, after=_AFTER, source="0.13"),),
)

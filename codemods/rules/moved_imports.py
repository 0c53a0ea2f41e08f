"""VA601: an import whose name moved follows it; a name that is gone is reported."""

from __future__ import annotations

import ast

from codemods import edits as E
from codemods import import_moves, moved_names
from codemods.findings import Severity
from codemods.module_imports import plan_modules
from codemods.plan import FilePlan, Plan
from codemods.project import VLLM_MODELS
from codemods.rule import Example, Rule
from codemods.vision_attention import vocabulary as V

_BEFORE = """\
import vllm.attention.layer as layer
from vllm.attention.layers.mm_encoder_attention import MMEncoderAttention

attention = MMEncoderAttention
language_attention = layer.Attention
"""

_AFTER = """\
from vllm.model_executor.layers.attention import Attention, MMEncoderAttention

attention = MMEncoderAttention
language_attention = Attention
"""

# handled where they are understood: by the rules that take their uses out
_OWNED = {V.MULTI_HEAD_ATTENTION, *V.ENUMS}


def plan(run: Plan) -> None:
    for file in run.open_files:
        for statement in file.file.nodes[ast.ImportFrom]:
            assert isinstance(statement, ast.ImportFrom)
            _plan_statement(run, file, statement)
        plan_modules(run, file, RULE)


def _plan_statement(run: Plan, file: FilePlan, statement: ast.ImportFrom) -> None:
    if file.gone(statement):
        return
    neighbour = run.project.missing_neighbour(file.file, statement)
    module = f"{VLLM_MODELS}.{neighbour}" if neighbour else file.file.absolute(statement)
    if not (module == "vllm" or module.startswith("vllm.")) or module in run.project.by_module:
        return
    if neighbour and not moved_names.was_module(run, module):
        return
    homes: dict[ast.alias, str] = {}
    for alias in statement.names:
        if alias.name == "*":
            _plan_star(run, file, statement, module)
        elif alias.name not in _OWNED and E.RemoveImport(E.Ref.of(statement), alias.name) not in file.edits:
            place = _home(run, file, statement, alias, module)
            if place is not None and (neighbour or place != module):
                homes[alias] = place
    if len(homes) == len(statement.names) and len(set(homes.values())) == 1:
        file.rewrite(
            RULE, statement, _message(homes), import_moves.moved_whole(file, statement, next(iter(homes.values())))
        )
        return
    for alias, place in homes.items():
        edits = import_moves.moved(file, statement, alias, place, alias.name, alias.asname)
        file.rewrite(RULE, statement, _message({alias: place}), edits)


def _message(homes: dict[ast.alias, str]) -> str:
    names = ", ".join(alias.name for alias in homes)
    return f"{names} {'is' if len(homes) == 1 else 'are'} imported from {next(iter(homes.values()))}"


def _home(run: Plan, file: FilePlan, statement: ast.ImportFrom, alias: ast.alias, module: str) -> str | None:
    """Where the target has an imported name. None where nothing is to be done, or a finding says why nothing is."""
    name = alias.name
    if run.api.has(module, name) is not False and name != V.ENCODER_ATTENTION:
        return module
    if moved_names.is_module(run, module, name):
        return None  # `from vllm.attention import layer`: looked at by what is read from it
    place = moved_names.home(run, module, name)
    if import_moves.rivals(file.file, statement, alias.asname or name):
        if run.api.has(module, name) is False:
            remedy = f"Bind it once, from {place}, and run again." if place else "Take its uses out or replace them."
            import_moves.tell_of_rivals(run, file, RULE, statement, alias, remedy)
        return None
    if place is None:
        guarded = isinstance(import_moves.guard(file.file, statement), ast.Try)
        file.find(
            RULE,
            alias,
            Severity.WARNING if guarded else Severity.ERROR,
            f"{module}.{name} is not in vLLM {run.target.version}",
            "Take its uses out or replace them; no module of this release defines the name.",
        )
    return place


def _plan_star(run: Plan, file: FilePlan, statement: ast.ImportFrom, module: str) -> None:
    """`from module import *` cannot be followed; it is told of where something that the file reads is lost."""
    release = run.target.version
    remedy = "Import what the file uses by name, and run again."
    if not run.api.has_module(module):
        file.find(RULE, statement, Severity.ERROR, f"{module} is not in vLLM {release}", remedy)
        return
    free = [name for name, reads in file.file.reads.items() if not file.file.bound(name, reads[0])]
    lost = sorted(n for n in free if run.api.has(module, n) is False and moved_names.was_there(run, module, n))
    if lost:
        message = f"{module} of vLLM {release} has no {', '.join(lost)}, which this file takes from it by *"
        file.find(RULE, statement, Severity.ERROR, message, remedy)


RULE = Rule(
    code="VA601",
    name="moved-imports",
    summary="Imports follow names that moved between vLLM releases; names that are gone are reported.",
    why=(
        "vLLM moved its attention code twice (0.14, 0.16) and much around it since. Where a name is at the target is "
        "read from the index of its releases. A file copied out of vLLM's models folder imports its old neighbours by "
        "relative imports; where none lies beside it, vLLM's own is meant, and is imported by its full name."
    ),
    follows="vLLM 0.14.0 and 0.16.0 (vllm.attention dissolved), and whatever else the index shows",
    names=frozenset({V.ENCODER_ATTENTION}),
    plan=plan,
    examples=(Example(before=_BEFORE, after=_AFTER, source="0.13"),),
)

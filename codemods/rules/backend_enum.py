"""VA602: the backend enum by its name and module at the target."""

from __future__ import annotations

import ast

from codemods import edits as E
from codemods import import_moves, string_annotations
from codemods.findings import Severity
from codemods.plan import FilePlan, Plan
from codemods.rule import Example, Rule
from codemods.vision_attention import vocabulary as V

_NEW = "AttentionBackendEnum"
_OLD = "_Backend"

_BEFORE = """\
from vllm.platforms import _Backend


def is_plain(backend: _Backend) -> bool:
    return backend == _Backend.TORCH_SDPA
"""

_AFTER = """\
from vllm.v1.attention.backends.registry import AttentionBackendEnum


def is_plain(backend: AttentionBackendEnum) -> bool:
    return backend == AttentionBackendEnum.TORCH_SDPA
"""


def enum_name(run: Plan, file: FilePlan, node: ast.expr) -> str:
    """How new code calls the enum that `node` stands for: by its new name, or by the file's own name for it."""
    if isinstance(node, ast.Name) and (node.id != _OLD or not import_moves.is_free(file.file, _NEW, _NEW)):
        return node.id
    return _NEW


def plan(run: Plan) -> None:
    for file in run.open_files:
        for node in run.project.standing_for(file.file, *V.ENUMS):
            if not file.gone(node) and not run.patches.reach_through(file.file, node):
                _member(run, file, node)
                _rename(run, file, node)
        if import_moves.is_free(file.file, _NEW, _NEW):
            for string in string_annotations.naming(run, file.file, {_OLD}):
                file.rewrite(RULE, string, f"{_OLD} is {_NEW}", [string_annotations.renamed(file, string, _OLD, _NEW)])
        for statement in file.file.nodes[ast.ImportFrom]:
            assert isinstance(statement, ast.ImportFrom)
            for alias in statement.names:
                _import(run, file, statement, alias)


def _rename(run: Plan, file: FilePlan, node: ast.Name | ast.Attribute) -> None:
    """`_Backend` by its new name; `registry.AttentionBackendEnum` by name where that module has it no more."""
    name = enum_name(run, file, node)
    if isinstance(node, ast.Name):
        edits: list[E.Edit] = [E.ReplaceExpression(E.Ref.of(node), name)] if node.id != name else []
    else:
        module = (run.project.vllm(file.file, node, node) or "").rpartition(".")[0]
        stays = run.api.has(module, node.attr) is not False or not import_moves.is_free(file.file, _NEW, _NEW)
        new: list[E.Edit] = [E.ReplaceExpression(E.Ref.of(node), name), E.AddImport(run.target.backend_enum, _NEW)]
        edits = [] if stays else new
    if edits:
        file.rewrite(RULE, node, f"{ast.unparse(node)} is {name}", edits)


def _import(run: Plan, file: FilePlan, statement: ast.ImportFrom, alias: ast.alias) -> None:
    module = file.file.absolute(statement)
    name = run.project.follow(f"{module}.{alias.name}")
    if not name.startswith("vllm.") or V.last(name) not in V.ENUMS:
        return
    vllms = module.partition(".")[0] == "vllm" and module not in run.project.by_module
    if alias.name == _NEW and (not vllms or run.api.has(module, _NEW)):
        return
    if file.gone(statement) or E.RemoveImport(E.Ref.of(statement), alias.name) in file.edits:
        return
    if import_moves.rivals(file.file, statement, alias.asname or alias.name):
        remedy = f"Bind it once, to {_NEW} of {run.target.backend_enum}, and run again."
        import_moves.tell_of_rivals(run, file, RULE, statement, alias, remedy)
        return
    taken = alias.name == _OLD and not import_moves.is_free(file.file, _NEW, _NEW)
    edits = import_moves.moved(
        file, statement, alias, run.target.backend_enum, _NEW, alias.asname or (_OLD if taken else None)
    )
    file.rewrite(RULE, statement, f"the backend enum is imported from {run.target.backend_enum}", edits)


def _member(run: Plan, file: FilePlan, node: ast.AST) -> None:
    above = file.file.parents[node]
    if not isinstance(above, ast.Attribute) or above.value is not node:
        return
    members = run.api.enum_members(f"{run.target.backend_enum}.{_NEW}")
    if members and above.attr.isupper() and above.attr not in members:
        file.find(
            RULE,
            above,
            Severity.ERROR,
            f"the backend {above.attr} is not in vLLM {run.target.version}",
            "Take the branch that names it out; vLLM no longer has this backend.",
        )


RULE = Rule(
    code="VA602",
    name="backend-enum",
    summary="The backend enum is imported from where the target has it; _Backend is AttentionBackendEnum.",
    why=(
        "_Backend became AttentionBackendEnum in 0.11.1 and moved with vLLM's attention code to vllm.v1 in 0.14. "
        "Members that are gone (XFORMERS, PALLAS) raise AttributeError where they are read, and are reported."
    ),
    follows="vLLM 0.11.1 (renamed), 0.14.0 (moved)",
    names=frozenset(V.ENUMS),
    plan=plan,
    examples=(Example(before=_BEFORE, after=_AFTER, source="0.11.0"),),
    unported=Severity.WARNING,
)

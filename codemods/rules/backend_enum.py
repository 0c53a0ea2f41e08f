"""VA602: the backend enum by its name and module at the target."""

from __future__ import annotations

import ast

from codemods import edits as E
from codemods.findings import Severity
from codemods.plan import FilePlan, Plan
from codemods.rule import Example, Rule
from codemods.vision_attention import vocabulary as V

_NEW = "AttentionBackendEnum"

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
    """How new code calls the enum that `node` stands for: by its new name, unless the file has its own alias for it."""
    text = ast.unparse(node)
    return _NEW if text.rpartition(".")[2] == "_Backend" else text


def plan(run: Plan) -> None:
    for file in run.open_files:
        for node in run.project.standing_for(file.file, *V.ENUMS):
            if file.gone(node):
                continue
            _member(run, file, node)
            if ast.unparse(node).rpartition(".")[2] == "_Backend":
                file.rewrite(
                    RULE, node, "_Backend is AttentionBackendEnum", [E.ReplaceExpression(E.Ref.of(node), _NEW)]
                )
        for statement in file.file.nodes[ast.ImportFrom]:
            assert isinstance(statement, ast.ImportFrom)
            for alias in statement.names:
                name = run.project.follow(f"{file.file.absolute(statement)}.{alias.name}")
                if not name.startswith("vllm.") or V.last(name) not in V.ENUMS:
                    continue
                module = file.file.absolute(statement)
                if (
                    module == run.target.backend_enum
                    or not module.startswith("vllm.")
                    or _stays(run, module, alias.name)
                ):
                    continue
                asname = alias.asname
                if file.gone(statement) or E.RemoveImport(E.Ref.of(statement), alias.name) in file.edits:
                    continue
                if isinstance(file.file.parents[statement], ast.Module):
                    file.rewrite(
                        RULE,
                        statement,
                        f"the backend enum is imported from {run.target.backend_enum}",
                        [
                            E.RemoveImport(E.Ref.of(statement), alias.name),
                            E.AddImport(run.target.backend_enum, _NEW, asname),
                        ],
                    )
                elif len(statement.names) == 1:
                    tail = f" as {asname}" if asname else ""
                    file.rewrite(
                        RULE,
                        statement,
                        f"the backend enum is imported from {run.target.backend_enum}",
                        [
                            E.ReplaceStatement(
                                E.Ref.of(statement), f"from {run.target.backend_enum} import {_NEW}{tail}\n"
                            )
                        ],
                    )


def _stays(run: Plan, module: str, name: str) -> bool:
    return bool(run.api.has(module, name)) and name == _NEW


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
)

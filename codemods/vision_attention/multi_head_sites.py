"""Where vLLM's MultiHeadAttention stands in a file: expressions, annotations in strings, imports."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from codemods import import_moves, string_annotations
from codemods.plan import FilePlan, Plan
from codemods.vision_attention import vocabulary as V


@dataclass
class Sites:
    """What a file has of the class. `ambiguous`: imports of a name that something else binds as well."""

    uses: list[ast.expr] = field(default_factory=list)
    strings: list[ast.Constant] = field(default_factory=list)
    imports: list[tuple[ast.ImportFrom, ast.alias]] = field(default_factory=list)
    ambiguous: list[tuple[ast.ImportFrom, ast.alias]] = field(default_factory=list)


def sites_of(run: Plan, file: FilePlan) -> Sites:
    found = Sites()
    for statement in file.file.nodes[ast.ImportFrom]:
        assert isinstance(statement, ast.ImportFrom)
        for alias in statement.names:
            name = run.project.follow(f"{file.file.absolute(statement)}.{alias.name}")
            if name.startswith("vllm.") and V.last(name) == V.MULTI_HEAD_ATTENTION:
                twice = import_moves.rivals(file.file, statement, alias.asname or alias.name)
                (found.ambiguous if twice else found.imports).append((statement, alias))
    found.uses = list(run.project.standing_for(file.file, V.MULTI_HEAD_ATTENTION))
    found.strings = list(string_annotations.naming(run, file.file, {V.MULTI_HEAD_ATTENTION}))
    return found

"""Where vLLM's MultiHeadAttention stands in a file: expressions, annotations in strings, imports."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from codemods import import_moves
from codemods.parsed_file import FunctionNode
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
    local = {alias.asname or alias.name for _, alias in found.imports} | {V.MULTI_HEAD_ATTENTION}
    for node in file.file.nodes[ast.Constant]:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and any(name in node.value for name in local):
            if _is_annotation(file, node) and _names_the_class(run, file, node):
                found.strings.append(node)
    return found


def _is_annotation(file: FilePlan, node: ast.AST) -> bool:
    below = node
    for above in file.file.above(node):
        if isinstance(above, (ast.arg, ast.AnnAssign)):
            return above.annotation is below
        if isinstance(above, FunctionNode):
            return above.returns is below
        if not isinstance(above, (ast.Subscript, ast.Tuple, ast.BinOp, ast.List)):
            return False
        below = above
    return False


def _names_the_class(run: Plan, file: FilePlan, node: ast.Constant) -> bool:
    try:
        tree = ast.parse(str(node.value).strip(), mode="eval")
    except SyntaxError:
        return False
    return any(
        isinstance(n, (ast.Name, ast.Attribute))
        and V.last(run.project.vllm(file.file, n, node)) == V.MULTI_HEAD_ATTENTION
        for n in ast.walk(tree)
    )

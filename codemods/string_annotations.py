"""Annotations written as strings."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator

from codemods import edits as E
from codemods.parsed_file import ParsedFile
from codemods.plan import FilePlan, Plan
from codemods.vision_attention import vocabulary as V


def naming(run: Plan, file: ParsedFile, names: Collection[str]) -> Iterator[ast.Constant]:
    """String annotations in which one of vLLM's names stands, by whatever local name."""
    local = {alias for name in names for alias in (name, *run.project.aliases(file).get(name, ()))}
    words = re.compile(rf"\b(?:{'|'.join(map(re.escape, local))})\b")
    for node in file.nodes[ast.Constant]:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and words.search(node.value):
            if file.in_annotation(node) and _names(run, file, node, names):
                yield node


def renamed(file: FilePlan, node: ast.Constant, old: str, new: str) -> E.Edit:
    """The edit that puts a new name into a string annotation."""
    text = ast.get_source_segment(file.file.text, node) or ast.unparse(node)
    return E.ReplaceExpression(E.Ref.of(node), re.sub(rf"\b{old}\b", new, text))


def _names(run: Plan, file: ParsedFile, node: ast.Constant, names: Collection[str]) -> bool:
    try:
        tree = ast.parse(str(node.value).strip(), mode="eval")
    except SyntaxError:
        return False
    found = (run.project.vllm(file, n, node) for n in ast.walk(tree) if isinstance(n, (ast.Name, ast.Attribute)))
    return any(V.last(name) in names for name in found)

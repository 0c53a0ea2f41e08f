"""Modules imported whole (`import vllm.attention.layer as layer`), and the names that are read from them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods import edits as E
from codemods import import_moves, moved_names
from codemods.findings import Severity
from codemods.parsed_file import dotted
from codemods.plan import FilePlan, Plan
from codemods.rule import Rule


def plan_modules(run: Plan, file: FilePlan, rule: Rule) -> None:
    """What is read from a module that moved is imported by name; an import that then serves nothing goes."""
    for statement, alias, module in _modules(run, file):
        reads = [node for node in _reads(file, statement, alias) if _is_of(file, node, module)]
        kept = [node for node in reads if not file.gone(node)]
        left = [node for node in kept if not _follow(run, file, rule, node)]
        if len(left) < len(reads) and not left:
            _drop(run, file, rule, statement, alias)
        elif not run.api.has_module(module) and not run.patches.explain(file.file, left):
            _tell(run, file, rule, statement, module)


def _modules(run: Plan, file: FilePlan) -> Iterator[tuple[ast.Import | ast.ImportFrom, ast.alias, str]]:
    for statement in file.file.nodes[ast.Import]:
        assert isinstance(statement, ast.Import)
        for alias in statement.names:
            if alias.name.startswith("vllm."):
                yield statement, alias, alias.name
    for node in file.file.nodes[ast.ImportFrom]:
        assert isinstance(node, ast.ImportFrom)
        package = file.file.absolute(node)
        if package.partition(".")[0] == "vllm":
            for alias in node.names:
                module = f"{package}.{alias.name}"
                if module not in run.project.by_module and moved_names.is_module(run, package, alias.name):
                    yield node, alias, module


def _reads(file: FilePlan, statement: ast.Import | ast.ImportFrom, alias: ast.alias) -> Iterator[ast.expr]:
    """Each expression `module.name`, or the module itself where it is used as a value."""
    local = alias.asname or alias.name
    steps = local.count(".") + 1  # attributes from the name on to what is read from the module
    for node in file.file.nodes[ast.Name]:
        assert isinstance(node, ast.Name)
        if node.id != local.partition(".")[0] or isinstance(node.ctx, ast.Store):
            continue
        chain: list[ast.expr] = [node]
        while isinstance(above := file.file.parents[chain[-1]], ast.Attribute) and len(chain) <= steps:
            chain.append(above)
        if dotted(chain[min(len(chain), steps) - 1]) == local:
            yield chain[-1]


def _is_of(file: FilePlan, node: ast.expr, module: str) -> bool:
    """Whether a read goes through this module: the name may be another import's, elsewhere in the file."""
    name = file.file.resolve(node, node)
    return name in (None, f"{module}.{node.attr}" if isinstance(node, ast.Attribute) else module)


def _follow(run: Plan, file: FilePlan, rule: Rule, node: ast.expr) -> bool:
    """Read a name that moved from where it is now. False where the import has to stay for this read."""
    name = file.file.resolve(node, node)
    module, _, last = (name or "").rpartition(".")
    if not isinstance(node, ast.Attribute) or run.api.has(module, last) is not False:
        return False
    if run.patches.reach_through(file.file, node):
        return False
    home = moved_names.home(run, module, last)
    if home is None or not isinstance(node.ctx, ast.Load) or not import_moves.is_free(file.file, home.name, home.name):
        if not any(place.contains(E.Ref.of(node)) for place in file.refused):
            remedy = f"Import {home.name} from {home.module}." if home else "Take its uses out or replace them."
            file.find(rule, node, Severity.ERROR, moved_names.absence(run, module, last), remedy)
        return False
    edits: list[E.Edit] = [E.ReplaceExpression(E.Ref.of(node), home.name), E.AddImport(home.module, home.name)]
    file.rewrite(rule, node, f"{home.name} is imported from {home.module}", edits)
    return True


def _drop(run: Plan, file: FilePlan, rule: Rule, statement: ast.Import | ast.ImportFrom, alias: ast.alias) -> None:
    """Take an import out whose reads are all rewritten; `import vllm` stays where more is reached through it."""
    edit = E.RemoveImport(E.Ref.of(statement), alias.name)
    if edit in file.edits or file.gone(statement):
        return
    root = alias.name.partition(".")[0]
    bare = isinstance(statement, ast.Import) and alias.asname is None
    others = [i for i in file.file.imports if i.alias == root and i.statement is not statement]
    if bare and not others and any(not file.gone(read) for read in file.file.reads.get(root, ())):
        if len(statement.names) == 1:
            file.rewrite(
                rule,
                statement,
                f"{alias.name} is no longer used",
                [E.ReplaceStatement(E.Ref.of(statement), f"import {root}\n")],
            )
        return
    file.rewrite(rule, statement, f"{alias.name} is no longer used", [edit])


def _tell(run: Plan, file: FilePlan, rule: Rule, statement: ast.Import | ast.ImportFrom, module: str) -> None:
    if not file.gone(statement):
        file.find(
            rule,
            statement,
            Severity.ERROR,
            moved_names.absence(run, module),
            "Import what the file needs by name from where it is now.",
        )

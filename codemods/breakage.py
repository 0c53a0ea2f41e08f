"""What a target vLLM changes for the files of a run: for each base, constructor, call, import and patch of vLLM's."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from codemods import calls, moved_names
from codemods import edits as E
from codemods import patched_target as at
from codemods.findings import Change, Finding, Rewrite, Severity, Use
from codemods.parsed_file import FunctionNode
from codemods.plan import FilePlan, Plan
from codemods.rules import RULES, patches, source_patches
from codemods.source_version import newest_source
from codemods.vllm_api import Api

_RULES = {rule.code: rule for rule in RULES}
_PATCHES = (patches.RULE.code, source_patches.RULE.code)


@dataclass(frozen=True)
class _Row:
    """A change before it is known who follows it. `node` is the place in the file."""

    node: ast.AST
    use: Use
    name: str
    what: str
    breaking: bool = True
    remedy: str = ""


def changes(run: Plan, file: FilePlan, findings: Iterable[Finding]) -> list[Change]:
    """Every change that the target makes to what a file uses; what only a finding or a rewrite tells of comes as it
    tells it."""
    left = [finding for finding in findings if finding.severity is not Severity.NOTE]
    found: list[Change] = []
    rows = list(_rows(run, file))
    for row in rows:
        fixed_by = _fixed_by(file, row.node)
        spoken = [f for f in left if _speaks_of(f, row)]
        left = [f for f in left if f not in spoken]
        remedy = spoken[0].remedy if spoken else row.remedy
        line = row.node.lineno  # type: ignore[attr-defined]
        found.append(
            Change(line, row.use, row.name, row.what, row.breaking, fixed_by, "" if fixed_by is not None else remedy)
        )
    for finding in left:
        use = Use.PATCHES if finding.code in _PATCHES else Use.OTHER
        breaking = finding.severity is Severity.ERROR
        found.append(Change(finding.line, use, finding.code, finding.message, breaking, None, finding.remedy))
    for rewrite in _told_by_no_row(file, rows):
        breaking = _RULES[rewrite.code].unported is Severity.ERROR
        found.append(Change(rewrite.line, Use.OTHER, rewrite.code, rewrite.message, breaking, rewrite.code))
    return sorted(set(found))


def _told_by_no_row(file: FilePlan, rows: Iterable[_Row]) -> Iterator[Rewrite]:
    """The rewrites of what names and signatures do not show. What only tidies up after others shows nothing.

    A rule for attention rewrites a class in several places: where a row names one of them, it stands for all.
    """
    by_row = [(row.node, _fixed_by(file, row.node)) for row in rows]
    here = {fixed_by for _, fixed_by in by_row}
    for rewrite in file.rewrites:
        rule = _RULES[rewrite.code]
        if rule.unported is Severity.ERROR:
            told = any(
                fixed_by in (rule.code, "") and node.lineno <= rewrite.line <= node.end_lineno  # type: ignore[attr-defined]
                for node, fixed_by in by_row
            )
        else:
            told = rule.unported is Severity.NOTE or not here.isdisjoint((rule.code, *rule.requires))
        if not told:
            yield rewrite


def _speaks_of(finding: Finding, row: _Row) -> bool:
    first, last = row.node.lineno, row.node.end_lineno  # type: ignore[attr-defined]
    return first <= finding.line <= last and row.name.rpartition(".")[2] in finding.message


def _fixed_by(file: FilePlan, node: ast.AST) -> str | None:
    """The rule that edits a place, or takes it out; "" where it goes along with something; None where nobody does."""
    rule = next((code for code, edit in file.by_rule if _touches(file, edit, node)), None)
    if rule is not None:
        return rule
    if not file.gone(node) and not any(_touches(file, edit, node) for edit in file.edits):
        return None
    lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)  # type: ignore[attr-defined]
    return next((rewrite.code for rewrite in file.rewrites if rewrite.line in lines), "")


def _touches(file: FilePlan, edit: E.Edit, node: ast.AST) -> bool:
    """Whether an edit changes what a row speaks of: an imported name, a call or base, the head of a function."""
    place = E.Ref.of(node)
    if isinstance(edit, E.RemoveImport):
        statement = file.file.parents[node]
        return isinstance(node, ast.alias) and edit == E.RemoveImport(E.Ref.of(statement), node.name)
    if isinstance(edit, (E.RemoveParameter, E.SetParameter, E.AddParameter)):
        return edit.function == place
    if isinstance(edit, (E.RemoveArgument, E.SetArgument)):
        return edit.call == place
    if isinstance(edit, E.ReplaceExpression):
        inside = not isinstance(node, FunctionNode) and place.contains(edit.expression)
        return inside or edit.expression.contains(place)
    return isinstance(edit, E.ReplaceStatement) and edit.statement.contains(place)


# -- rows ------------------------------------------------------------------------------------------------------------


def _rows(run: Plan, file: FilePlan) -> Iterator[_Row]:
    source = newest_source(run.project, file.file, file.source, run.target.version)
    before = Api.of(source) if source else None
    yield from _imports(run, file)
    for cls in file.file.class_nodes:
        for base in cls.bases:
            name = _vllms(run, file, base)
            if name is not None:
                yield from _base(run, file, before, cls, base, name)
    for call in file.file.nodes[ast.Call]:
        assert isinstance(call, ast.Call)
        name = _vllms(run, file, call.func)
        if name is not None:
            yield from _call(run, before, call, name)


def _vllms(run: Plan, file: FilePlan, node: ast.expr) -> str | None:
    """The vLLM name behind an expression, unless the project has it."""
    name = run.project.vllm(file.file, node) if isinstance(node, (ast.Name, ast.Attribute)) else None
    return None if name is None or name.rpartition(".")[0] in run.project.by_module else name


def _imports(run: Plan, file: FilePlan) -> Iterator[_Row]:
    for imported in file.file.imports:
        alias = next(a for a in imported.statement.names if (a.asname or a.name.partition(".")[0]) == imported.alias)
        name = imported.qualified if imported.name is not None else alias.name
        if name.partition(".")[0] != "vllm" or imported.module in run.project.by_module or imported.name == "*":
            continue
        if at.has(run.api, name) is False:
            patched = run.patches.explain(file.file, file.file.reads.get(imported.alias, ()))
            if not patched or _home(run, name) is not None:
                yield _Row(alias, Use.IMPORTS, name, _where(run, name), remedy=_instead(run, name))


def _where(run: Plan, name: str) -> str:
    """What became of a name that is not there."""
    home = _home(run, name)
    since = at.gone_since(name, run.target.version)
    if home is not None:
        return f"moved to {home} (gone here since {since})" if since else f"is {home} in this release"
    if since is not None:
        return f"gone since {since}"
    known = at.history(name)
    return f"comes with {known[0]}" if known else "in no release that is known"


def _home(run: Plan, name: str) -> str | None:
    module, _, last = name.rpartition(".")
    home = moved_names.home(run, module, last)
    return f"{home.module}.{home.name}" if home is not None else None


def _instead(run: Plan, name: str) -> str:
    home = _home(run, name)
    return f"Import it from {home.rpartition('.')[0]}." if home else "Replace what uses it, or take that out."


def _there(run: Plan, name: str) -> str | None:
    """The name at the target: the same, or where it moved."""
    return name if at.has(run.api, name) is not False else _home(run, name)


def _base(
    run: Plan, file: FilePlan, before: Api | None, cls: ast.ClassDef, base: ast.expr, name: str
) -> Iterator[_Row]:
    now = _there(run, name)
    if now != name:
        yield _Row(base, Use.SUBCLASSES, name, _where(run, name), remedy=_instead(run, name))
    if now is None or before is None:
        return
    for method in cls.body:
        if not isinstance(method, FunctionNode) or method.name.startswith("__"):
            continue
        old, new = before.signature(f"{name}.{method.name}"), run.api.signature(f"{now}.{method.name}")
        member = f"{name.rpartition('.')[2]}.{method.name}"
        if old is not None and at.has(run.api, f"{now}.{method.name}") is False:
            what = "gone: vLLM no longer calls what overrides it"
            yield _Row(method, Use.SUBCLASSES, member, what, False, "See what vLLM calls in its place.")
        elif old is not None and new is not None and old != new:
            skip = 0 if any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in method.decorator_list) else 1
            wrong = at.misfit(at.of_function(method, skip), new)
            if wrong != at.Misfit():
                what = f"was {old}, is {new}"
                remedy = "Give the override the same parameters."
                yield _Row(method, Use.SUBCLASSES, member, what, bool(wrong.always), remedy)


def _call(run: Plan, before: Api | None, call: ast.Call, name: str) -> Iterator[_Row]:
    now = _there(run, name)
    use = Use.CONSTRUCTS if _is_class(run, before, name) else Use.CALLS
    if now is None:
        if at.history(name):
            yield _Row(call, use, name, _where(run, name), remedy=_instead(run, name))
        return
    why = calls.why_not(run.api, now, call)
    new = run.api.signature(now)
    if why is not None and new is not None:
        old = before.signature(name) if before is not None else None
        was = f"was {old}, " if old is not None and old != new else ""
        yield _Row(call, use, name, f"{was}is {new}: {why}", remedy="Call it as this signature asks.")


def _is_class(run: Plan, before: Api | None, name: str) -> bool:
    return any(api is not None and (api.bases(name) or api.members(name)) for api in (run.api, before))

"""VA601: an import whose name moved follows it; a name that is gone is reported."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from codemods import edits as E
from codemods import import_moves, moved_names
from codemods.findings import Severity
from codemods.module_imports import plan_modules
from codemods.moved_names import Home
from codemods.plan import FilePlan, Plan
from codemods.rule import Example, Rule
from codemods.vision_attention import vocabulary as V
from codemods.vllm_api import introduced

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
    module = neighbour or file.file.absolute(statement)
    if not (module == "vllm" or module.startswith("vllm.")) or module in run.project.by_module:
        return
    if neighbour and not moved_names.was_module(run, module):
        return
    if neighbour and not any(a.name == "*" or introduced(module, a.name) for a in statement.names):
        message = f"{'.' * statement.level}{statement.module} is taken for the plugin's own"
        why = f"no vLLM that is known has any of these names in {module}"
        remedy = "Port the two files in one run, so that what one takes from the other is seen."
        file.find(RULE, statement, Severity.NOTE, f"{message}: {why}", remedy)
        return
    homes: dict[ast.alias, Home] = {}
    for alias in statement.names:
        if alias.name == "*":
            _plan_star(run, file, statement, module)
        elif alias.name not in _OWNED and E.RemoveImport(E.Ref.of(statement), alias.name) not in file.edits:
            home = _home(run, file, statement, alias, module)
            if home is not None and (neighbour or home != Home(module, alias.name)):
                homes[alias] = home
    if homes and file.stays(statement):
        _tell_of_kept(run, file, statement, module, homes)
        return
    modules = {home.module for home in homes.values()}
    if len(homes) == len(statement.names) and len(modules) == 1 and all(a.name == h.name for a, h in homes.items()):
        edits = import_moves.moved_whole(file, statement, modules.pop())
        file.rewrite(RULE, statement, _message(list(homes.values())), edits)
        return
    for alias, home in homes.items():
        edits = import_moves.moved(file, statement, alias, home.module, home.name, alias.asname)
        if home.name != alias.name and alias.asname is None:
            for read in file.file.reads.get(alias.name, ()):
                edits.append(E.ReplaceExpression(E.Ref.of(read), home.name))
        file.rewrite(RULE, statement, _message([home]), edits)


def _tell_of_kept(
    run: Plan, file: FilePlan, statement: ast.ImportFrom, module: str, homes: dict[ast.alias, Home]
) -> None:
    """An import in a guard that is kept: what is right at the target as it stands, is right."""
    for alias, home in homes.items():
        if run.api.has(module, alias.name) is False:
            message = f"{moved_names.absence(run, module, alias.name)}; this arm of the guard runs there"
            file.find(RULE, alias, Severity.ERROR, message, f"Import {home.name} from {home.module} in this arm.")


def _message(homes: Sequence[Home]) -> str:
    names = ", ".join(home.name for home in homes)
    return f"{names} {'is' if len(homes) == 1 else 'are'} imported from {homes[0].module}"


def _home(run: Plan, file: FilePlan, statement: ast.ImportFrom, alias: ast.alias, module: str) -> Home | None:
    """Where the target has an imported name. None where nothing is to be done, or a finding says why nothing is."""
    name = alias.name
    if run.api.has(module, name) is not False:
        return Home(module, name)
    if moved_names.is_module(run, module, name):
        return None  # `from vllm.attention import layer`: looked at by what is read from it
    home = moved_names.home(run, module, name)
    remedy = f"Bind it once, from {home.module}, and run again." if home else "Take its uses out or replace them."
    rivals = import_moves.rivals(file.file, statement, alias.asname or name)
    if rivals and not all(_repeats(run, file, statement, other, alias.asname or name, home) for other in rivals):
        if run.api.has(module, name) is False:
            import_moves.tell_of_rivals(run, file, RULE, statement, alias, remedy)
        return None
    free = home is None or home.name == name or import_moves.is_free(file.file, home.name, home.name)
    if home is None or not free:
        if run.patches.explain(file.file, file.file.reads.get(alias.asname or name, ())):
            file.refused.append(E.Ref.of(alias))
            return None
        guarded = isinstance(import_moves.guard(file.file, statement), ast.Try)
        went = home is None and moved_names.was_there(run, module, name)
        if went and not guarded and _is_unused(run, file, statement, alias.asname or name):
            message = f"{moved_names.absence(run, module, name)}, and nothing here uses it: it is no longer imported"
            file.rewrite(RULE, alias, message, [E.RemoveImport(E.Ref.of(statement), name)])
            return None
        severity = Severity.WARNING if guarded else Severity.ERROR
        gone = moved_names.elsewhere(run, module, name)
        kept = (
            f"{home.name} of {home.module} took its place; the file has something else of that name." if home else gone
        )
        file.find(RULE, alias, severity, moved_names.absence(run, module, name), kept)
        return None
    for call in _calls_of(file, alias.asname or name) if name != V.ENCODER_ATTENTION else ():
        why = moved_names.why_not_called(run, module, name, home, call)
        if why is not None:
            message = f"{name} is in {home.module} of vLLM {run.target.version}, and takes other arguments: {why}"
            file.find(RULE, call, Severity.ERROR, message, "Import it from there, and call it as its signature asks.")
            file.refused.append(E.Ref.of(alias))
            return None
    return home


def _repeats(run: Plan, file: FilePlan, statement: ast.stmt, other: ast.AST, local: str, home: Home | None) -> bool:
    """Whether another import of a name gives the same at the target, and is not the other arm of a choice."""
    if home is None or not isinstance(other, ast.ImportFrom):
        return False
    choice = import_moves.guard(file.file, statement)
    if choice is not None and choice is import_moves.guard(file.file, other):
        return False
    module = file.file.absolute(other)
    names = [alias.name for alias in other.names if local == (alias.asname or alias.name)]
    return bool(names) and all(moved_names.home(run, module, name) == home for name in names)


def _is_unused(run: Plan, file: FilePlan, statement: ast.stmt, local: str) -> bool:
    """Whether an import is all that a file says of a name, down to its texts, and no other file takes it from here."""
    word = re.compile(rf"\b{re.escape(local)}\b")
    own = "\n".join(file.file.lines[statement.lineno - 1 : statement.end_lineno])
    alone = len(word.findall(file.file.text)) == len(word.findall(own)) == 1 and not file.file.is_package
    return alone and not run.taken(file, local)


def _calls_of(file: FilePlan, local: str) -> Iterator[ast.Call]:
    """Calls of a name, less those that other rules give other arguments, or have told of."""
    told = set(file.refused)
    edited = {edit.call for edit in file.edits if isinstance(edit, (E.RemoveArgument, E.SetArgument))}
    for read in file.file.reads.get(local, ()):
        above = file.file.parents[read]
        if isinstance(above, ast.Call) and above.func is read and not file.gone(above):
            if E.Ref.of(above) not in edited and E.Ref.of(above) not in told:
                yield above


def _plan_star(run: Plan, file: FilePlan, statement: ast.ImportFrom, module: str) -> None:
    """`from module import *` cannot be followed; it is told of where something that the file reads is lost."""
    release = run.target.version
    remedy = "Import what the file uses by name, and run again."
    if not run.api.has_module(module):
        file.find(RULE, statement, Severity.ERROR, moved_names.absence(run, module), remedy)
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
        "relative imports; where none lies beside it, vLLM's own is meant, and is imported by its full name. An "
        "import of what is gone, and that nothing uses, only keeps the file from being imported: it is taken out."
    ),
    follows="vLLM 0.14.0 and 0.16.0 (vllm.attention dissolved), and whatever else the index shows",
    names=frozenset({V.ENCODER_ATTENTION, "vllm"}),
    plan=plan,
    examples=(Example(before=_BEFORE, after=_AFTER, source="0.13"),),
)

"""Edits that bind a local name from another module, and what to ask first: is it bound once, is another name free."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from codemods import edits as E
from codemods.emit import LINE
from codemods.findings import Severity
from codemods.parsed_file import Import, ParsedFile, dotted
from codemods.plan import FilePlan, Plan
from codemods.rule import Rule

_HEAD = re.compile(r"(from[\s\\]+)[.\w]+(?=[\s\\]+import\b)")


def moved(
    file: FilePlan, statement: ast.ImportFrom, alias: ast.alias, module: str, name: str, asname: str | None
) -> list[E.Edit]:
    """Edits after which `name` of `module` is imported in place of one name of an import.

    At module level the new import goes to its sorted place. In a block it stays where it was, as it does where a
    comment speaks of it.
    """
    ref = E.Ref.of(statement)
    alone = len(statement.names) == 1
    note = None if alone else _note(file.file, statement, alias)
    commented = bool(note or _above(file.file, statement, alias)) or (alone and _has_comment(file.file, statement))
    new = name + (f" as {asname}" if asname and asname != name else "")
    if not commented and _may_move(file.file, statement, f"from {module} import {new}"):
        return [E.RemoveImport(ref, alias.name), E.AddImport(module, name, asname)]
    if alone:
        return [E.ReplaceStatement(ref, _in_place(file.file, statement, alias, module, new))]
    line = f"from {module} import {new}{f'  {note}' if note else ''}\n"
    above = "".join(f"{comment}\n" for comment in _above(file.file, statement, alias))
    return [E.RemoveImport(ref, alias.name), E.InsertAfter(ref, above + line)]


def moved_whole(file: FilePlan, statement: ast.ImportFrom, module: str) -> list[E.Edit]:
    """Edits after which everything that an import names comes from another module."""
    names = ", ".join(a.name + (f" as {a.asname}" if a.asname else "") for a in statement.names)
    if not _has_comment(file.file, statement) and _may_move(file.file, statement, f"from {module} import {names}"):
        return [e for a in statement.names for e in moved(file, statement, a, module, a.name, a.asname)]
    first = statement.names[0]
    new = first.name + (f" as {first.asname}" if first.asname else "")
    return [E.ReplaceStatement(E.Ref.of(statement), _in_place(file.file, statement, first, module, new))]


def _has_comment(file: ParsedFile, statement: ast.stmt) -> bool:
    return any("#" in line for line in file.lines[statement.lineno - 1 : statement.end_lineno])


def _may_move(file: ParsedFile, statement: ast.ImportFrom, new: str) -> bool:
    """Whether an import may go to another place: at module level, and not where `# isort: off` keeps the order.

    One that is alone of its package stays, being a section of its own, unless it has to be laid out anew.
    """
    switches = [line.strip() for line in file.lines[: statement.lineno] if line.strip().startswith("# isort: o")]
    if not isinstance(file.parents[statement], ast.Module) or switches[-1:] == ["# isort: off"]:
        return False
    package = file.absolute(statement).partition(".")[0]
    others = [i for i in file.imports if i.statement is not statement and i.module.partition(".")[0] == package]
    return (
        bool(statement.level)
        or len(new) > LINE
        or any(isinstance(file.parents[i.statement], ast.Module) for i in others)
    )


def _note(file: ParsedFile, statement: ast.ImportFrom, alias: ast.alias) -> str | None:
    """The comment behind one name that has a line of its own."""
    shared = any(other is not alias and other.lineno == alias.lineno for other in statement.names)
    _, sign, text = file.lines[alias.lineno - 1].partition("#")
    return f"#{text}" if sign and not shared and alias.lineno != statement.lineno else None


def _above(file: ParsedFile, statement: ast.ImportFrom, alias: ast.alias) -> list[str]:
    """Comment lines right above the last name of an import, which would go with it."""
    if alias is not statement.names[-1] or len(statement.names) == 1:
        return []
    first = statement.names[-2].end_lineno or statement.lineno
    lines = [line.strip() for line in file.lines[first : alias.lineno - 1]]
    return [line for line in lines if line.startswith("#")]


def _in_place(file: ParsedFile, statement: ast.ImportFrom, alias: ast.alias, module: str, new: str) -> str:
    """The statement's own text with another module and name: layout and comments stay."""
    lines = [line.encode() for line in file.lines[statement.lineno - 1 : statement.end_lineno]]
    lines[-1] = lines[-1][: statement.end_col_offset]
    row = alias.lineno - statement.lineno
    assert alias.end_col_offset is not None
    lines[row] = lines[row][: alias.col_offset] + new.encode() + lines[row][alias.end_col_offset :]
    lines[0] = lines[0][statement.col_offset :]
    return _HEAD.sub(rf"\g<1>{module}", b"\n".join(lines).decode(), count=1) + "\n"


def guard(file: ParsedFile, node: ast.AST) -> ast.Try | ast.If | None:
    """The outermost `try` or `if` of this scope that decides whether an import runs; not `if TYPE_CHECKING:`."""
    found: ast.Try | ast.If | None = None
    for above in file.above(node):
        if isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            break
        if isinstance(above, ast.Try) or (
            isinstance(above, ast.If) and (dotted(above.test) or "").rpartition(".")[2] != "TYPE_CHECKING"
        ):
            found = above
    return found


def rivals(file: ParsedFile, statement: ast.Import | ast.ImportFrom, local: str) -> list[ast.AST]:
    """What else binds the local name of an import in its scope to something else, import or not."""
    own = {imported.qualified for imported in _imports_of(file, statement, local)}
    found: list[ast.AST] = []
    for binding in file._scopes.get(file.scope(statement), {}).get(local, []):
        if not isinstance(binding, Import):
            found.append(binding)
        elif binding.statement is not statement and binding.qualified not in own:
            found.append(binding.statement)
    return found


def _imports_of(file: ParsedFile, statement: ast.AST, local: str) -> Iterator[Import]:
    return (i for i in file.imports if i.statement is statement and i.alias == local)


def tell_of_rivals(
    run: Plan, file: FilePlan, rule: Rule, statement: ast.ImportFrom, alias: ast.alias, remedy: str
) -> None:
    """An import that is one of several for its name stays, and so do the reads of it, whichever of them holds.

    Only a note where another of them works at the target: then nothing has to be done.
    """
    local = alias.asname or alias.name
    others = rivals(file.file, statement, local)
    works = works_at_target(run, file.file, statement) or any(
        works_at_target(run, file.file, other) for other in others
    )
    lines = sorted({statement.lineno, *(getattr(other, "lineno", 1) for other in others)})
    file.find(
        rule,
        guard(file.file, statement) or statement,
        Severity.NOTE if works else Severity.ERROR,
        f"{local} is bound in several places (lines {', '.join(map(str, lines))}): its uses stay as they are",
        "Nothing has to be done while one of the imports works at the target." if works else remedy,
        covers=statement,
    )
    file.refused += map(E.Ref.of, file.file.reads.get(local, ()))


def works_at_target(run: Plan, file: ParsedFile, statement: ast.AST) -> bool:
    """Whether an import of vLLM's succeeds at the target as it stands."""
    if not isinstance(statement, ast.ImportFrom):
        return False
    module = file.absolute(statement)
    return module.startswith("vllm") and all(run.api.has(module, alias.name) is True for alias in statement.names)


def is_free(file: ParsedFile, name: str, meaning: str) -> bool:
    """Whether a file binds a name nowhere, unless by imports whose last name is `meaning`."""
    for table in file._scopes.values():
        for binding in table.get(name, ()):
            if not isinstance(binding, Import) or binding.name != meaning:
                return False
    return True


def bring(run: Plan, file: FilePlan, module: str, name: str) -> list[E.Edit]:
    """Edits after which a vLLM name may be read at module level: none where the file imports it already."""
    known = (i for i in file.file.imports if i.alias == name and i.name == name and i.scope is file.file.tree)
    if any(run.project.vllm(file.file, ast.Name(name), i.statement) == f"{module}.{name}" for i in known):
        return []
    return [E.AddImport(module, name)]

"""Carries plans out, file by file, and checks every new text before it may be written."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from codemods import edits as E
from codemods.findings import Finding, Severity
from codemods.inputs import Input
from codemods.notebook import NotebookError, said_line
from codemods.parsed_file import ParsedFile
from codemods.plan import FilePlan, Plan
from codemods.source_file import SourceError
from codemods.verify import RULE as SELF_CHECK
from codemods.verify import problems

Progress = Callable[[int, int], None]

_LINE = re.compile(r"^line (\d+)")  # how errors of places begin
_WORTH_A_POOL = 300_000  # bytes of changed files below which starting processes costs more than it saves


def carry_out(plan: Plan, inputs: list[Input], jobs: int, progress: Progress | None) -> dict[Path, Finding]:
    """Set `after` of every planned file; what cannot be carried out or fails the check is returned, with a finding."""
    by_path = {entry.path: entry for entry in inputs}
    work = [p for p in plan.open_files if p.edits]
    for entry in inputs:
        entry.after = None
    failed: dict[Path, Finding] = {}
    total = len(inputs)
    done = total - len(work)
    if progress is not None:
        progress(done, total)
    for file, result in _applied(work, jobs):
        done += 1
        if progress is not None:
            progress(done, total)
        if result.error is None:
            try:
                new = ParsedFile.of(result.text, like=file.file)
            except SyntaxError as error:
                where = said_line(file.file.path, result.text.split("\n"), error.lineno or 1)
                wrong = [f"the new text does not parse ({where}: {error.msg})"]
            else:
                wrong = problems(new, file, plan)
            if not wrong:
                entry = by_path[file.file.path]
                entry.after = new
                try:
                    _ = entry.text_after
                    continue
                except NotebookError as error:
                    entry.after = None
                    wrong = [str(error)]
            result = replace(result, error=wrong[0])
        failed[file.file.path] = self_check(_as_counted(file.file, result.error or ""))
    return failed


def _as_counted(file: ParsedFile, error: str) -> str:
    """An error of a place, whose line is then that of a cell where the file is a notebook."""
    match = _LINE.match(error)
    return error if match is None else file.line(int(match[1])) + error[match.end() :]


def unwritable(plan: Plan, inputs: list[Input], roots: Sequence[Path]) -> dict[Path, Finding]:
    """Files that would change but may not be written: each gets its error."""
    by_path = {entry.path: entry for entry in inputs}
    found: dict[Path, Finding] = {}
    for file in plan.open_files:
        entry = by_path[file.file.path]
        if file.edits and entry.source is not None:
            try:
                entry.source.check_write(entry.source.text, roots)
            except SourceError as error:
                entry.error = str(error)
                found[entry.path] = self_check(error.message)
    return found


def self_check(reason: str) -> Finding:
    return Finding(
        1,
        1,
        SELF_CHECK.code,
        Severity.ERROR,
        f"the file is left as it is: {reason}",
        "Port it by hand, and report this: the rewrite failed its own check.",
    )


@dataclass(frozen=True)
class _Result:
    text: str = ""
    error: str | None = None


def _apply_one(job: tuple[str, ast.Module | None, list[E.Edit]]) -> _Result:
    from libcst import ParserSyntaxError

    from codemods.apply import ApplyError, apply
    from codemods.comma_lists import ListError
    from codemods.places import PlaceError

    text, tree, edits = job
    try:
        return _Result(apply(text, tree or ast.parse(text), edits))
    except ParserSyntaxError as error:
        return _Result(error=f"LibCST cannot read it: {error.message}")  # its `str` fails where the text is empty
    except (ApplyError, ListError, PlaceError) as error:
        return _Result(error=str(error).splitlines()[0])
    except Exception as error:  # a fault of ours in one file must not cost the others
        return _Result(error=f"{type(error).__name__}: {error}".splitlines()[0])


def _applied(work: Sequence[FilePlan], jobs: int) -> Iterable[tuple[FilePlan, _Result]]:
    if jobs <= 1 or len(work) < 2 or sum(len(p.file.text) for p in work) < _WORTH_A_POOL:
        yield from zip(work, (_apply_one((p.file.text, None if p.view else p.file.tree, p.edits)) for p in work))
        return
    tasks = [(p.file.text, None, p.edits) for p in work]
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    import libcst  # noqa: F401  imported ahead of the fork, once for all processes

    order = sorted(range(len(work)), key=lambda i: -len(tasks[i][0]))
    with ProcessPoolExecutor(min(jobs, len(work)), mp_context=get_context("fork")) as pool:
        for index, result in zip(order, pool.map(_apply_one, [tasks[i] for i in order])):
            yield work[index], result

"""One run: find files, read them, plan every rule over all of them, carry the plans out, check the result, write it."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TypeVar

from codemods import edits as E
from codemods.discover import discover
from codemods.findings import FileReport, Finding, Report, Rewrite, Severity
from codemods.guards.settle import settled
from codemods.leftovers import RULE as LEFTOVER
from codemods.leftovers import account
from codemods.liveness import RULE as UNREACHED
from codemods.liveness import reached
from codemods.notebook import SUFFIX, Notebook, NotebookError
from codemods.parsed_file import ParsedFile
from codemods.plan import FilePlan, Plan
from codemods.project import Project, module_name
from codemods.reports.together import together
from codemods.rule import Rule
from codemods.rules import RULES
from codemods.rules.version_guards import RULE as VERSION_GUARDS
from codemods.rules.version_guards import kept_guards_in_the_way
from codemods.source_file import SourceError, SourceFile
from codemods.source_version import describe, source_versions
from codemods.target import release_key, target
from codemods.verify import RULE as SELF_CHECK
from codemods.verify import problems
from codemods.vision_attention import vocabulary as V
from codemods.vllm_api import Api

Progress = Callable[[int, int], None]
Elsewhere = Callable[[str, ParsedFile], bool]

_RELATIVE = re.compile(r"^\s*from\s+\.", re.M)  # a copy out of vLLM's models folder may mean vLLM's own neighbours
_WORTH_A_POOL = 300_000  # bytes of changed files below which starting processes costs more than it saves


@dataclass(frozen=True)
class Options:
    """What a run is asked to do. `target` is a release in the index; `select` and `ignore` hold rule codes or
    prefixes."""

    target: str
    source: str | None = None
    write: bool = True
    jobs: int = 1
    select: frozenset[str] = frozenset()
    ignore: frozenset[str] = frozenset()
    keep_params: bool = False
    keep_guards: bool = False
    also: tuple[str, ...] = ()  # further targets, which the same text must serve

    @property
    def targets(self) -> tuple[str, ...]:
        """All targets, the oldest first."""
        return tuple(sorted({self.target, *self.also}, key=release_key))


@dataclass
class Input:
    """One file of the run while it goes through: read, parsed if a rule may apply, planned, changed."""

    path: Path
    source: SourceFile | None = None
    notebook: Notebook | None = None
    parsed: ParsedFile | None = None
    error: str | None = None
    after: ParsedFile | None = None

    @property
    def text_after(self) -> str | None:
        """The file's whole text as it is to be written. Raises NotebookError where a change has no place in a cell."""
        if self.after is None:
            return None
        return self.after.text if self.notebook is None else self.notebook.with_code(self.after.text)


def active_rules(options: Options) -> tuple[Rule, ...]:
    """The rules a run uses: the selected ones and what they need, less the ignored ones, less those that need one of
    these."""

    def matches(rule: Rule, codes: frozenset[str]) -> bool:
        return any(rule.code.startswith(code) for code in codes)

    nets = {SELF_CHECK.code, LEFTOVER.code}  # under whatever rules are selected
    chosen = {r.code for r in RULES if not options.select or matches(r, options.select) or r.code in nets}
    while more := {need for r in RULES if r.code in chosen for need in r.requires} - chosen:
        chosen |= more
    chosen -= {r.code for r in RULES if matches(r, options.ignore)}
    while True:
        kept = {r.code for r in RULES if r.code in chosen and set(r.requires) <= chosen}
        if kept == chosen:
            return tuple(r for r in RULES if r.code in chosen)
        chosen = kept


def migrate(paths: Sequence[Path], options: Options, progress: Progress | None = None) -> Report:
    """Port files to `options.target`. Nothing is raised for bad files: each has its own line in the report.

    Raises ValueError if the target has no MMEncoderAttention.
    """
    return examine(paths, options, progress)[0]


def examine(paths: Sequence[Path], options: Options, progress: Progress | None = None) -> tuple[Report, Plan]:
    """The same, and what was planned: the last plan, over the files as they were."""
    for release in options.targets:
        target(release)
    rules = active_rules(options)
    found = discover(paths)
    inputs = [Input(path) for path in found.files]
    given = {Path(os.path.abspath(path)) for path in paths}
    for entry in inputs:
        _read(entry)
    _parse(inputs, _word_search({name for rule in rules for name in rule.names}), given)
    neighbours = _neighbours(inputs)
    elsewhere = _elsewhere(inputs)
    setting = Setting(neighbours, rules, elsewhere, found.roots)
    frozen: dict[Path, Finding] = {}
    notes: dict[Path, list[Finding]] = {}
    if options.also:
        from codemods.several_targets import port_for_all

        plans, notes = port_for_all(inputs, setting, options, frozen)
    else:
        plans = {options.target: port(inputs, setting, options, frozen, progress)}
    reports = [FileReport(str(error.path), error=str(error)) for error in found.errors]
    if not inputs and not reports:
        reports = [FileReport(str(path), error=f"{path}: no Python files here; check the path") for path in paths]
    by_path = {release: {p.file.path: p for p in plan.files} for release, plan in plans.items()}
    live = (
        reached(e.parsed for e in inputs if e.parsed is not None)
        if UNREACHED.code in plans[options.target].active
        else {}
    )
    for entry in inputs:
        told = {r: _report(entry, plan, by_path[r].get(entry.path), frozen) for r, plan in plans.items()}
        told = {
            r: report if r == options.target else _in_arms(report, by_path[r].get(entry.path))
            for r, report in told.items()
        }
        report = _written(entry, together(told, notes.get(entry.path, ())), options, found.roots)
        reports.append(_marked(report, live.get(entry.path)))
    reports.sort(key=lambda report: report.path)
    report_of_all = Report(" and ".join(options.targets), tuple(reports), dry_run=not options.write)
    return report_of_all, plans[options.target]


@dataclass(frozen=True)
class Setting:
    """What does not change while a run plans, checks and plans anew."""

    neighbours: list[ParsedFile]
    rules: tuple[Rule, ...]
    elsewhere: Elsewhere
    roots: Sequence[Path]


def port(
    inputs: list[Input],
    setting: Setting,
    options: Options,
    frozen: dict[Path, Finding],
    progress: Progress | None = None,
) -> Plan:
    """Plan and carry out until every change passes its check; `frozen` takes the files that do not, with the reason."""
    neighbours, rules, elsewhere = setting.neighbours, setting.rules, setting.elsewhere
    while True:
        plan = _plan(inputs, neighbours, rules, options, frozen, elsewhere)
        if unwritable := _unwritable(plan, inputs, setting.roots):
            frozen.update(unwritable)  # planned around from the start: no other file may count on a change in them
            continue
        if held := kept_guards_in_the_way(plan):
            frozen.update(held)
            continue
        failed = _carry_out(plan, inputs, options, frozen, progress)
        failed = failed or _again(inputs, neighbours, rules, options, frozen, elsewhere)
        if not failed:
            return plan
        frozen.update(failed)  # left exactly as they are; the others are planned anew without them


# -- reading ---------------------------------------------------------------------------------------------------------


def _read(entry: Input) -> None:
    try:
        entry.source = SourceFile.read(entry.path)
    except SourceError as error:
        entry.error = str(error)


def _word_search(names: Iterable[str]) -> re.Pattern[str]:
    return re.compile(r"\b(?:" + "|".join(sorted(map(re.escape, names))) + r")\b")


def _parse(inputs: list[Input], words: re.Pattern[str], given: set[Path]) -> None:
    """Parse the files in which a rule's name or a relative import stands, those given one by one, and those that pass
    such a name on."""
    while True:
        for entry in inputs:
            if entry.source is None or entry.parsed is not None or entry.error is not None:
                continue
            named = Path(os.path.abspath(entry.path)) in given
            if named or words.search(entry.source.text) or _RELATIVE.search(entry.source.text):
                _parse_one(entry)
        more = _passed_on([e.parsed for e in inputs if e.parsed is not None]) - set(_words(words))
        if not more:
            return
        words = _word_search({*_words(words), *more})


def _words(pattern: re.Pattern[str]) -> list[str]:
    return pattern.pattern[len(r"\b(?:") : -len(r")\b")].replace("\\", "").split("|")


def _parse_one(entry: Input) -> None:
    assert entry.source is not None
    text = entry.source.text
    if entry.path.suffix == SUFFIX:
        try:
            entry.notebook = Notebook(text)
        except NotebookError as error:
            entry.error = f"{entry.path}: cannot be read: {error}; save it anew with Jupyter"
            return
        text = entry.notebook.code
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        hint = (
            "this looks like Python 2"
            if re.search(r"^\s*(print\s+[\"'\w]|except\s+\w+\s*,|exec\s+[\"'])", text, re.M)
            else _mend()
        )
        entry.error = f"{entry.path}:{error.lineno or 1}: cannot be parsed: {error.msg}; {hint}"
        return
    except (RecursionError, MemoryError, ValueError) as error:
        entry.error = f"{entry.path}:1: cannot be parsed: {type(error).__name__}; split the file"
        return
    module, is_package = module_name(entry.path)
    entry.parsed = ParsedFile(entry.path, module, text, tree, is_package)


def _mend() -> str:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return f"mend it first, or run this with a newer Python than {version} if the file is written for one"


def _passed_on(files: Sequence[ParsedFile]) -> set[str]:
    """Names under which other files may reach what the rules change: aliases of vLLM's names, classes with a
    choice of backend."""
    found: set[str] = set()
    for file in files:
        for imported in file.imports:
            if (
                imported.name in (V.MULTI_HEAD_ATTENTION, V.GET_BACKEND, V.GET_FLASH, *V.ENUMS)
                and imported.alias != imported.name
            ):
                found.add(imported.alias)
        for node in file.classes.values():
            for function in node.body:
                if isinstance(function, ast.FunctionDef) and function.name == "__init__":
                    names = {a.arg for a in [*function.args.args, *function.args.kwonlyargs]}
                    if names & set(V.BACKEND_PARAMETERS):
                        found.add(node.name)
        found |= _made_from_multi_head(file)
    return found


def _made_from_multi_head(file: ParsedFile) -> set[str]:
    """Classes that hold or extend MultiHeadAttention, and other names for it: how they are called decides whether
    it can move."""
    local = {i.alias for i in file.imports if i.name == V.MULTI_HEAD_ATTENTION}
    uses: list[ast.AST] = [node for name in local for node in file.reads.get(name, ())]
    uses += [n for n in file.nodes[ast.Attribute] if isinstance(n, ast.Attribute) and n.attr == V.MULTI_HEAD_ATTENTION]
    found: set[str] = set()
    for use in uses:
        cls, above = file.class_of(use), file.parents[use]
        if cls is not None:
            found.add(cls.name)
        elif isinstance(above, ast.Assign):
            found |= {t.id for t in above.targets if isinstance(t, ast.Name)}
    return found


def _neighbours(inputs: list[Input]) -> list[ParsedFile]:
    """Files beside the given ones that are not given: read for callers of what changes, and for what the given ones
    import from them; never written."""
    known = {os.path.realpath(e.path) for e in inputs}
    parsed = [e.parsed for e in inputs if e.parsed is not None]
    classes = {name for file in parsed for name in _passed_on([file])}
    words = _word_search(classes) if classes else None
    imported = {
        file.path.parent / f"{i.statement.module.split('.')[0]}.py"
        for file in parsed
        if V.VISION.search(file.text)
        for i in file.imports
        if isinstance(i.statement, ast.ImportFrom) and i.statement.level == 1 and i.statement.module
    }
    found: list[ParsedFile] = []
    for folder in sorted({file.path.parent for file in parsed}):
        for path in sorted(folder.glob("*.py")):
            if os.path.realpath(path) in known or not path.is_file():
                continue
            entry = Input(path)
            _read(entry)
            if entry.source is not None:
                text = entry.source.text
                if (words is not None and words.search(text)) or (path in imported and V.VISION.search(text)):
                    _parse_one(entry)
            if entry.parsed is not None:
                found.append(entry.parsed)
    return found


# -- planning --------------------------------------------------------------------------------------------------------


def _elsewhere(inputs: list[Input]) -> Elsewhere:
    """Whether a file that no rule looked into, of the run or beside the given ones, takes a name from another file."""

    @cache
    def beside(folder: Path) -> list[tuple[Path, bytes]]:
        known = {os.path.realpath(e.path) for e in inputs}
        return [
            (p, p.read_bytes()) for p in sorted(folder.glob("*.py")) if p.is_file() and os.path.realpath(p) not in known
        ]

    def search(name: str, file: ParsedFile) -> bool:
        stem = re.escape(file.path.parent.name if file.is_package else file.path.stem)
        word = re.escape(name)
        taken = re.compile(rf"\b{stem}\s+import\s+(?:\([^)]*|[^\n(]*)\b{word}\b|\b{stem}\.{word}\b")
        texts = [e.source.text for e in inputs if e.source is not None and e.parsed is None]
        texts += [data.decode("utf-8", "replace") for _, data in beside(file.path.parent)]
        return any(name in text and taken.search(text) is not None for text in texts)

    return search


def _plan(
    inputs: list[Input],
    neighbours: list[ParsedFile],
    rules: Sequence[Rule],
    options: Options,
    frozen: dict[Path, Finding],
    elsewhere: Elsewhere,
) -> Plan:
    parsed = [e.parsed for e in inputs if e.parsed is not None]
    return plan_files(parsed, neighbours, rules, options, frozenset(frozen), elsewhere)


def plan_files(
    files: Sequence[ParsedFile],
    neighbours: Sequence[ParsedFile],
    rules: Sequence[Rule],
    options: Options,
    frozen: frozenset[Path],
    elsewhere: Elsewhere,
) -> Plan:
    """Run every rule over the files. Rules only add to the plan, so their order is that of the list, not of the
    files."""
    active = frozenset(rule.code for rule in rules)
    keep = options.keep_guards or VERSION_GUARDS.code not in active
    written = [file for file in files if file.path not in frozen]
    beside = [*(file for file in files if file.path in frozen), *neighbours]
    views = settled(written, beside, options.target, options.also, keep)
    project = Project([views[f.path].file if f.path in views else f for f in [*files, *neighbours]])
    api = Api.of(options.target)
    unwritten = {file.path for file in beside}
    plans = [
        FilePlan(
            file,
            (options.source,) if options.source else source_versions(project, file),
            read_only=file.path in unwritten,
            view=views.get(file.path),
            keeps_guards=keep,
        )
        for file in project.files
    ]
    plan = Plan(project, target(options.target), api, plans, options.keep_params, active, elsewhere)
    index = 0
    while index < len(rules):
        sweeping = []
        while index < len(rules) and rules[index].sweeps:
            sweeping.append(rules[index])
            index += 1
        size = -1
        while sweeping and size != (size := sum(len(p.edits) for p in plans)):
            for rule in sweeping:
                rule.plan(plan)
        if index < len(rules):
            rules[index].plan(plan)
            index += 1
    return plan


# -- carrying out ----------------------------------------------------------------------------------------------------


def _carry_out(
    plan: Plan, inputs: list[Input], options: Options, frozen: dict[Path, Finding], progress: Progress | None
) -> dict[Path, Finding]:
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
    for file, result in _applied(work, options.jobs):
        done += 1
        if progress is not None:
            progress(done, total)
        if result.error is None:
            try:
                new = ParsedFile.of(result.text, like=file.file)
            except SyntaxError as error:
                wrong = [f"the new text does not parse (line {error.lineno}: {error.msg})"]
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
        failed[file.file.path] = _self_check(result.error or "")
    return failed


def _unwritable(plan: Plan, inputs: list[Input], roots: Sequence[Path]) -> dict[Path, Finding]:
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
                found[entry.path] = _self_check(error.message)
    return found


def _self_check(reason: str) -> Finding:
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


def _again(
    inputs: list[Input],
    neighbours: list[ParsedFile],
    rules: Sequence[Rule],
    options: Options,
    frozen: dict[Path, Finding],
    elsewhere: Elsewhere,
) -> dict[Path, Finding]:
    """Plan once more over the new texts: a second run must have nothing to do."""
    if not any(e.after is not None for e in inputs):
        return {}
    new = [entry.after or entry.parsed for entry in inputs if entry.parsed is not None]
    second = plan_files(new, neighbours, rules, options, frozenset(frozen), elsewhere)
    return {
        p.file.path: _self_check(f"a second run would change line {p.rewrites[0].line if p.rewrites else 1} again")
        for p in second.open_files
        if p.edits
    }


# -- reporting -------------------------------------------------------------------------------------------------------


def _marked(report: FileReport, live: bool | None) -> FileReport:
    """With a note where nothing of its plugin reaches a file."""
    if live is not False:
        return replace(report, live=live)
    note = Finding(
        1,
        1,
        UNREACHED.code,
        Severity.NOTE,
        "no registry or entry point of this plugin reaches this file",
        "Register what it defines if it is to run; if not, its findings need not concern you.",
    )
    return replace(report, live=False, findings=tuple(sorted({*report.findings, note})))


def _report(
    entry: Input,
    run: Plan,
    plan: FilePlan | None,
    frozen: dict[Path, Finding],
) -> FileReport:
    if entry.error is not None or entry.source is None:
        return FileReport(str(entry.path), error=entry.error)
    if plan is None:
        return FileReport(str(entry.path))
    failure = frozen.get(entry.path)
    rewrites = () if entry.after is None else tuple(sorted(set(plan.rewrites)))
    findings = [*plan.findings, *([failure] if failure else [])]
    sites, left = account(run, plan, frozenset(name for rule in RULES for name in rule.names))
    left = left if LEFTOVER.code in run.active else []
    told = tuple(sorted({*findings, *left}))
    if entry.notebook is not None:
        rewrites = tuple(_in_cell(entry.notebook, rewrite) for rewrite in rewrites)
        told = (*(_in_cell(entry.notebook, finding) for finding in told), *_skipped_cells(entry.notebook))
    return FileReport(
        str(entry.path),
        source=describe(plan.source),
        rewrites=rewrites,
        findings=told,
        sites=sites,
        before=entry.source.text if entry.after is not None else None,
        after=entry.text_after,
    )


def _in_arms(report: FileReport, plan: FilePlan | None) -> FileReport:
    """Of the rewrites for one target of several, those in its own arms of guards: the rest is the newest target's."""
    kept = plan.view.kept if plan is not None and plan.view is not None else []
    places = [E.Ref.of(guard) for guard in kept]
    inside = (r for r in report.rewrites if any(p.line <= r.line <= p.end_line for p in places))
    return replace(report, rewrites=tuple(inside))


def _written(entry: Input, report: FileReport, options: Options, roots: Sequence[Path]) -> FileReport:
    """Write what changed, or in a dry run see whether it could be."""
    if entry.source is not None and report.changed and report.after is not None:
        try:
            if options.write:
                entry.source.write(report.after, roots)
            else:
                entry.source.check_write(report.after, roots)
        except SourceError as error:
            return replace(report, error=str(error), after=None, before=None, rewrites=())
    return report


Told = TypeVar("Told", Rewrite, Finding)


def _in_cell(notebook: Notebook, told: Told) -> Told:
    cell, line = notebook.place(told.line)
    return replace(told, cell=cell, line=line)


def _skipped_cells(notebook: Notebook) -> Iterator[Finding]:
    """Cells that are not Python, but may import from vLLM all the same."""
    for cell in notebook.skipped:
        if re.search(r"\b(?:from|import)\s+vllm\b", cell.source):
            message = "this cell is not plain Python and is left as it is, though it imports from vLLM"
            yield Finding(1, 1, LEFTOVER.code, Severity.WARNING, message, "Port it by hand.", cell.number)

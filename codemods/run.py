"""One run: find files, read them, plan every rule over all of them, carry the plans out, check the result, write it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from codemods.carry_out import Progress, carry_out, self_check, unwritable
from codemods.discover import discover
from codemods.file_reports import in_arms, marked, report_of, written
from codemods.findings import FileReport, Finding, Report
from codemods.guards.settle import settled
from codemods.inputs import Elsewhere, Input, elsewhere_of, neighbours_of, read_all
from codemods.leftovers import RULE as LEFTOVER
from codemods.liveness import RULE as UNREACHED
from codemods.liveness import reached
from codemods.parsed_file import ParsedFile
from codemods.plan import FilePlan, Plan
from codemods.project import Project
from codemods.reports.together import together
from codemods.rule import Rule
from codemods.rules import RULES
from codemods.rules.version_guards import RULE as VERSION_GUARDS
from codemods.rules.version_guards import kept_guards_in_the_way
from codemods.source_version import source_versions
from codemods.target import release_key, target
from codemods.verify import RULE as SELF_CHECK
from codemods.vllm_api import Api


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

    def asks_for(self, rule: Rule) -> bool:
        """Whether a rule is selected, or all are."""
        return not self.select or any(map(rule.code.startswith, self.select))


def active_rules(options: Options) -> tuple[Rule, ...]:
    """The rules a run uses: the selected ones and what they need, less the ignored ones, less those that need one of
    these."""

    nets = {SELF_CHECK.code, LEFTOVER.code}  # under whatever rules are selected
    chosen = {r.code for r in RULES if options.asks_for(r) or r.code in nets}
    while more := {need for r in RULES if r.code in chosen for need in r.requires} - chosen:
        chosen |= more
    chosen -= {r.code for r in RULES if any(map(r.code.startswith, options.ignore))}
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
    inputs = read_all(found.files, paths, {name for rule in rules for name in rule.names | rule.words})
    setting = Setting(neighbours_of(inputs), rules, elsewhere_of(inputs), found.roots, progress)
    frozen: dict[Path, Finding] = {}
    notes: dict[Path, list[Finding]] = {}
    if options.also:
        from codemods.several_targets import port_for_all

        plans, notes = port_for_all(inputs, setting, options, frozen)
    else:
        plans = {options.target: port(inputs, setting, options, frozen)}
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
        told = {r: report_of(entry, plan, by_path[r].get(entry.path), frozen) for r, plan in plans.items()}
        told = {
            r: report if r == options.target else in_arms(report, by_path[r].get(entry.path))
            for r, report in told.items()
        }
        report = written(entry, together(told, notes.get(entry.path, ())), options.write, found.roots)
        reports.append(marked(report, live.get(entry.path)))
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
    progress: Progress | None = None


def port(
    inputs: list[Input],
    setting: Setting,
    options: Options,
    frozen: dict[Path, Finding],
) -> Plan:
    """Plan and carry out until every change passes its check; `frozen` takes the files that do not, with the reason."""
    while True:
        plan = _plan([e.parsed for e in inputs if e.parsed is not None], setting, options, frozenset(frozen))
        if locked := unwritable(plan, inputs, setting.roots):
            frozen.update(locked)  # planned around from the start: no other file may count on a change in them
            continue
        if held := kept_guards_in_the_way(plan):
            frozen.update(held)
            continue
        failed = carry_out(plan, inputs, options.jobs, setting.progress) or _again(
            inputs, setting, options, frozenset(frozen)
        )
        if not failed:
            return plan
        frozen.update(failed)  # left exactly as they are; the others are planned anew without them


# -- planning --------------------------------------------------------------------------------------------------------


def _plan(files: Sequence[ParsedFile], setting: Setting, options: Options, frozen: frozenset[Path]) -> Plan:
    """Run every rule over the files. Rules only add to the plan, so their order is that of the list, not of the
    files."""
    rules, neighbours = setting.rules, setting.neighbours
    active = frozenset(rule.code for rule in rules)
    keep = options.keep_guards or VERSION_GUARDS.code not in active
    free = [file for file in files if file.path not in frozen]
    beside = [*(file for file in files if file.path in frozen), *neighbours]
    views = settled(free, beside, options.target, options.also, keep)
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
    plan = Plan(project, target(options.target), api, plans, options.keep_params, active, setting.elsewhere)
    index = 0
    while index < len(rules):
        sweeping = []
        while index < len(rules) and rules[index].sweeps:
            sweeping.append(rules[index])
            index += 1
        size = -1
        while sweeping and size != (size := sum(len(p.edits) for p in plans)):
            for rule in sweeping:
                _ask(rule, plan, setting.progress)
        if index < len(rules):
            _ask(rules[index], plan, setting.progress)
            index += 1
    return plan


def _ask(rule: Rule, plan: Plan, progress: Progress | None) -> None:
    """Have a rule plan, and keep which edits are its own."""
    if progress is not None:
        progress(0, len(plan.open_files))  # no file is done yet, but whoever watches may want to stop here
    known = [len(file.edits) for file in plan.files]
    rule.plan(plan)
    for file, count in zip(plan.files, known):
        file.by_rule += [(rule.code, edit) for edit in file.edits[count:]]


def _again(inputs: list[Input], setting: Setting, options: Options, frozen: frozenset[Path]) -> dict[Path, Finding]:
    """Plan once more over the new texts: a second run must have nothing to do."""
    if not any(e.after is not None for e in inputs):
        return {}
    new = [entry.after or entry.parsed for entry in inputs if entry.parsed is not None]
    second = _plan(new, setting, options, frozen)
    return {
        p.file.path: self_check(
            f"a second run would change {p.file.line(p.rewrites[0].line if p.rewrites else 1)} again"
        )
        for p in second.open_files
        if p.edits
    }

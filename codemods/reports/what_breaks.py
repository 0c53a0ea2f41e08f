"""What a vLLM release changes for a plugin, for the issue that tracks its upgrade."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from codemods.findings import Change, Report, Use
from codemods.reports.markdown import code, text

_TITLES = {
    Use.SUBCLASSES: "Classes of vLLM that are subclassed",
    Use.CONSTRUCTS: "Classes of vLLM that are constructed",
    Use.CALLS: "Functions of vLLM that are called",
    Use.IMPORTS: "Imports from vLLM",
    Use.PATCHES: "Patches of vLLM",
    Use.OTHER: "What else the port to this release changes, or leaves to a person",
}
_FOLDED = 12  # rows from which a table is folded away
_PLACES = 3  # places that are named of one change

_Row = tuple[Change, list[str]]


def render(report: Report, found: Mapping[str, Sequence[Change]]) -> str:
    """`found` has the changes of each file, by the file's path in the report."""
    changes = [change for group in found.values() for change in group]
    sections = [list(_head(report, changes, found))]
    for use, title in _TITLES.items():
        rows = _grouped(use, found)
        if rows:
            sections.append(list(_section(title, rows)))
    failed = [file for file in report.files if file.error is not None]
    if failed:
        sections.append(["## Not read", "", *(f"- {text(file.error or '')}" for file in failed)])
    return "\n\n".join("\n".join(lines) for lines in sections) + "\n"


def _head(report: Report, changes: Sequence[Change], found: Mapping[str, Sequence[Change]]) -> Iterator[str]:
    yield f"# What vLLM {report.target} breaks"
    yield ""
    concerned = sum(1 for group in found.values() if group)
    read = _count(sum(file.error is None for file in report.files), "file")
    written = sorted({file.source for file in report.files if file.source is not None and found.get(file.path)})
    since = f", written for vLLM {' or '.join(written)}" if written else ""
    if not changes:
        tidied = sum(file.changed for file in report.files)
        tidying = f" `vitport --target {report.target}` would only tidy up {_count(tidied, 'file')}." if tidied else ""
        yield f"Nothing, in {read}, as far as the text of the files tells.{tidying}"
    else:
        breaking = sum(change.breaking for change in changes)
        fixed = sum(change.fixed_by is not None for change in changes)
        yield (
            f"{_count(len(changes), 'change')} in {concerned} of {read}{since}: "
            f"**{breaking} breaking**, {len(changes) - breaking} only behavioural. "
            f"`vitport --target {report.target}` fixes {fixed}, {len(changes) - fixed} are left to a person."
        )
        yield ""
        yield "| | breaking | behavioural | fixed by `vitport` |"
        yield "|---|---|---|---|"
        for use, title in _TITLES.items():
            own = [change for change in changes if change.use is use]
            if own:
                broken, done = sum(c.breaking for c in own), sum(c.fixed_by is not None for c in own)
                yield f"| {title} | {broken} | {len(own) - broken} | {done} |"
    dead = [file.path for file in report.files if file.live is False and found.get(file.path)]
    if dead:
        yield ""
        yield f"No registry or entry point of the plugin reaches {', '.join(map(code, dead))}."
    yield ""
    yield f"Read from the files by vitport {report.version}; nothing was run. Lines are those of the files as they are."


def _grouped(use: Use, found: Mapping[str, Sequence[Change]]) -> list[_Row]:
    """The changes of one kind, each once with all its places; what is left to a person comes first."""
    groups: dict[tuple[str, str, bool, str | None, str], _Row] = {}
    for path, changes in found.items():
        for change in changes:
            if change.use is use:
                key = (change.name, change.what, change.breaking, change.fixed_by, change.remedy)
                groups.setdefault(key, (change, []))[1].append(_place(path, change))
    return sorted(
        groups.values(),
        key=lambda row: (row[0].fixed_by is not None, not row[0].breaking, row[0].name, row[0].what),
    )


def _place(path: str, change: Change) -> str:
    return f"{path}:{change.line}" if change.cell is None else f"{path}: cell {change.cell}, line {change.line}"


def _section(title: str, rows: Sequence[_Row]) -> Iterator[str]:
    yield f"## {title}"
    yield ""
    folded = len(rows) >= _FOLDED
    if folded:
        yield f"<details><summary>{len(rows)} changes</summary>"
        yield ""
    yield "| what | what changed | | to do | where |"
    yield "|---|---|---|---|---|"
    for change, places in rows:
        yield f"| {' | '.join(map(_cell, _cells(change, places)))} |"
    if folded:
        yield ""
        yield "</details>"


def _cells(change: Change, places: Sequence[str]) -> Iterator[str]:
    yield code(change.name)
    yield text(change.what)
    yield "**breaking**" if change.breaking else "behavioural"
    if change.fixed_by is None:
        yield text(change.remedy)
    else:
        yield "fixed by `vitport`" + (f" ({change.fixed_by})" if change.fixed_by else "")
    more = f" and {len(places) - _PLACES} more" if len(places) > _PLACES else ""
    yield ", ".join(map(code, places[:_PLACES])) + more


def _cell(content: str) -> str:
    return content.replace("|", "\\|")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"

"""The report as Markdown, for a file in a repository or a comment in a review."""

from __future__ import annotations

from collections.abc import Iterator

from porting.matrix import BAD
from porting.report import Report
from porting.reports.words import cell, flat, gathered, heading, number, place, problems_once, where
from porting.result import Result, Status


def render(report: Report) -> str:
    lines = [f"# {report.verdict()}", "", *matrix(report), "", *circumstances(report), ""]
    for title, section in (("Faults", faults(report)), ("Not run", not_run(report)), ("Notes", notes(report))):
        told = list(section)
        lines += [f"## {title}", "", *told, ""] if told else []
    lines += ["## Numbers", "", *numbers(report)]
    return "\n".join(lines).rstrip() + "\n"


def matrix(report: Report) -> Iterator[str]:
    """The matrix as a table. Bold is what is wrong; nothing is good that did not run."""
    columns = report.columns
    yield f"| {report.row} | " + " | ".join(" ".join(filter(None, heading(column))) for column in columns) + " |"
    yield "|---" * (len(columns) + 1) + "|"
    for model in report.models:
        cells = [cell(report.cell(model.name, column)) for column in columns]
        yield f"| {_text(model.name)} | " + " | ".join(f"**{c}**" if c[:1].isupper() else c for c in cells) + " |"


def circumstances(report: Report) -> Iterator[str]:
    """Where and how it was run, one fact an item."""
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    yield f"- command: `{report.command}`"
    yield f"- device: {report.device.type} ({report.device.platform}, {report.device.name})"
    yield f"- versions: {versions}"
    if report.counted:
        yield f"- {report.counted}"
    for model in report.models:
        yield f"- {_text(model.name)}: `{place(model.path)}`" + (
            f", ported from `{place(model.before)}`" if model.before else ""
        )


def faults(report: Report) -> Iterator[str]:
    bad = [result for result in report.results if result.status in BAD]
    for result, lines in zip(bad, problems_once(bad)):
        yield f"- **{_text(where(result))}** ({result.status.value}): {_text(result.summary)}"
        yield from (f"  - {_text(line)}" for line in lines if not result.summary.startswith(line))


def not_run(report: Report) -> Iterator[str]:
    """Each reason once, with all that it kept from running."""
    told = gathered((result.summary, result) for result in report.results if result.status is Status.NOT_RUN)
    yield from (f"- {_text(reason)}: {_text(places)}" for reason, places in told)


def notes(report: Report) -> Iterator[str]:
    """Each note once, with all that it is of."""
    told = gathered((note, result) for result in report.results for note in result.notes)
    yield from (f"- {_text(places)}: {_text(note)}" for note, places in told)


def numbers(report: Report) -> Iterator[str]:
    """A row for each result that has numbers, and for each that passed."""
    yield "| model | level | result | numbers | s |"
    yield "|---|---|---|---|---|"
    for result in report.results:
        if result.status is not Status.NOT_RUN:
            told = ", ".join(f"{name} {number(value)}" for name, value in flat(result.numbers))
            yield _row(result, told)


def _row(result: Result, told: str) -> str:
    level = " ".join(filter(None, (result.level, result.backend, result.dtype)))
    cells = (result.model, level, f"{result.status.value}: {result.summary}", told, f"{result.seconds:.1f}")
    return "| " + " | ".join(map(_text, cells)) + " |"


def _text(text: str) -> str:
    """What a cell or an item can hold: one line, its bars escaped."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")

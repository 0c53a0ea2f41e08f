"""The text of a pull request, under the headings of the template that vLLM 0.32 has for them."""

from __future__ import annotations

from collections.abc import Iterator

from porting.report import PASSED, Report
from porting.reports import markdown
from porting.reports.words import place


def render(report: Report) -> str:
    return "\n".join([*_purpose(report), "", *_plan(report), "", *_result(report)]) + "\n"


def _purpose(report: Report) -> Iterator[str]:
    yield "## Purpose"
    yield ""
    release = report.versions.get("vLLM", "this release")
    yield (
        f"Bring the vision attention of these models to `MMEncoderAttention`, as vLLM {release} has it, so that they "
        "take every attention backend, and the ops of out-of-tree devices, that the platform offers:"
    )
    yield ""
    for model in report.models:
        yield f"- `{place(model.path)}`"


def _plan(report: Report) -> Iterator[str]:
    yield "## Test Plan"
    yield ""
    yield f"`{report.command}`"
    yield ""
    for level in report.levels:
        yield f"- {level.name}: {level.question}"


def _result(report: Report) -> Iterator[str]:
    yield "## Test Result"
    yield ""
    yield f"{report.verdict()}." if report.exit_code == PASSED else f"**{report.verdict()}.**"
    yield ""
    yield from markdown.matrix(report)
    yield ""
    yield from list(markdown.circumstances(report))[1 : 4 if report.counted else 3]
    sections = {"Faults": markdown.faults, "Not run": markdown.not_run, "To be known": markdown.notes}
    for title, section in sections.items():
        told = list(section(report))
        if told:
            yield from ("", f"{title}:", "", *told)
    yield from ("", "<details><summary>Numbers</summary>", "", *markdown.numbers(report), "", "</details>")

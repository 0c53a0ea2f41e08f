"""The HTML that all panels share. Colours are JupyterLab's variables, so that both of its themes are met.

A saved notebook is shown without these styles on code hosts: what is said must also stand in words and signs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

STYLE = """<style>
.vp { color: var(--jp-ui-font-color1, inherit); font-size: var(--jp-ui-font-size1, 14px); line-height: 1.45; }
.vp table { border-collapse: collapse; margin: .3em 0; }
.vp caption { text-align: left; color: var(--jp-ui-font-color2, inherit); padding-bottom: .3em; }
.vp th, .vp td { border: 1px solid var(--jp-border-color2, #bbb); padding: .2em .5em; text-align: left;
  vertical-align: top; background: none; }
.vp thead th { background: var(--jp-layout-color2, #eee); }
.vp code, .vp .number { font-family: var(--jp-code-font-family, monospace); font-size: var(--jp-code-font-size, 13px);
  background: none; }
.vp code { white-space: pre-wrap; overflow-wrap: anywhere; }
.vp th[scope="row"] code { white-space: nowrap; }
.vp summary { cursor: pointer; }
.vp :focus-visible { outline: 2px solid var(--jp-brand-color1, #1976d2); outline-offset: 1px; }
.vp .scroll { overflow: auto; max-height: 34em; }
.vp .quiet { color: var(--jp-ui-font-color2, #666); }
.vp del, .vp ins { text-decoration: none; display: block; }
.vp .gone { background: color-mix(in srgb, var(--jp-error-color1, #d32f2f) 16%, transparent); }
.vp .new { background: color-mix(in srgb, var(--jp-success-color1, #388e3c) 18%, transparent); }
.vp .passed { background: color-mix(in srgb, var(--jp-success-color1, #388e3c) 28%, transparent); }
.vp .failed { background: color-mix(in srgb, var(--jp-error-color1, #d32f2f) 28%, transparent); font-weight: 700; }
.vp .error { background: color-mix(in srgb, #8e24aa 28%, transparent); font-weight: 700; }
.vp .not-run { font-style: italic; }
.vp .bar { color: var(--jp-brand-color1, #1976d2); letter-spacing: -1px; } .vp .number { white-space: nowrap; }
.vp .beside { display: flex; flex-wrap: wrap; gap: 0 2em; } .vp figure { margin: .4em 0; }
.vp .heat { display: block; max-width: 100%; fill: var(--jp-error-color1, #d32f2f);
  border: 1px solid var(--jp-border-color2, #bbb); }
.vp .heat .odd { fill: none; stroke: currentColor; stroke-dasharray: 2; }
.vp .memory { display: block; max-width: 100%; margin: .4em 0; }
.vp .memory .ours { fill: var(--jp-brand-color1, #1976d2); }
.vp .memory .theirs { fill: none; stroke: var(--jp-border-color1, #888); }
.vp img { image-rendering: pixelated; }
.vp-cell.passed { background: color-mix(in srgb, var(--jp-success-color1, #388e3c) 35%, var(--jp-layout-color1)); }
.vp-cell.failed { background: color-mix(in srgb, var(--jp-error-color1, #d32f2f) 40%, var(--jp-layout-color1)); }
.vp-cell.error { background: color-mix(in srgb, #8e24aa 40%, var(--jp-layout-color1)); }
.vp-cell.not-run { font-style: italic; }
.vp .diff { width: 100%; table-layout: fixed; } .vp .diff code { font-size: .86em; }
 .vp .diff .line { width: 3.2em; text-align: right; }
.vp .diff th.why { background: var(--jp-layout-color2, #eee); font-weight: 400; }
.vp .said { border-left: 4px solid var(--jp-brand-color1, #1976d2); padding: .2em .6em; margin: .3em 0; }
.vp .said.bad { border-color: var(--jp-error-color1, #d32f2f); }
</style>"""


def block(*parts: str) -> str:
    """Parts as one piece of output, with the styles."""
    return f'{STYLE}<div class="vp">{"".join(parts)}</div>'


def line(text: str, bad: bool = False) -> str:
    """One line for a person, which screen readers announce."""
    return f'<div class="said{" bad" if bad else ""}" role="status">{escape(text)}</div>'


def table(caption: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows of HTML under headings of text; the first cell of a row is its heading."""
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    body = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in rest)}</tr>' for first, *rest in rows
    )
    return f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def scrolling(label: str, inside: str) -> str:
    """What may be larger than its place: reached and moved by the keyboard too."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}">{inside}</div>'


def varies(text: str) -> str:
    """What is another on every machine and at every run: a committed notebook says so in its place."""
    return f"<!--varies-->{escape(text)}<!--/varies-->"


def rounding(html: str) -> str:
    """Figures that another machine may round otherwise: a committed notebook keeps them, uncompared."""
    return f"<!--rounding-->{html}<!--/rounding-->"


def folded(summary: str, inside: str) -> str:
    """HTML that a click, or Enter, opens; it works without a kernel."""
    return f"<details><summary>{summary}</summary>{inside}</details>"

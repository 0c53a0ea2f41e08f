"""A file before and after, side by side; above each change the rules that made it, explained at a click."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from html import escape
from typing import Any

import ipywidgets

from codemods.findings import FileReport
from codemods.hunks import Hunk, Row
from codemods.rule import Rule
from codemods.rules import RULES
from codemods.trial import Trial
from porting.widgets import markup
from porting.widgets.panel import Panel, html, show
from porting.widgets.session import Session


def side_by_side(trial: Trial, file: FileReport) -> str:
    """The changes of a file as an HTML table."""
    name = escape(trial.name(file))
    body = "".join(_hunk(hunk) for hunk in trial.hunks(file))
    head = "".join(
        f'<th scope="col"{" class=line" if text == "line" else ""}>{text}</th>'
        for text in ("line", "before", "line", f"after, for vLLM {trial.target}")
    )
    table = f'<table class="diff"><caption>{name}</caption><thead><tr>{head}</tr></thead>{body}</table>'
    return markup.scrolling(f"changes of {trial.name(file)}", table)


def _hunk(hunk: Hunk) -> str:
    why = "".join(explanation(_rules()[code], _messages(hunk, code)) for code in hunk.codes)
    rows = "".join(map(_row, hunk.rows))
    return f'<tbody><tr><th class="why" colspan="4" scope="rowgroup">{why}</th></tr>{rows}</tbody>'


def explanation(rule: Rule, messages: Iterable[str] = ()) -> str:
    """A rule's code and what it did, folded over what it is for."""
    said = "; ".join(messages)
    facts = (*([rule.summary] if said else []), rule.why, f"Follows {rule.follows}.", f"Safety: {rule.safety}.")
    text = "".join(f"<p>{escape(fact)}</p>" for fact in facts)
    return markup.folded(f"<strong>{rule.code}</strong> {escape(said or rule.summary)}", text)


def _messages(hunk: Hunk, code: str) -> list[str]:
    return list(dict.fromkeys(rewrite.message for rewrite in hunk.rewrites if rewrite.code == code))


def _row(row: Row) -> str:
    if row.same:
        return f"<tr>{_side(row.before)}{_side(row.after)}</tr>"
    return f"<tr>{_side(row.before, 'del', 'gone')}{_side(row.after, 'ins', 'new')}</tr>"


def _side(side: tuple[int, str] | None, tag: str = "span", kind: str = "") -> str:
    if side is None:
        return '<td class="line"></td><td></td>'
    number, text = side
    # Code hosts drop styles, and with them the indentation of ordinary blanks.
    indent = len(text) - len(text.lstrip(" "))
    code = "\u00a0" * indent + escape(text[indent:])
    return f'<td class="line">{number}</td><td class="{kind}"><{tag}><code>{code}</code></{tag}></td>'


@cache
def _rules() -> dict[str, Rule]:
    return {rule.code: rule for rule in RULES}


class SideBySide(Panel):
    """A list of the files that change, and the changes of the one that is chosen."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.files = ipywidgets.Select(description="File", rows=6, layout={"width": "min(100%, 40em)"})
        self.shown = html()
        super().__init__([self.files, self.shown])
        self.files.observe(self._choose, "value")
        session.listen(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """List the files anew; the chosen one stays chosen if it still changes."""
        trial, chosen = self.session.trial, self.files.label
        options = [(trial.name(file), index) for index, file in enumerate(trial.changed)]
        self.files.options = options
        if options:
            self.files.value = dict(options).get(chosen, 0)
        self._choose()

    def _choose(self, _: Any = None) -> None:
        show(self.shown, self.story())

    @property
    def chosen(self) -> FileReport | None:
        """The file whose changes are shown."""
        changed = self.session.trial.changed
        return changed[self.files.value or 0] if changed else None

    def story(self) -> str:
        if self.chosen is None:
            return markup.line("no file changes")
        return side_by_side(self.session.trial, self.chosen)

    def plain(self) -> str:
        trial = self.session.trial
        return f"files that change: {', '.join(map(trial.name, trial.changed)) or 'none'}"

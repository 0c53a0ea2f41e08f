"""The rules at work here, each to be accepted or left out."""

from __future__ import annotations

from html import escape
from typing import Any

import ipywidgets

from codemods.trial import Trial, TrialError
from porting.widgets import markup
from porting.widgets.panel import Panel, html
from porting.widgets.session import Session
from porting.widgets.side_by_side import explanation
from porting.widgets.work import Work


class Rules(Panel):
    """A box for each rule. To clear one is to look again without it, and without those that need it."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.boxes: dict[str, Any] = {}
        self._list = ipywidgets.VBox()
        self.work = Work("Looking", self.refresh)
        super().__init__([self._list, self.work.widget])
        session.listen(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        trial = self.session.trial
        self.boxes = {}
        rows = []
        for rule, times in trial.rules():
            box = ipywidgets.Checkbox(
                value=rule.code not in trial.left_out,
                description=f"{rule.code} ({times}x)",
                indent=False,
                layout={"width": "9em", "flex": "0 0 auto"},
            )
            box.observe(self._toggle, "value")
            self.boxes[rule.code] = box
            rows.append(ipywidgets.HBox([box, html(explanation(rule))]))
        self._list.children = rows
        if not self.work.running:
            self.work.say(self._sentence(trial))

    def _toggle(self, _: Any) -> None:
        left_out = [code for code, box in self.boxes.items() if not box.value]
        for box in self.boxes.values():
            box.disabled = True
        self.work.start(lambda progress: self._sentence(self.session.leave_out(left_out, progress)), (TrialError,))

    def _sentence(self, trial: Trial) -> str:
        if not trial.left_out:
            return "All rules are accepted."
        parts = []
        for code in sorted(trial.left_out):
            needing = trial.needing(code)
            parts.append(code + (f" (and {', '.join(needing)}, which need it)" if needing else ""))
        return f"Left out: {', '.join(parts)}. What they are about stays as it is."

    def story(self) -> str:
        trial = self.session.trial
        rows = [
            (
                f"<code>{rule.code}</code>",
                "left out" if rule.code in trial.left_out else "accepted",
                f"{times}x",
                escape(rule.summary),
            )
            for rule, times in trial.rules()
        ]
        headings = ("rule", "is", "times", "what it does")
        table = markup.table("Rules at work here", headings, rows)
        return markup.scrolling("rules", table) + markup.line(self._sentence(trial))

    def plain(self) -> str:
        return self._sentence(self.session.trial)

"""Write the port, as a copy or in place, and take it back."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import ipywidgets

from codemods.trial import Trial, TrialError
from porting.widgets import markup
from porting.widgets.panel import Panel, html, show
from porting.widgets.session import Session

COPY, IN_PLACE = "as a copy", "in place"


class Write(Panel):
    """Two buttons and where to write to. `now` writes the copy at once."""

    def __init__(self, session: Session, folder: Path, now: bool = False) -> None:
        self.session = session
        self.folder = folder
        self.where = ipywidgets.RadioButtons(options=[COPY, IN_PLACE], value=COPY, description="Write")
        self.write = ipywidgets.Button(description="Write", icon="save", tooltip="Write the ported files")
        self.undo = ipywidgets.Button(description="Undo", icon="undo", tooltip="Take the last write back")
        self._trial: Trial | None = None
        self.said, self._bad = "", False
        self._said = html()
        super().__init__([self.where, ipywidgets.HBox([self.write, self.undo]), self._said])
        self.write.on_click(self._write)
        self.undo.on_click(self._undo)
        session.listen(self.refresh)
        self.refresh()
        if now:
            self._write()

    def refresh(self) -> None:
        trial = self.session.trial
        self.undo.disabled = trial.written is None
        if trial is not self._trial:
            self._trial = trial
            self._say(f"Nothing is written yet. A copy goes to {self.folder / trial.path.resolve().name}.")

    def _write(self, _: Any = None) -> None:
        trial = self.session.trial
        try:
            written = trial.write(self.folder if self.where.value == COPY else None)
            kept = f"; the copy that was there, edited since, is now {written.kept}" if written.kept else ""
            self._say(f"{_files(len(written.files))} ported in {written.place}{_left(trial)}", more=kept)
        except TrialError as problem:
            self._say(str(problem), bad=True)
        self.undo.disabled = trial.written is None

    def _undo(self, _: Any = None) -> None:
        try:
            self._say(self.session.trial.undo())
        except TrialError as problem:
            self._say(str(problem), bad=True)
        self.undo.disabled = self.session.trial.written is None

    def _say(self, text: str, bad: bool = False, more: str = "") -> None:
        """`more` hangs on what was there before, and is not kept in a saved notebook."""
        self.said, self._bad = text, bad
        show(self._said, markup.line(text + more, bad))

    def story(self) -> str:
        written = self.session.trial.written
        files = "".join(f"<li><code>{escape(str(path))}</code></li>" for path in written.files) if written else ""
        return markup.line(self.said, self._bad) + (f"<ul>{files}</ul>" if files else "")

    def plain(self) -> str:
        return self.said


def _files(count: int) -> str:
    return f"{count} file{'' if count == 1 else 's'}"


def _left(trial: Trial) -> str:
    left = len([file for file in trial.seen.files if file.findings])
    failed = len([file for file in trial.seen.files if file.error])
    told = [f"{_files(left)} with findings for a person"] if left else []
    told += [f"{_files(failed)} that could not be read"] if failed else []
    return "; " + (", ".join(told) or "nothing is left for a person")

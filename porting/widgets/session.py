"""What the panels of a notebook share: one trial, and who wants to know when it was looked at anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from codemods.carry_out import Progress
from codemods.trial import Trial


class NotYet(Exception):
    """A step that needs an earlier one; the text names it."""


class Session:
    """The trial that is looked at, which may be exchanged for another."""

    def __init__(self) -> None:
        self._trial: Trial | None = None
        self._told: list[Callable[[], None]] = []

    @property
    def trial(self) -> Trial:
        """Raises NotYet where nothing is chosen."""
        if self._trial is None:
            raise NotYet("nothing is chosen yet: run the cell that picks a model, above")
        return self._trial

    def choose(self, path: Path, target: str, left_out: Iterable[str] = (), progress: Progress | None = None) -> Trial:
        """Look at something else, and tell everybody. Raises TrialError; what was there before then stays."""
        trial = Trial(path, target, left_out)
        trial.look(progress)
        self._trial = trial
        self._tell()
        return trial

    def leave_out(self, codes: Iterable[str], progress: Progress | None = None) -> Trial:
        """Look again at the same without these rules, and tell everybody. What was written can still be undone."""
        before = self.trial
        after = Trial(before.path, before.target, codes)
        after.look(progress)
        after.written = before.written
        self._trial = after
        self._tell()
        return after

    def listen(self, told: Callable[[], None]) -> None:
        """Call this after every look from now on."""
        self._told.append(told)

    def _tell(self) -> None:
        for told in self._told:
            told()

"""What to port, and to which vLLM: the example plugin, a path of one's own, or the files of a release."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import ipywidgets

from codemods import vllm_api
from codemods.reports import counts
from codemods.target import OLDEST, release_key
from codemods.target import target as shape_of
from codemods.trial import TrialError
from porting import releases
from porting.widgets.panel import Panel
from porting.widgets.session import Session
from porting.widgets.work import Progress, Work

EXAMPLE = "examples/orchard_vl_plugin"
_EXAMPLE, _PATH, _RELEASE = "the example plugin", "a file or folder of mine", "files of a vLLM release"
_NAMES_A_RELEASE = re.compile(r"vllm[ =]+(\d[\w.]*)")
_OLD = "0.12.0"  # the last release before MMEncoderAttention
_WIDE = {"width": "min(100%, 40em)"}
_PROBLEMS = (TrialError, releases.Unavailable)


class Pick(Panel):
    """Choose, and look. `models` is a path, or "vllm 0.12.0" for the vision files of that release."""

    def __init__(self, session: Session, models: str, target: str, left_out: Iterable[str] = ()) -> None:
        self.session = session
        self._left_out = tuple(left_out)
        of_release = _NAMES_A_RELEASE.fullmatch(models)
        what = _RELEASE if of_release else _EXAMPLE if Path(models) == Path(EXAMPLE) else _PATH
        known = [*reversed(vllm_api.releases())]
        targets = [release for release in known if release_key(release) >= release_key(OLDEST)]

        def menu(name: str, options: list[str]) -> Any:
            return ipywidgets.Dropdown(description=name, options=options, layout=_WIDE)

        self.what = menu("Port", [_EXAMPLE, _PATH, _RELEASE])
        self.path = ipywidgets.Text(value="" if of_release else models, description="Path", layout=_WIDE)
        self.release = menu("Release", known)
        self.target = menu("To vLLM", targets)
        self.look = ipywidgets.Button(description="Look", icon="search", tooltip="Look what a port would change")
        self.work = Work("Looking")
        super().__init__([self.what, self.path, self.release, self.target, self.look, self.work.widget])
        self.what.value = what
        self._fit()
        session.listen(self._tell)
        self.what.observe(self._fit, "value")
        self.look.on_click(lambda _: self.start())
        try:
            self.release.value = vllm_api.resolve(of_release[1]) if of_release else _OLD
            resolved = vllm_api.resolve(target)
            shape_of(resolved)
            self.target.value = resolved
        except ValueError as problem:
            self.work.say(str(problem), bad=True)
        else:
            self.start()

    def _fit(self, _: Any = None) -> None:
        """Only what belongs to the choice can be filled in."""
        self.path.layout.display = "" if self.what.value == _PATH else "none"
        self.release.layout.display = "" if self.what.value == _RELEASE else "none"

    def start(self) -> None:
        """Look, in a thread."""
        self.look.disabled = True
        self.work.start(self._look, _PROBLEMS)

    def _look(self, progress: Progress) -> str:
        try:
            path = self._chosen()
            left_out, self._left_out = self._left_out, ()
            self.session.choose(path, self.target.value, left_out, progress)
            return self._found()
        finally:
            self.look.disabled = False

    def _found(self) -> str:
        trial = self.session.trial
        return f"{trial.path} for vLLM {trial.target}: files: {counts.files(trial.seen)}"

    def _tell(self) -> None:
        """Rules may have been left out since."""
        if not self.work.running:
            self.work.say(self._found())

    def _chosen(self) -> Path:
        if self.what.value == _EXAMPLE:
            return Path(EXAMPLE)
        if self.what.value == _RELEASE:
            return releases.vision_files(self.release.value, Path("build/releases"))
        return Path(self.path.value).expanduser()

    def story(self) -> str:
        return self.work.story()

    def plain(self) -> str:
        return self.work.said

"""What is taken away from a check: the report as a page, and the text of a pull request."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import ipywidgets

from porting.reports import pull_request, write_report
from porting.widgets import markup
from porting.widgets.bench import Bench
from porting.widgets.panel import Panel, html, show


class Results(Panel):
    """The page is written at once, below `folder`; the text is shown to be copied."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self.bench = bench
        self.path = folder / f"{bench.port.after.name}.check.html"
        self.text = pull_request.render(bench.report)
        self.save = ipywidgets.Button(description="Save report", icon="save", tooltip=f"Write {self.path}")
        self.area = ipywidgets.Textarea(
            value=self.text, description="Text", disabled=False, layout={"width": "100%", "height": "22em"}
        )
        self.said, self._bad = "", False
        self._said = html()
        super().__init__([ipywidgets.HBox([self.save]), self._said, self.area])
        self.save.on_click(self._save)
        self._save()

    def _save(self, _: Any = None) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_report(self.bench.report, self.path)
            self.said, self._bad = f"The report is in {self.path}, a page that needs nothing else.", False
        except OSError as problem:
            self.said, self._bad = f"{self.path} cannot be written: {problem.strerror or problem}", True
        show(self._said, markup.line(self.said, self._bad))

    def story(self) -> str:
        text, _, _ = self.text.partition("\n- device")  # what follows is another on every machine
        told = f"<pre>{escape(text)}\n...</pre><p>Then: the device, what did not run and why, and the numbers.</p>"
        return markup.line(self.said, self._bad) + markup.folded("The text of a pull request", told)

    def plain(self) -> str:
        return self.said

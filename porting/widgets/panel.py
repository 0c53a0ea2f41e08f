"""What every panel is: widgets while a kernel runs, and the same as plain HTML and text in the saved notebook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ipywidgets

from porting.widgets import markup


class Panel(ipywidgets.VBox):
    """Children above each other. Subclasses say what of them can be read without a kernel."""

    def __init__(self, children: Sequence[Any]) -> None:
        super().__init__(children=[ipywidgets.HTML(markup.STYLE), *children])

    def story(self) -> str:
        """The panel as HTML that needs no kernel."""
        raise NotImplementedError

    def plain(self) -> str:
        """The panel as a line or a few of text."""
        raise NotImplementedError

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        shown: dict[str, Any] = super()._repr_mimebundle_(**kwargs)
        return {**shown, "text/html": markup.block(self.story()), "text/plain": self.plain()}


class Line:
    """One line in place of a panel: why there is none, and what to do; or, where it is not `bad`, what was done."""

    def __init__(self, text: str, bad: bool = True) -> None:
        self.text, self.bad = text, bad

    def _repr_html_(self) -> str:
        return markup.block(markup.line(self.text, self.bad))

    def __repr__(self) -> str:
        return self.text


def html(text: str = "") -> Any:
    """A widget that shows HTML in the styles of the panels."""
    return ipywidgets.HTML(f'<div class="vp">{text}</div>')


def show(widget: Any, text: str) -> None:
    """Put other HTML into such a widget."""
    widget.value = f'<div class="vp">{text}</div>'

"""What cells have in common: where they run, and a line instead of a traceback where one is out of order.

Where nobody looks on, a line would be overlooked: with `VITPORT_UNATTENDED=1` in the environment it is an error, which
ends a run of papermill or `jupyter execute`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, ParamSpec, Protocol

from IPython import get_ipython
from IPython.display import display

from codemods.trial import TrialError
from porting.widgets.panel import Line, Panel
from porting.widgets.session import NotYet
from porting.widgets.work import Work
from porting.wrong_environment import WrongEnvironment

_FIRST = Path("notebooks", "00_start_here.ipynb")
_SAID = (NotYet, TrialError, WrongEnvironment)

Given = ParamSpec("Given")
Shown = Panel | Line


class Working(Protocol):
    """A panel that works from the moment it is made."""

    work: Work


def step(make: Callable[Given, Shown]) -> Callable[Given, Shown]:
    """A function that a cell calls, which gives a panel: run at the top of the checkout, its known problems said."""

    @functools.wraps(make)
    def called(*args: Given.args, **kwargs: Given.kwargs) -> Shown:
        go_to_the_top()
        try:
            return make(*args, **kwargs)
        except _SAID as problem:
            return _said(problem)

    return called


def long_step(make: Callable[Given, Working]) -> Callable[Given, Coroutine[Any, Any, Line | None]]:
    """The same for a panel that works, which a cell awaits: only then does the kernel hear of a click on Stop.

    It is shown at once, and once more when it is done, for what is saved; the cell itself then has no output.
    """

    @functools.wraps(make)
    async def called(*args: Given.args, **kwargs: Given.kwargs) -> Line | None:
        go_to_the_top()
        try:
            panel = make(*args, **kwargs)
        except _SAID as problem:
            return _said(problem)
        handle = display(panel, display_id=True)
        await panel.work.done()
        if handle is not None:  # in a kernel
            handle.update(panel)
        if panel.work.bad and _unattended():
            raise NotYet(panel.work.said)
        return None

    return called


def _said(problem: Exception) -> Line:
    if _unattended():
        raise problem
    return Line(str(problem))


def _unattended() -> bool:
    return os.environ.get("VITPORT_UNATTENDED", "") not in ("", "0")


def go_to_the_top() -> None:
    """Paths in notebooks are as seen from the checkout, wherever in it the kernel was started."""
    here = Path.cwd()
    top = next((folder for folder in (here, *here.parents) if (folder / _FIRST).exists()), here)
    os.chdir(top)


def say_what_to_run() -> None:
    """Have a parameter that is not set yet answered by a line. Parameters are in capitals."""
    shell: Any = get_ipython()
    if shell is not None:
        shell.set_custom_exc((NameError,), _no_such_name)


def _no_such_name(
    shell: Any, kind: type[NameError], error: NameError, trace: Any, tb_offset: int | None = None
) -> None:
    if (error.name or "").isupper():
        display(Line(f"{error.name} is not set: run the first cell, which sets the parameters of this notebook"))
    else:
        shell.showtraceback((kind, error, trace), tb_offset=tb_offset)

"""The steps of porting a model, for cells:

    from porting.widgets import migrating

    await migrating.pick("models", "0.32")  # look what a port would change
    migrating.findings()                    # what was found
    migrating.side_by_side()                # each change, and the rules that made it
    migrating.rules()                       # accept them, or leave some out
    migrating.write()                       # write, undo

They share one session, so that what is chosen in one is shown in all.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from porting.widgets.findings import Findings
from porting.widgets.kernel import Shown, long_step, say_what_to_run, step
from porting.widgets.pick import Pick
from porting.widgets.rules import Rules
from porting.widgets.session import NotYet, Session
from porting.widgets.side_by_side import SideBySide
from porting.widgets.write import Write

PORTED = "build/ported"

session = Session()


@long_step
def pick(models: str, target: str, left_out: Iterable[str] = ()) -> Pick:
    """Choose what to port: a path, or "vllm 0.12.0" for the vision files of a release. Looks at once."""
    if not isinstance(target, str):
        raise NotYet(f"the target is the number {target}, which may have lost a zero: give a text, with papermill's -r")
    return Pick(session, models, target, left_out)


@step
def findings() -> Shown:
    """What the last look found."""
    return Findings(session)


@step
def side_by_side() -> Shown:
    """The changes of each file, before and after."""
    return SideBySide(session)


@step
def rules() -> Shown:
    """The rules at work, each to be accepted or left out."""
    return Rules(session)


@step
def write(folder: str = PORTED, now: bool = False) -> Shown:
    """Write the port, or with `now` have its copy below `folder` written at once."""
    return Write(session, Path(folder), now)


say_what_to_run()

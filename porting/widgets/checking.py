"""The steps of proving a port on the attached device, for cells:

    from porting.widgets import checking

    checking.take("models")                           # its port for the installed vLLM
    checking.matrix(["static", "load", "build"])      # asked live
    checking.errors()                                 # of layers and tokens, before and after
    checking.cost()                                   # latency and memory, before and after
    checking.results()                                # the report, the text of a pull request

They share one bench, so that torch and vLLM are imported once.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from porting.widgets import close_look
from porting.widgets.bench import Bench
from porting.widgets.kernel import Shown, say_what_to_run, shown_while, step
from porting.widgets.matrix import Matrix
from porting.widgets.panel import Line
from porting.widgets.results import Results

PORTED = "build/ported"

bench = Bench()


@step
def take(models: str, folder: str = PORTED) -> Shown:
    """The port of models to the installed vLLM: the copy that was written below `folder`, made now if there is none."""
    return Line(str(bench.take(Path(models), Path(folder))), bad=False)


@step
def matrix(levels: Collection[str], dtypes: Collection[str] = (), device: str = "auto") -> Shown:
    """Ask levels of each model; without `dtypes` those of each level."""
    bench.port  # noqa: B018  a line ahead of any panel, where there is none
    panel = Matrix(bench, levels, dtypes, device)
    shown_while(panel, panel.work.wait)
    return None


@step
def errors(model: str = "", dtype: str = "") -> Shown:
    """Errors against fp64, before and after: of the output, of each layer, of each patch."""
    panel = close_look.errors(bench, model, dtype)
    shown_while(panel, panel.work.wait)
    return None


@step
def cost(model: str = "", dtype: str = "") -> Shown:
    """Latency and peak memory of the vision tower on the device, before and after."""
    panel = close_look.cost(bench, model, dtype)
    shown_while(panel, panel.work.wait)
    return None


@step
def results(folder: str = PORTED) -> Shown:
    """Save the report as a page; the text of a pull request."""
    return Results(bench, Path(folder))


say_what_to_run()

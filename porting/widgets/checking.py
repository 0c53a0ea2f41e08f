"""The steps of proving a port on the attached device, for cells:

    from porting.widgets import checking

    checking.take("models")                             # its port for the installed vLLM
    await checking.matrix(["static", "load", "build"])  # asked live
    await checking.errors()                             # of layers and tokens, before and after
    await checking.cost()                               # latency and memory, before and after
    checking.results()                                  # the report, the text of a pull request

They share one bench, so that torch and vLLM are imported once.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from porting.widgets import close_look
from porting.widgets.bench import Bench
from porting.widgets.kernel import Shown, long_step, say_what_to_run, step
from porting.widgets.matrix import Matrix
from porting.widgets.panel import Line
from porting.widgets.results import Results

PORTED = "build/ported"

bench = Bench()


@step
def take(models: str, folder: str = PORTED) -> Shown:
    """The port of models to the installed vLLM: the copy that was written below `folder`, made now if there is none."""
    return Line(str(bench.take(Path(models), Path(folder))), bad=False)


@long_step
def matrix(levels: Collection[str], dtypes: Collection[str] = (), device: str = "auto") -> Matrix:
    """Ask levels of each model; without `dtypes` those of each level."""
    bench.port  # noqa: B018  a line ahead of any panel, where there is none
    return Matrix(bench, levels, dtypes, device)


@long_step
def errors(model: str = "", dtype: str = "") -> close_look.CloseLook:
    """Errors against fp64, before and after: of the output, of each layer, of each patch."""
    return close_look.errors(bench, model, dtype)


@long_step
def cost(model: str = "", dtype: str = "") -> close_look.CloseLook:
    """Latency and peak memory of the vision tower on the device, before and after."""
    return close_look.cost(bench, model, dtype)


@step
def results(folder: str = PORTED) -> Shown:
    """Save the report as a page; the text of a pull request."""
    return Results(bench, Path(folder))


say_what_to_run()

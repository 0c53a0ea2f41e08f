"""The steps of finding, on any machine, what only an NPU shows of a shared attention, for cells:

from porting.widgets import across_devices

across_devices.memory()                      # of a strided tensor, drawn
await across_devices.trials("attention.py")  # before and after its port
"""

from __future__ import annotations

from pathlib import Path

from porting.widgets.bench import Bench
from porting.widgets.kernel import Shown, long_step, say_what_to_run, step
from porting.widgets.memory import Memory
from porting.widgets.session import NotYet
from porting.widgets.trials import Trials

PORTED = "build/ported"

bench = Bench()


@step
def memory() -> Shown:
    """What a rank sends of a tensor that is cut in two."""
    return Memory()


@long_step
def trials(models: str, pipeline: str = "", folder: str = PORTED) -> Trials:
    """A shared attention on two ranks, before and after its port; with a pipeline of diffusers, what they draw."""
    port = bench.take(Path(models), Path(folder))
    if pipeline and not Path(pipeline, "model_index.json").is_file():
        raise NotYet(f"{pipeline} has no model_index.json: give the folder of a pipeline of diffusers, or none")
    return Trials(bench, port, Path(pipeline) if pipeline else None)


say_what_to_run()

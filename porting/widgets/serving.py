"""The steps of serving a port, for cells:

    from porting.widgets import serving

    serving.take("my_plugin")  # its port for the installed vLLM
    await serving.serve("checkpoint", "MyModelForConditionalGeneration")
    await serving.chat("What is in the picture?")
    await serving.demo()       # the demo app beside it
    serving.end()

Everything listens on loopback, and ends with the kernel.
"""

from __future__ import annotations

from pathlib import Path

from porting.widgets.bench import Bench
from porting.widgets.chat import Chat, Demo, Serve
from porting.widgets.kernel import Shown, long_step, say_what_to_run, step
from porting.widgets.panel import Line
from porting.widgets.served import Served
from porting.widgets.session import NotYet

PORTED = "build/ported"

bench = Bench()
served = Served()


@step
def take(models: str, folder: str = PORTED) -> Shown:
    """The port of a plugin to the installed vLLM: the copy that was written below `folder`, or a new one."""
    return Line(str(bench.take(Path(models), Path(folder))), bad=False)


@long_step
def serve(checkpoint: str, architecture: str, dtype: str = "float32") -> Serve:
    """Serve a checkpoint under an architecture that the plugin registers."""
    return Serve(served, bench.port, Path(checkpoint), architecture, dtype)


@long_step
def chat(question: str, picture: str = "") -> Chat:
    """Ask about a picture, a file; without one, about a red circle."""
    _ = served.server
    if picture and not Path(picture).is_file():
        raise NotYet(f"{picture}: no such file; give the path of a picture, or none")
    return Chat(served, picture, question)


@long_step
def demo() -> Demo:
    """The demo app over the same server."""
    _ = served.server
    return Demo(served)


@step
def end() -> Shown:
    """End the server and the demo app."""
    served.end()
    return Line("Nothing is served any more.", bad=False)


say_what_to_run()

"""The steps of the first notebook: what is attached, and which of the other notebooks can run here."""

from __future__ import annotations

from html import escape

from porting import surroundings
from porting.device import attached as find_device
from porting.widgets import markup
from porting.widgets.bench import vllm_to_run_models
from porting.widgets.kernel import Shown, say_what_to_run, step
from porting.widgets.panel import Panel, html, show
from porting.wrong_environment import WrongEnvironment


class Attached(Panel):
    """A row for each thing that the notebooks need: whether it is here, and the remedy where it is not."""

    def __init__(self) -> None:
        self._shown = html()
        super().__init__([self._shown])
        self.ready = self._vllm()
        show(self._shown, self.story())

    def _vllm(self) -> str:
        """Why notebooks that run models cannot; empty where they can."""
        try:
            vllm_to_run_models()
        except WrongEnvironment as problem:
            return str(problem)
        return ""

    def story(self) -> str:
        versions = ", ".join(f"{name} {version}" for name, version in surroundings.versions().items())
        rows = [
            ("device", markup.varies(self._device())),
            ("versions", markup.varies(versions)),
            ("01_migrate_a_model", "can run: it reads files, and runs none of them"),
            ("what runs models", escape(f"cannot run: {self.ready}") if self.ready else "can run"),
        ]
        return markup.table("What there is", ("what", "here"), rows)

    def _device(self) -> str:
        try:
            device = find_device(surroundings.device_of_vllm("auto"))
        except WrongEnvironment as problem:
            return str(problem)
        return f"{device.type}: {device.platform}, {device.name}" + (f"; {device.note}" if device.note else "")

    def plain(self) -> str:
        return f"what runs models cannot run: {self.ready}" if self.ready else "all notebooks can run here"


@step
def attached() -> Shown:
    """What is attached to this machine and installed in this environment."""
    return Attached()


say_what_to_run()

"""A port behind vLLM's own server, as its plugin registers it, and the demo app beside it."""

from __future__ import annotations

import atexit
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from porting.environment import ENVIRONMENT, python_path
from porting.models.server import NoServer, Server, renamed
from porting.plugin import plugin_of
from porting.widgets.bench import Port
from porting.widgets.session import NotYet
from porting.widgets.work import Progress, Stopped

SECONDS = 900.0  # for vLLM's start on a slow machine
_OPEN = re.compile(r"Open (\S+)")


class Served:
    """One server and one demo app at a time; both end with the kernel."""

    def __init__(self) -> None:
        self._server: Server | None = None
        self._demo: subprocess.Popen[str] | None = None
        self._folder: TemporaryDirectory[str] | None = None
        self.demo_url = ""
        atexit.register(self.end)

    @property
    def server(self) -> Server:
        """Raises NotYet where none is up."""
        if self._server is None or not self._server.alive:
            raise NotYet("nothing is served: run the cell that starts the server, above")
        return self._server

    def start(self, port: Port, checkpoint: Path, architecture: str, dtype: str, progress: Progress) -> None:
        """Serve a checkpoint under an architecture that the port's plugin registers.

        Raises NotYet, NoServer, Stopped.
        """
        self.end()
        plugin = plugin_of(port.after / "any.py", port.after.resolve())
        if plugin is None:
            raise NotYet(
                f"{port.after} has no pyproject.toml with an entry point for vLLM: give the folder of a plugin"
            )
        if not (checkpoint / "config.json").is_file():
            raise NotYet(f"{checkpoint} has no config.json: give the folder of a checkpoint")
        self._folder = TemporaryDirectory(prefix="vitport-")
        folder = Path(self._folder.name)
        renamed(checkpoint, folder / "model", architecture)
        path = plugin.announce(folder / "plugin")
        environment = {**ENVIRONMENT, "PYTHONDONTWRITEBYTECODE": "1"}
        self._server = Server(folder / "model", dtype, path, environment)
        self._server.wait(time.monotonic() + SECONDS, lambda: progress(0, 1))

    def say(self, question: str, picture: str, tokens: int) -> str:
        """What the model answers to a question about a picture, a `data:` address. Raises NotYet, NoServer."""
        shown: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": picture}}] if picture else []
        content = [*shown, {"type": "text", "text": question}]
        choice = self.server.ask([{"role": "user", "content": content}], SECONDS, max_tokens=tokens)
        return str(choice["message"]["content"])

    def open_demo(self, progress: Progress) -> str:
        """The address of the demo app, which talks to this server. Raises NotYet, NoServer, Stopped."""
        url = self.server.url
        self.end_demo()
        self._demo = subprocess.Popen(
            [sys.executable, "-m", "demo_app", "--vl-url", url, "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": python_path()},
            start_new_session=True,
        )
        progress(0, 1)
        assert self._demo.stdout is not None
        for line in self._demo.stdout:
            if found := _OPEN.search(line):
                self.demo_url = found[1]
                return self.demo_url
        if self._demo is None:
            raise Stopped
        raise NoServer("the demo app does not start: run `python -m demo_app` to see why", "")

    def end(self) -> None:
        """End both."""
        demo = self._signal_demo()  # both are told before either is waited for: a kernel has little time to end
        server, self._server = self._server, None
        if server is not None:
            server.end()
        if demo is not None:
            demo.wait()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def end_demo(self) -> None:
        """End the demo app."""
        demo = self._signal_demo()
        if demo is not None:
            demo.wait()

    def _signal_demo(self) -> subprocess.Popen[str] | None:
        demo, self._demo, self.demo_url = self._demo, None, ""
        if demo is not None:
            with suppress(ProcessLookupError):
                os.killpg(demo.pid, signal.SIGKILL)  # it holds nothing that has to be put away
        return demo

"""vLLM's OpenAI-compatible server on loopback, in processes of its own, with a plugin that nobody has installed."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

NAME = "port"  # of what is served

# No second process for an engine that can do with one: each imports vLLM anew.
ENVIRONMENT = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
OPTIONS: dict[str, Any] = {
    "enforce_eager": True,
    "max_model_len": 256,
    "max_num_seqs": 2,
    "limit_mm_per_prompt": {"image": 2, "video": 0},
}


class NoServer(Exception):
    """The server ended, or did not come up or answer; the text is one line, `log` the end of what it printed."""

    def __init__(self, text: str, log: str) -> None:
        super().__init__(text)
        self.log = log


class Server:
    """Started at once, with `path` ahead on its import path. What it prints goes into a file beside the model."""

    def __init__(self, model: Path, dtype: str, path: Sequence[Path], environment: Mapping[str, str]) -> None:
        self.url = f"http://127.0.0.1:{_free_port()}"
        self._log = model.parent / "server.log"
        ahead = os.pathsep.join([*map(str, path), *filter(None, [os.environ.get("PYTHONPATH")])])
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                _command(model, dtype, self.url.rpartition(":")[2]),
                stdout=log,
                stderr=log,
                env={**os.environ, **ENVIRONMENT, **environment, "PYTHONPATH": ahead},
                cwd=model.parent,
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def wait(self, deadline: float, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Until the server says that it is well, or `time.monotonic()` is the deadline. Raises NoServer.

        `meanwhile` is called again and again; what it raises is passed on.
        """
        while True:
            meanwhile()
            if not self.alive:
                why = _last_error(self._log.read_text(errors="replace"))
                raise self._gone(f"the server ended with code {self._process.returncode} before it answered{why}")
            with suppress(OSError):
                urllib.request.urlopen(f"{self.url}/health", timeout=5).close()
                return
            if time.monotonic() > deadline:
                raise self._gone("the server did not come up in time")
            time.sleep(0.5)

    def ask(self, conversation: Sequence[Mapping[str, Any]], seconds: float, **options: Any) -> dict[str, Any]:
        """The choice of an answer, as the server gives it. Raises NoServer."""
        question = {"model": NAME, "messages": conversation, "temperature": 0, **options}
        address = f"{self.url}/v1/chat/completions"
        request = urllib.request.Request(address, json.dumps(question).encode(), {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=max(1.0, seconds)) as response:
                choice: dict[str, Any] = json.load(response)["choices"][0]
        except (OSError, TimeoutError) as error:
            raise self._gone(_why(error)) from None
        return choice

    def end(self) -> None:
        """End the server and all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _gone(self, text: str) -> NoServer:
        return NoServer(text, self._log.read_text(errors="replace")[-4000:])


def renamed(model: Path, copy: Path, architecture: str) -> None:
    """The same checkpoint under another architecture, by links."""
    copy.mkdir()
    for file in model.resolve().iterdir():
        (copy / file.name).symlink_to(file)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").unlink()
    (copy / "config.json").write_text(json.dumps({**config, "architectures": [architecture]}))


def _command(model: Path, dtype: str, port: str) -> list[str]:
    options = [word for name, value in OPTIONS.items() for word in _flag(name, value)]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--dtype", dtype]
    return [*command, "--host", "127.0.0.1", "--port", port, "--served-model-name", NAME, *options]


def _flag(name: str, value: Any) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    return [flag] if value is True else [flag, json.dumps(value)]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _last_error(log: str) -> str:
    """The last line of a log that names an error, as the end of a sentence; vLLM's may be thousands of letters long."""
    told = [line.strip() for line in log.splitlines() if re.search(r"\b\w*[Ee]rror\b[:,]", line)]
    return f": {told[-1][:200]}" if told else ""


def _why(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answered {error.code}: {error.read().decode(errors='replace')[:300]}"
    return str(error)

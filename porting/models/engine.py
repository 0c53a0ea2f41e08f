"""A real vLLM engine that answers conversations, in this process or behind an OpenAI-compatible server on loopback."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

Conversation = list[dict[str, Any]]  # messages as an OpenAI client sends them

TOKENS = 16
# No second process for an engine that can do with one: each imports vLLM anew.
ENVIRONMENT = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
OPTIONS: dict[str, Any] = {
    "enforce_eager": True,
    "max_model_len": 256,
    "max_num_seqs": 2,
    "limit_mm_per_prompt": {"image": 2, "video": 0},
}


@dataclass(frozen=True)
class Answer:
    """The greedy tokens and the logarithm of each one's probability."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]


class NoServer(Exception):
    """The server ended, or did not come up or answer; the text is one line, `log` the end of what it printed."""

    def __init__(self, text: str, log: str) -> None:
        super().__init__(text)
        self.log = log


def in_process(
    model: Path, dtype: str, conversations: Sequence[Conversation], architecture: str, cls: type[nn.Module]
) -> list[Answer]:
    """Answers of an engine in this process, which is spent by it. ENVIRONMENT has to be set before vLLM is imported.

    The class is registered as such: what vLLM only knows the name of it looks into in one more process, for half a
    minute.
    """
    from vllm import LLM, ModelRegistry, SamplingParams

    ModelRegistry.register_model(architecture, cls)
    engine = LLM(str(model), dtype=dtype, **OPTIONS)
    sampling = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True, logprobs=0)
    completions = [output.outputs[0] for output in engine.chat(list(conversations), sampling, use_tqdm=False)]
    return [
        Answer(
            tuple(completion.token_ids),
            tuple(step[token].logprob for step, token in zip(completion.logprobs, completion.token_ids)),
        )
        for completion in completions
    ]


def behind_server(
    model: Path,
    dtype: str,
    conversations: Sequence[Conversation],
    path: Sequence[Path],
    environment: Mapping[str, str],
    seconds: float,
) -> list[Answer]:
    """Answers of a server that is started for them, with `path` ahead on its import path. Raises NoServer."""
    port = _free_port()
    options = [word for name, value in OPTIONS.items() for word in _flag(name, value)]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--dtype", dtype]
    command += ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", "port", *options]
    ahead = os.pathsep.join([*map(str, path), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, **ENVIRONMENT, **environment, "PYTHONPATH": ahead}
    printed = model.parent / "server.log"
    with printed.open("wb") as log:
        server = subprocess.Popen(
            command, stdout=log, stderr=log, env=environment, cwd=model.parent, start_new_session=True
        )
    try:
        deadline = time.monotonic() + seconds
        _wait(server, f"http://127.0.0.1:{port}/health", deadline)
        return [_ask(f"http://127.0.0.1:{port}/v1/chat/completions", each, deadline) for each in conversations]
    except (OSError, TimeoutError) as error:
        raise NoServer(_why(error), printed.read_text(errors="replace")[-4000:]) from None
    finally:
        _end(server)


def _flag(name: str, value: Any) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    return [flag] if value is True else [flag, json.dumps(value)]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait(server: subprocess.Popen[bytes], url: str, deadline: float) -> None:
    """Until the server says that it is well. Raises OSError if it ends, TimeoutError."""
    while True:
        if server.poll() is not None:
            raise OSError(f"the server ended with code {server.returncode} before it answered")
        with suppress(OSError):
            urllib.request.urlopen(url, timeout=5).close()
            return
        if time.monotonic() > deadline:
            raise TimeoutError("the server did not come up in time")
        time.sleep(0.5)


def _ask(url: str, conversation: Conversation, deadline: float) -> Answer:
    """Raises OSError, TimeoutError."""
    question = {
        "model": "port",
        "messages": conversation,
        "max_tokens": TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "logprobs": True,
        "return_token_ids": True,
    }
    request = urllib.request.Request(url, json.dumps(question).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=max(1.0, deadline - time.monotonic())) as response:
        choice = json.load(response)["choices"][0]
    return Answer(tuple(choice["token_ids"]), tuple(step["logprob"] for step in choice["logprobs"]["content"]))


def _why(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answered {error.code}: {error.read().decode(errors='replace')[:300]}"
    return str(error)


def _end(server: subprocess.Popen[bytes]) -> None:
    """End the server and all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        server.wait(5)
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()

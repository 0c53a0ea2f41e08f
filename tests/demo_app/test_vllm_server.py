"""The chat engine for servers, against a real one: vLLM serves the small model, through its own class and through that
of the ported example plugin, and both say what the embedded engine says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import numpy as np
import pytest

from codemods.migrate import main as migrate
from demo_app.engines.interface import Message
from demo_app.engines.server_chat import ServerChat
from demo_app.page.safety import free_port
from demo_app.pictures import encode
from demo_app.small_models import CHAT, folder
from demo_app.training.questions import KINDS, ask
from demo_app.training.shapes import draw, random_scene
from porting.environment import ENVIRONMENT
from porting.plugin import plugin_of
from tests.demo_app.fake_servers import collected

PLUGIN = Path(__file__).parents[2] / "examples" / "orchard_vl_plugin"
OPTIONS = ("--dtype", "float32", "--enforce-eager", "--max-model-len", "1024", "--max-num-seqs", "4")
SECONDS = 400.0  # for a start, on a machine that does other things


def conversations() -> list[list[Message]]:
    """A question of each kind about one picture each, and a second turn."""
    rng, asked = np.random.default_rng(3), []
    for number, kind in enumerate(KINDS):
        scene = random_scene(rng, 1 + number % 2)
        question, _ = ask(scene, rng, kind)
        asked.append([Message("user", question, (encode(draw(scene, 112, rng)),))])
    first = asked[0][0]
    asked.append([first, Message("assistant", "A shape."), Message("user", "How many shapes are there?")])
    return asked


def said(engine: object) -> list[str]:
    answers = []
    for messages in conversations():
        pieces, problem = collected(engine.answer(messages))
        assert not problem
        answers.append("".join(piece.text for piece in pieces))
    return answers


@contextmanager
def serving(model: Path, more: Mapping[str, str], log: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A server on loopback, still starting. The `vllm` command of the CPU package does not run; its module does."""
    port = free_port("127.0.0.1")
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), *OPTIONS]
    command += ["--host", "127.0.0.1", "--port", str(port), "--limit-mm-per-prompt", '{"image": 2, "video": 0}']
    environment = {**os.environ, **ENVIRONMENT, "VLLM_ENABLE_V1_MULTIPROCESSING": "0", **more}
    with log.open("wb") as printed:
        server = subprocess.Popen(command, stdout=printed, stderr=printed, env=environment, start_new_session=True)
    try:
        yield f"http://127.0.0.1:{port}", server
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def up(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and server.poll() is None:
        with suppress(httpx.TransportError):
            if httpx.get(f"{url}/health", timeout=5, trust_env=False).is_success:
                return
        time.sleep(0.5)
    pytest.fail(f"vLLM did not come up: {log.read_text(errors='replace')[-2000:]}")


@pytest.mark.vllm
def test_vllm_says_what_the_embedded_model_says_through_its_own_class_and_the_ported_plugin(
    tmp_path: Path, embedded
) -> None:
    copy = tmp_path / "plugin_source"
    subprocess.run(["cp", "-r", str(PLUGIN), str(copy)], check=True)
    assert migrate([str(copy), "--target", "0.32", "--quiet"]) == 0
    model = tmp_path / "ported"
    model.mkdir()
    for file in folder(CHAT).iterdir():
        (model / file.name).write_bytes(file.read_bytes())
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "architectures": ["OrchardVLForConditionalGeneration"]}))
    plugin = plugin_of(copy / "orchard_vl" / "model.py", copy)
    assert plugin
    paths = [*map(str, plugin.announce(tmp_path / "plugin")), os.environ.get("PYTHONPATH", "")]

    logs = tmp_path / "own.log", tmp_path / "ported.log"
    with (
        serving(folder(CHAT), {}, logs[0]) as own,
        serving(model, {"PYTHONPATH": os.pathsep.join(paths)}, logs[1]) as ported,
    ):
        for (url, server), log in zip((own, ported), logs):
            up(url, server, log)
        right = said(embedded[0])
        assert len(set(right)) > 4
        assert said(ServerChat(own[0], 60)) == right
        assert said(ServerChat(ported[0], 60)) == right

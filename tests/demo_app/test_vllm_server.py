"""The chat engine for servers, against a real one: vLLM serves the small model, through its own class and through that
of the ported example plugin, and both say what the embedded engine says."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from codemods.trial import Trial
from demo_app.engines.interface import Message
from demo_app.engines.server_chat import ServerChat
from demo_app.pictures import encode
from demo_app.small_models import CHAT, folder
from demo_app.training.questions import KINDS, ask
from demo_app.training.shapes import draw, random_scene
from porting.environment import ENVIRONMENT
from porting.models.server import Server, renamed
from porting.plugin import plugin_of
from tests.demo_app.fake_servers import collected

PLUGIN = Path(__file__).parents[2] / "examples" / "orchard_vl_plugin"
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


@pytest.mark.vllm
def test_vllm_says_what_the_embedded_model_says_through_its_own_class_and_the_ported_plugin(
    tmp_path: Path, embedded
) -> None:
    plugin_folder = Trial(PLUGIN, "0.32").write(tmp_path / "source").place
    plugin = plugin_of(plugin_folder / "orchard_vl" / "model.py", plugin_folder)
    assert plugin
    paths = {
        "Qwen2_5_VLForConditionalGeneration": [],
        "OrchardVLForConditionalGeneration": plugin.announce(tmp_path / "p"),
    }
    right = said(embedded[0])
    assert len(set(right)) > 4
    with ExitStack() as stack:
        servers = []
        for architecture, path in paths.items():
            model = tmp_path / architecture / "model"
            model.parent.mkdir()
            renamed(folder(CHAT), model, architecture)
            servers.append(Server(model, "float32", path, ENVIRONMENT))
            stack.callback(servers[-1].end)
        for server in servers:
            server.wait(time.monotonic() + SECONDS)
            assert said(ServerChat(server.url, 60)) == right

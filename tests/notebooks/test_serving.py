"""The panels of a served port, over a server that answers at once."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from porting.models import server
from porting.widgets import serving
from porting.widgets.bench import Bench
from porting.widgets.chat import Chat, Demo, Serve, data_address, red_circle
from porting.widgets.panel import Line
from porting.widgets.served import Served

ROOT = Path(__file__).parents[2]

# Health and one answer, which tells what it was asked; `hang` never comes up, `die` ends at once.
FAKE = """
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

if sys.argv[2] == "die":
    sys.exit("no kernel for this device")

class Answers(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503 if sys.argv[2] == "hang" else 200)
        self.end_headers()

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        kinds = [part["type"] for part in asked["messages"][0]["content"]]
        body = json.dumps({"choices": [{"message": {"content": f"I see {' and '.join(kinds)}."}}]}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

HTTPServer(("127.0.0.1", int(sys.argv[1])), Answers).serve_forever()
"""


@pytest.fixture
def way(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """How the server behaves, to be set: "answer", "hang" or "die"."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "config.json").write_text('{"architectures": ["Other"], "hidden_size": 8}')
    behaviour = ["answer"]
    command = lambda model, dtype, port: [sys.executable, "-c", FAKE, port, behaviour[0]]  # noqa: E731
    monkeypatch.setattr(server, "_command", command)
    return behaviour


@pytest.fixture
def bench(way: Any) -> Bench:
    bench = Bench()
    bench.take(ROOT / "examples/orchard_vl_plugin", Path("ported"))
    return bench


def started(bench: Bench) -> tuple[Served, Serve]:
    served = Served()
    panel = Serve(served, bench.port, Path("checkpoint"), "OrchardVLForConditionalGeneration", "float32")
    return served, panel


def test_the_checkpoint_is_served_under_the_name_that_the_plugin_registers(bench: Bench):
    served, panel = started(bench)
    asyncio.run(panel.work.done())
    assert panel.work.said.startswith("checkpoint is served as OrchardVLForConditionalGeneration")
    assert served._folder is not None
    folder = Path(served._folder.name)
    config = json.loads((folder / "model" / "config.json").read_text())
    assert config == {"architectures": ["OrchardVLForConditionalGeneration"], "hidden_size": 8}
    assert "orchard_vl = orchard_vl:register" in next((folder / "plugin").rglob("entry_points.txt")).read_text()
    served.end()
    assert not folder.exists()


def test_a_question_goes_out_with_its_picture(bench: Bench):
    served, panel = started(bench)
    asyncio.run(panel.work.done())
    chat = Chat(served, "", "What is it?")
    asyncio.run(chat.work.done())
    assert chat.answers == [(red_circle(), "What is it?", "I see image_url and text.")]
    assert 'alt="the picture that was asked about"' in chat.story()
    chat.question.value = "<b>And now?</b>"
    chat.ask.click()
    asyncio.run(chat.work.done())
    assert "&lt;b&gt;And now?" in chat.story()
    served.end()
    chat.ask.click()
    asyncio.run(chat.work.done())
    assert chat.work.said == "nothing is served: run the cell that starts the server, above"


def test_another_picture_is_taken_and_a_file_that_is_too_large_is_not(bench: Bench):
    served, panel = started(bench)
    asyncio.run(panel.work.done())
    chat = Chat(served, "", "What is it?")
    asyncio.run(chat.work.done())
    chat._take({"new": [{"name": "a.png", "type": "image/png", "size": 3, "content": b"abc"}]})
    assert chat.picture == data_address(b"abc")
    chat._take({"new": [{"name": "big.png", "type": "image/png", "size": 2**30, "content": b""}]})
    assert chat.work.said == "big.png is larger than 10 MiB; give a smaller one"
    assert chat.picture == data_address(b"abc")
    served.end()


def test_what_is_no_picture_is_said(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    served, panel = started(bench)
    asyncio.run(panel.work.done())
    chat = Chat(served, "", "What is it?")
    asyncio.run(chat.work.done())
    chat._take({"new": [{"name": "a.txt", "size": 3, "type": "text/plain", "content": b"abc"}]})
    assert chat.work.said == "text/plain is no picture; give a PNG or a JPEG"
    assert chat.picture == red_circle()
    monkeypatch.setattr(serving, "served", served)
    monkeypatch.setattr("porting.widgets.kernel.go_to_the_top", lambda: None)
    said = asyncio.run(serving.chat("What?", "missing.png"))
    assert str(said) == "missing.png: no such file; give the path of a picture, or none"
    served.end()


def test_a_server_that_dies_is_said(bench: Bench, way: list[str]):
    way[0] = "die"
    served, panel = started(bench)
    asyncio.run(panel.work.done())
    assert panel.work.said == "the server ended with code 1 before it answered"
    served.end()


def test_stop_ends_a_server_that_does_not_come_up(bench: Bench, way: list[str]):
    way[0] = "hang"
    served, panel = started(bench)
    waiting = threading.Event()
    while served._server is None:
        waiting.wait(0.05)
    process = served._server._process
    panel.work.stop.click()
    asyncio.run(panel.work.done())
    assert panel.work.bad
    assert process.poll() is not None


@pytest.mark.parametrize(
    ("models", "checkpoint", "said"),
    [
        ("examples/shared_attention", "checkpoint", "has no pyproject.toml with an entry point for vLLM"),
        ("examples/orchard_vl_plugin", "nowhere", "nowhere has no config.json"),
    ],
)
def test_what_cannot_be_served_is_said(way: Any, models: str, checkpoint: str, said: str):
    bench = Bench()
    port = bench.take(ROOT / models, Path("ported"))
    panel = Serve(Served(), port, Path(checkpoint), "Any", "float32")
    asyncio.run(panel.work.done())
    assert said in panel.work.said


def test_steps_out_of_order_are_one_line_each(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(serving, "bench", Bench())
    monkeypatch.setattr(serving, "served", Served())
    said = [asyncio.run(step) for step in (serving.serve("x", "y"), serving.chat("What?"), serving.demo())]
    assert all(isinstance(line, Line) for line in said)
    assert serving.end().text == "Nothing is served any more."


def test_the_demo_app_is_started_over_the_server_and_linked(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    served, panel = started(bench)
    asyncio.run(panel.work.done())
    fake = "print('Open http://127.0.0.1:7999/ (stop with Ctrl+C)', flush=True); import time; time.sleep(60)"
    folder = Path("demo")
    (folder / "demo_app").mkdir(parents=True)
    (folder / "demo_app" / "__main__.py").write_text(fake)
    monkeypatch.setattr("porting.widgets.served.python_path", lambda: str(folder.resolve()))
    demo = Demo(served)
    asyncio.run(demo.work.done())
    assert demo.work.said == "The demo app talks to the served port."
    assert 'href="http://127.0.0.1:7999/"' in demo._link.value
    assert served._demo is not None
    process = served._demo
    served.end()
    assert process.poll() is not None

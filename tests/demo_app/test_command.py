"""The command from outside: what it brings up, and the commands it shows."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import crowd
from demo_app import command
from demo_app.engines.interface import Message, Wish
from demo_app.engines.server_chat import ServerChat
from demo_app.engines.server_drawing import ServerDrawing
from tests.demo_app.fake_servers import running
from tests.demo_app.test_servers import RED, answers, draws

ROOT = Path(__file__).parents[2]


def test_make_demo_brings_up_the_page() -> None:
    """With a Python that has everything: what `make demo` installs where there is none takes minutes and a network."""
    make = ["make", "--no-print-directory", "demo", f"VLLM_PYTHON={sys.executable}", "DEMO=--port 0"]
    with subprocess.Popen(make, cwd=ROOT, stdout=subprocess.PIPE, text=True) as started:
        try:
            assert started.stdout
            line = started.stdout.readline()
            assert re.fullmatch(r"Open http://127\.0\.0\.1:\d+/ \(stop with Ctrl\+C\)\n", line)
            seen = asyncio.run(crowd.one(line.split()[1], asks=1, draws=1))
        finally:
            started.terminate()
    assert seen.wrong == []
    assert (len(seen.answers), len(seen.drawings)) == (1, 1)


@pytest.mark.parametrize(("lacks", "taken"), [("", "made"), ("gradio", "own")])
def test_make_demo_takes_the_environment_of_make_vllm_where_that_can_run_it(
    lacks: str, taken: str, tmp_path: Path
) -> None:
    """Its Python and that of `.venv` are played: each says who it is when it is to bring up the page."""
    for name in ("made", "own"):
        folder = tmp_path / name / "bin"
        folder.mkdir(parents=True)
        words = [
            "#!/bin/sh",
            f'case "$*" in *tests.wheels*) echo {tmp_path / "made" / "bin" / "python"};; esac',
            f'case "$*" in "-m demo_app"*) echo "{name} $*";; esac',
            f'[ {name} != made ] || case "$*" in *import*{lacks or "nothing"}*) exit 1;; esac',
        ]
        (folder / "python").write_text("\n".join(words) + "\nexit 0\n")
        (folder / "python").chmod(0o755)
    (tmp_path / "own" / ".demo").touch()
    words = ["make", "--no-print-directory", "demo", f"VENV={tmp_path / 'own'}", "VLLM_PYTHON=", "DEMO=--port 0"]
    variables = {**os.environ, "MAKEFLAGS": ""}
    done = subprocess.run(words, cwd=ROOT, env=variables, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == f"{taken} -m demo_app --port 0"


def test_the_page_of_the_demo_names_every_option_and_variable() -> None:
    page = (ROOT / "docs" / "demo.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"--[a-z0-9][a-z0-9-]+", command.parser().format_help())) - {"--help"}
    table = page.partition("| option | variable | for |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(--[a-z0-9][a-z0-9-]+)", table)) == shown
    assert {command.VL_URL, command.T2I_URL} <= set(re.findall(r"`(VITPORT_\w+)`", table))


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
@pytest.mark.parametrize("text", ["What is it?", 'it\'s "so" $HOME `ls` \\n @picture1.png@', "naïve 图\nnext"])
def test_the_command_shown_for_a_question_asks_the_same(text: str, tmp_path: Path) -> None:
    messages = [Message("user", text, (RED,)), Message("assistant", "Red."), Message("user", text)]
    (tmp_path / "picture1.png").write_bytes(RED.data)
    with running(answers) as server:
        engine = ServerChat(server.url, 5)
        asyncio.run(collect(engine, messages))
        shell(engine.command(messages), tmp_path)
        assert server.bodies[0] == server.bodies[1]


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
def test_the_command_shown_for_a_drawing_draws_the_same(tmp_path: Path) -> None:
    wish = Wish('it\'s a "circle"', "$x", 3)
    with running(draws) as server:
        engine = ServerDrawing(server.url, 5)
        asyncio.run(collect_drawing(engine, wish))
        shell(engine.command(wish), tmp_path)
        assert server.bodies[0] == server.bodies[1]
    assert (tmp_path / "drawing.png").read_bytes() == RED.data


async def collect(engine: ServerChat, messages: list[Message]) -> None:
    await engine.health()
    [_ async for _ in engine.answer(messages)]


async def collect_drawing(engine: ServerDrawing, wish: Wish) -> None:
    await engine.health()
    [_ async for _ in engine.draw(wish)]


def shell(text: str, folder: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    subprocess.run(["sh", "-c", text], cwd=folder, check=True, capture_output=True, env={**os.environ, "PATH": path})

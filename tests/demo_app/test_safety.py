"""The page fetches nothing for anybody, gives away nothing, and stays on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import gradio as gr
import httpx
import pytest
from gradio import processing_utils

from demo_app import command

ROOT = Path(__file__).parents[2]


def test_every_response_tells_the_browser_to_load_nothing_from_elsewhere(page: str) -> None:
    policy = httpx.get(page).headers["content-security-policy"]
    rules = dict(rule.split(None, 1) for rule in policy.split("; "))
    for rule in ("default-src", "img-src", "connect-src", "font-src"):
        assert rules[rule].split()[0] == "'self'"
        assert not any(source.startswith(("http", "*")) for source in rules[rule].split())


def test_a_link_in_the_place_of_a_picture_is_not_fetched(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = []
    monkeypatch.setattr(processing_utils, "async_ssrf_protected_get", lambda url: fetched.append(url))
    file = {"path": "http://203.0.113.1/x.png", "meta": {"_type": "gradio.FileData"}}
    response = run(page, "say", [{"text": "What is it?", "files": [file]}, None])
    assert response.status_code == 500
    assert fetched == []


@pytest.mark.parametrize("path", ["/etc/passwd", str(ROOT / "pyproject.toml"), str(ROOT / "demo_app" / "__init__.py")])
def test_files_of_this_machine_are_not_given_away(page: str, path: str) -> None:
    assert httpx.get(f"{page}gradio_api/file={path}").status_code == 403
    file = {"path": path, "meta": {"_type": "gradio.FileData"}}
    assert run(page, "say", [{"text": "What is it?", "files": [file]}, None]).status_code == 500


def test_what_was_said_is_of_one_visitor_alone(page: str) -> None:
    mine, other = uuid.uuid4().hex, uuid.uuid4().hex
    assert len(run(page, "say", [{"text": "Hello", "files": []}, None], mine).json()["data"][1]) == 2
    assert len(run(page, "say", [{"text": "Hi", "files": []}, None], other).json()["data"][1]) == 2
    forged = {"turns": [{"question": "forged"}]}
    assert "forged" not in run(page, "say", [{"text": "", "files": []}, forged], mine).text


def run(page: str, name: str, data: list[object], session: str = "") -> httpx.Response:
    config = httpx.get(f"{page}config").json()
    (function,) = (each["id"] for each in config["dependencies"] if each["api_name"] == name)
    body = {"data": data, "fn_index": function, "session_hash": session or uuid.uuid4().hex}
    return httpx.post(f"{page}gradio_api/run/{name}", json=body, timeout=60)


def test_only_what_a_client_may_call_is_offered(page: str) -> None:
    offered = httpx.get(f"{page}gradio_api/info").json()["named_endpoints"]
    assert set(offered) == {"/say", "/answer", "/stop", "/draw", "/compare"}


def test_nothing_is_reported_home(embedded) -> None:
    assert os.environ["GRADIO_ANALYTICS_ENABLED"] == "False"
    assert os.environ["HF_HUB_OFFLINE"] == "1"
    assert not gr.Blocks().analytics_enabled


def test_the_page_listens_on_this_machine_alone_unless_told_otherwise() -> None:
    assert command.parser().parse_args([]).host == "127.0.0.1"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--vl-url", "nonsense"], "demo_app: nonsense is no address of a server: give one like http://127.0.0.1:8000"),
        (["--t2i-url", "ftp://x"], "demo_app: ftp://x is no address of a server: give one like http://127.0.0.1:8000"),
    ],
)
def test_a_bad_address_costs_one_line(words: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(words) == 2
    assert capsys.readouterr().err.strip() == line


def test_a_port_that_is_taken_costs_one_line(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    port = page.rstrip("/").rpartition(":")[2]
    servers = ["--vl-url", "http://127.0.0.1:1", "--t2i-url", "http://127.0.0.1:1"]
    for kind in (servers, ["--omni-compat"]):
        assert command.main(["--port", port, *kind]) == 2
        assert capsys.readouterr().err == (
            f"demo_app: --port {port} is taken: give another, or 0 for any that is free\n"
        )


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--host", "999.1.1.1"], "demo_app: --host 999.1.1.1 is no address: give 127.0.0.1 for this machine only"),
        (["--host", "192.0.2.1"], "demo_app: --host 192.0.2.1 is no address of this machine: give 127.0.0.1 for"),
    ],
)
def test_a_host_that_is_none_of_this_machine_costs_one_line(
    words: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(words) == 2
    said = capsys.readouterr().err
    assert said.startswith(line) and said.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--port", "99999"], "--port: 99999 is no port: give a number up to 65535, or 0 for any that is free"),
        (["--port", "-1"], "--port: -1 is no port: give a number up to 65535, or 0 for any that is free"),
        (["--port", "8e3"], "--port: 8e3 is no port: give a number up to 65535, or 0 for any that is free"),
        (["--patience", "-5"], "--patience: -5 is no time to wait: give seconds, more than 0"),
        (["--patience", "0"], "--patience: 0 is no time to wait: give seconds, more than 0"),
        (["--patience", "nan"], "--patience: nan is no time to wait: give seconds, more than 0"),
        (["--patience", "soon"], "--patience: soon is no time to wait: give seconds, more than 0"),
        (["--prot", "80"], "unrecognized arguments: --prot 80"),
    ],
)
def test_an_option_that_cannot_be_costs_one_line(
    words: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(words)
    assert (ended.value.code, capsys.readouterr().err) == (2, f"demo_app: {line}\n")


def test_without_gradio_the_command_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "gradio.py").write_text("raise ModuleNotFoundError('No module named gradio', name='gradio')")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    command = [sys.executable, "-m", "demo_app", "--vl-url", "http://127.0.0.1:1", "--t2i-url", "http://127.0.0.1:1"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "demo_app: gradio is not installed: install the extra `demo`\n")


def test_the_state_of_a_visitor_is_not_in_the_page(page: str) -> None:
    config = httpx.get(f"{page}config").json()
    states = [each for each in config["components"] if each["type"] == "state"]
    assert states and not any("value" in each["props"] for each in states), json.dumps(states)

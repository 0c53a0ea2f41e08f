"""The real engine answers with a port: what is compared, and the example plugin from beginning to end."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from codemods.migrate import main as migrate
from porting.levels import serve
from porting.models.engine import Answer
from porting.models.server import _last_error
from porting.plugin import Plugin, plugin_of

PLUGIN = Path(__file__).parents[2] / "examples" / "orchard_vl_plugin"
RIGHT = [Answer((7, 8), (-1.0, -2.0)), Answer((9,), (-0.5,))]


def test_the_first_token_that_differs_is_named() -> None:
    wrong = [RIGHT[0], Answer((4,), (-0.5,))]
    assert serve.different(wrong, RIGHT, 1e-3) == "answer 2, token 1: 4 where vLLM's own model says 9"


def test_the_same_tokens_with_other_probabilities_are_a_difference() -> None:
    close, far = ([Answer((7, 8), (-1.0, -2.0 - by)), RIGHT[1]] for by in (1e-5, 0.5))
    assert serve.different(close, RIGHT, 1e-3) == ""
    assert serve.different(far, RIGHT, 1e-3) == "the same tokens, but log probabilities differ by 0.5"


def test_why_a_server_ended_is_the_last_error_of_its_log() -> None:
    log = """\
ERROR 10:11 [core] engine failed: TypeError: a wrapper's own
  Value error, Model architectures ['Gone'] are not supported for now. {many}
    For further information visit https://example.invalid/value_error
INFO 10:12 bye
"""
    why = _last_error(log.format(many="Supported: " + "A" * 5000))
    assert why.startswith(": Value error, Model architectures ['Gone'] are not supported for now.")
    assert len(why) < 250
    assert _last_error("INFO no error here\n") == ""


def test_a_missing_answer_is_not_passed_over() -> None:
    with pytest.raises(ValueError):
        serve.different(RIGHT[:1], RIGHT, 1e-3)


def test_a_plugin_is_read_from_its_project_and_announced_as_if_installed(tmp_path: Path) -> None:
    plugin = plugin_of(PLUGIN / "orchard_vl" / "vision.py", PLUGIN)
    assert plugin == Plugin(PLUGIN, {"orchard_vl": "orchard_vl:register"})
    (folder, root) = plugin.announce(tmp_path)
    from importlib.metadata import distributions

    (found,) = distributions(path=[str(folder)])
    assert [(e.group, e.name, e.value) for e in found.entry_points] == [
        ("vllm.general_plugins", "orchard_vl", "orchard_vl:register")
    ]
    assert root == PLUGIN


@pytest.mark.vllm
def test_the_migrated_example_plugin_answers_as_vllm_itself(tmp_path: Path) -> None:
    """Its tower alone is the package's own: the same checkpoint through vLLM's own class is the reference."""
    copy = shutil.copytree(PLUGIN, tmp_path / "plugin")
    assert migrate([str(copy), "--target", "0.32", "--quiet"]) == 0

    # An engine wants a process in which no other test has computed anything: the command makes one.
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "porting.check", copy / "orchard_vl" / "vision.py", "--levels", "serve"]
    subprocess.run([*command, "--timeout", "900", "--report", report], check=False)

    (result,) = json.loads(report.read_text(encoding="utf-8"))["results"]
    assert result["status"] == "passed", (result["summary"], *result["notes"])
    assert "registered by its plugin" in result["summary"]
    assert result["numbers"]["tokens"] == 64
    assert max(result["numbers"][f"{way}: logprob"] for way in ("in process", "server")) < 1e-4

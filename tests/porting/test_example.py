"""The whole way, for real: the example plugin is ported and proved under the installed vLLM, by the two commands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "docs"))
import make_check_picture  # noqa: E402


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], dict[str, Any], Path]:
    """The command's end, its JSON report, and the folder with the tests it wrote."""
    folder = tmp_path_factory.mktemp("example")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        end = make_check_picture.check_of_the_example(
            folder, "--report", "r.json", "--report", "r.html", "--emit-tests", "t"
        )
    assert (folder / "r.json").exists(), end.stderr
    return end, json.loads((folder / "r.json").read_text()), folder


def status(report: dict[str, Any], model: str, level: str) -> set[str]:
    return {r["status"] for r in report["results"] if (r["model"], r["level"]) == (model, level)}


def test_the_example_plugin_is_proved(done) -> None:
    end, report, _ = done
    assert end.returncode == 0, end.stdout
    for level in ("static", "load", "build", "parity", "paths"):
        assert status(report, "vision", level) == {"passed"}, end.stdout
    for level in ("static", "load"):
        assert status(report, "model", level) == {"passed"}, end.stdout


def test_it_was_refused_nothing(done) -> None:
    """What vLLM itself does in a job stays within what a job may do."""
    _, report, _ = done
    assert not [note for result in report["results"] for note in result["notes"] if "refused" in note]


def test_tests_were_written_for_what_was_proved(done) -> None:
    _, _, folder = done
    assert {path.name for path in (folder / "t").glob("*.py")} == {"test_vision.py"}


def test_the_picture_in_the_docs_is_fresh(done) -> None:
    end, _, _ = done
    assert make_check_picture.digest(end.stdout) in make_check_picture.PICTURE.read_text(encoding="utf-8"), (
        "docs/images/check.svg is stale: run `python docs/make_check_picture.py`"
    )

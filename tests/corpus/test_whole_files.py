"""Vision files of old releases, ported as files of their own: what they import is there, or a finding tells of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from codemods import vllm_api
from tests.corpus.imports import has, imported
from tests.corpus.port import run
from tests.corpus.vision_files import NUMBER, RELEASES, lay_out_alone, vision_files

ROOT = Path(__file__).parents[2]
TARGETS = ("0.13", "0.14", "0.20", "0.28", "0.32")


def test_all_files_are_looked_at(model_files: Callable[[str], Path]) -> None:
    assert sum(len(vision_files(model_files(release))) for release in RELEASES) == NUMBER


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("release", RELEASES)
def test_no_import_is_left_unresolved_in_silence(
    release: str, target: str, model_files: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = lay_out_alone(model_files(release), tmp_path / "ported")
    there = model_files(vllm_api.resolve(target))
    own = {f"vllm.model_executor.models.{path.stem}" for path in folder.glob("*.py")}
    silent = []
    for file in run([folder], target).files:
        text = Path(file.path).read_text(encoding="utf-8")
        for line, module, name in imported(text, "vllm.model_executor.models"):
            told = any(name in finding.message + finding.remedy for finding in file.findings)
            if module not in own and not has(there, module, name) and not told:
                silent.append(f"{Path(file.path).name}:{line}: {module}.{name}")
    assert silent == []


def test_the_page_of_findings_is_what_would_be_written(model_files: Callable[[str], Path]) -> None:
    for release in RELEASES:
        model_files(release)
    command = [sys.executable, ROOT / "docs" / "make_findings.py", "--check"]
    done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=900)
    assert (done.returncode, done.stderr) == (0, "")

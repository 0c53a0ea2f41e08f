"""The two faults of vllm-omni's pull request 597, put back into release 0.14.0 by small edits: the rules mend them."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from codemods import vllm_api
from codemods.findings import FileReport
from codemods.run import Options, migrate
from tests import wheels
from tests.corpus.omni_faults import BRANCH, LAYER, ULYSSES, UNDEFINED, broken

pytestmark = pytest.mark.corpus

ROOT = Path(__file__).parents[2]


def assert_mended(folder: Path, reports: dict[str, FileReport], original: Path) -> None:
    """Both files are again the program that the release has; nobody has anything left to do."""
    for path in (LAYER, ULYSSES):
        mended, wanted = ((root / path).read_text(encoding="utf-8") for root in (folder, original))
        assert ast.dump(ast.parse(mended)) == ast.dump(ast.parse(wanted))
        assert reports[path.name].findings == ()
    assert {r.code for r in reports["layer.py"].rewrites} == {"VA701", "VA801"}
    assert [r.code for r in reports["ulysses.py"].rewrites] == ["VA802"]


@pytest.mark.parametrize("branch", [BRANCH, UNDEFINED], ids=["the implementation called", "a name not defined"])
@pytest.mark.parametrize("target", ["0.14", "0.32"])
def test_two_files_alone(branch: str, target: str, tmp_path: Path) -> None:
    """What the classes are is known from the index of vllm-omni."""
    original = wheels.omni_files("0.14.0")
    for path, text in broken(original, branch).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    given = [tmp_path / path for path in (LAYER, ULYSSES)]
    done = migrate(given, Options(target=vllm_api.resolve(target)))
    assert_mended(tmp_path, {Path(file.path).name: file for file in done.files}, original)


def test_whole_package(tmp_path: Path) -> None:
    """What the classes are is read from the package itself."""
    original = wheels.omni_files("0.14.0")
    package = tmp_path / "vllm_omni"
    for part in ("diffusion/attention", "diffusion/distributed", "platforms"):
        shutil.copytree(original / part, package / part)
    for folder in (package, package / "diffusion"):
        (folder / "__init__.py").touch()
    for path, text in broken(original, BRANCH).items():
        (package / path).write_text(text, encoding="utf-8")
    done = migrate([package], Options(target=vllm_api.resolve("0.14"), select=frozenset({"VA7", "VA80"})))
    reports = {
        Path(file.path).name: file for file in done.files if package / "diffusion/attention" in Path(file.path).parents
    }
    assert_mended(package, reports, original)


def test_the_page_of_edits_is_what_would_be_written() -> None:
    """Every edit in five whole releases of vllm-omni and vllm-ascend has a reason, and there are no others."""
    for version in ("0.14.0", "0.20.0", "0.30.0"):
        wheels.omni_files(version)
    for version in ("0.11.0", "0.18.0"):
        wheels.ascend_files(version)
    command = [sys.executable, ROOT / "docs" / "make_npu_edits.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

"""Vision files of old releases, ported as files of their own: what they import is there, or a finding tells of it.

The page `docs/findings.md` counts the findings of the same ports, so that each is held beside its column.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from codemods import vllm_api
from docs import make_findings
from tests.corpus.imports import has, imported
from tests.corpus.port import run
from tests.corpus.vision_files import NUMBER, RELEASES, lay_out_alone, vision_files

PAGE = make_findings.PAGE.read_text(encoding="utf-8")


def test_all_files_are_looked_at(model_files: Callable[[str], Path]) -> None:
    assert sum(len(vision_files(model_files(release))) for release in RELEASES) == NUMBER


@pytest.mark.parametrize("target", make_findings.TARGETS)
@pytest.mark.parametrize("release", RELEASES)
def test_no_import_is_left_unresolved_in_silence_and_the_findings_are_those_of_the_page(
    release: str, target: str, model_files: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = lay_out_alone(model_files(release), tmp_path / "ported")
    there = model_files(vllm_api.resolve(target))
    own = {f"vllm.model_executor.models.{path.stem}" for path in folder.glob("*.py")}
    silent = []
    report = run([folder], target)
    for file in report.files:
        text = Path(file.path).read_text(encoding="utf-8")
        for line, module, name in imported(text, "vllm.model_executor.models"):
            told = any(name in finding.message + finding.remedy for finding in file.findings)
            if module not in own and not has(there, module, name) and not told:
                silent.append(f"{Path(file.path).name}:{line}: {module}.{name}")
    assert silent == []
    stale = "docs/findings.md is stale: run `python docs/make_findings.py`"
    assert make_findings.read(PAGE)[release, target] == make_findings.column(report), stale


def test_the_page_of_findings_has_nothing_but_its_columns() -> None:
    assert make_findings.written(make_findings.read(PAGE)) == PAGE

"""Vision files of old releases, ported as files of their own, are imported under real vLLM releases."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from codemods import vllm_api
from codemods.run import Options, migrate
from tests import wheels
from tests.corpus.port import MODELS, run
from tests.corpus.real_vllm import not_imported
from tests.corpus.vision_files import CHECKLIST, NUMBER, RELEASES, lay_out_alone, vision_files

# Of the 126 vision files, those that vLLM 0.28 cannot import once they are ported, and why. Each has a finding.
MOLMO = "cross-attention stays on MultiHeadAttention, which is gone"
POSITIONS = "get_llm_pos_ids_for_vision is gone, and nothing took its place"
NOT_IMPORTED = {
    "0.10.2": {
        "mllama": "an encoder-decoder model for the engine that went with 0.11",
        "molmo": MOLMO,
        "step3_vl": "builds a sampler, which models no longer have",
    },
    "0.11.0": {"molmo": MOLMO},
    "0.11.1": {"molmo": MOLMO, "qwen3_omni_moe_thinker": POSITIONS},
    "0.11.2": {"molmo": MOLMO, "qwen3_omni_moe_thinker": POSITIONS},
    "0.12.0": {
        "hunyuan_vision": "its processor is no longer vLLM's",
        "molmo": MOLMO,
        "qwen3_omni_moe_thinker": POSITIONS,
    },
}


@pytest.fixture
def towers(model_files: Callable[[str], Path], tmp_path: Path) -> Path:
    """The nine towers of vLLM 0.12 alone, so whatever else they import has to come from the installed vLLM."""
    folder = tmp_path / "ported"
    folder.mkdir()
    (folder / "__init__.py").touch()
    for tower in CHECKLIST:
        shutil.copy(model_files("0.12.0").parent / MODELS / f"{tower}.py", folder)
    return folder


def test_nine_ported_towers_are_imported(towers: Path, vllm_python: Path) -> None:
    run([towers], "0.32")
    assert not_imported(vllm_python, towers, CHECKLIST) == {}


def test_towers_for_two_releases_are_imported_by_both(towers: Path, vllm_python: Path) -> None:
    migrate([towers], Options(target=vllm_api.resolve("0.32"), also=("0.14.0",)))
    assert not_imported(vllm_python, towers, CHECKLIST) == {}
    assert not_imported(vllm_python, towers, CHECKLIST, wheels.import_path("0.14.0")) == {}


@pytest.mark.parametrize("release", RELEASES)
def test_vision_files_are_imported(
    release: str, model_files: Callable[[str], Path], vllm_python: Path, tmp_path: Path
) -> None:
    folder = lay_out_alone(model_files(release), tmp_path / "ported")
    told = {Path(file.path).stem: file.findings for file in run([folder], "0.28").files}
    names = [path.stem for path in vision_files(model_files(release))]
    failed = not_imported(vllm_python, folder, names, wheels.import_path("0.28.0"))
    assert failed.keys() == NOT_IMPORTED[release].keys(), failed
    assert all(told[name] for name in failed)


def test_most_vision_files_are_imported() -> None:
    assert NUMBER - sum(map(len, NOT_IMPORTED.values())) >= 115

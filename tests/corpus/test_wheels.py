"""The models folders of six vLLM releases, each ported to every later target: the codemod's main promise.

A pair of a release and a target is one test, because a run costs seconds and all checks read its result.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.corpus import checks
from tests.corpus.old_api import reached, source
from tests.corpus.port import MODELS, lay_out, port, run, texts

TARGETS = ("0.13", "0.14", "0.15", "0.16", "0.17", "0.18", "0.20", "0.24", "0.28", "0.32")

# Classes that choose an attention kernel by hand, release by release.
CHAINS_OF_0_10 = {"ernie45_vl.py", "glm4_1v.py", "keye.py", "qwen2_5_vl.py", "qwen2_vl.py", "siglip2navit.py"}
CHAINS = {
    "0.10.2": CHAINS_OF_0_10,
    "0.11.0": CHAINS_OF_0_10 | {"dots_ocr.py"},
    "0.11.1": CHAINS_OF_0_10 | {"dots_ocr.py", "paddleocr_vl.py"},
    "0.11.2": CHAINS_OF_0_10 | {"dots_ocr.py", "paddleocr_vl.py"},
    "0.12.0": CHAINS_OF_0_10 | {"dots_ocr.py", "paddleocr_vl.py"},
    "0.13.0": set(),
}
SAME_MODELS = ("0.11.1", "0.11.2")  # to the byte, so that the ports of one are the ports of both
PAIRS = [
    (release, target)
    for release in CHAINS
    for target in TARGETS
    if release != SAME_MODELS[0] and not reached(target, release[:4])
]

ModelFiles = Callable[[str], Path]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that does not outlive its test: a models folder has 6 MB, and there are many."""
    yield tmp_path
    shutil.rmtree(tmp_path)


def test_there_are_37_chains_to_port(model_files: ModelFiles) -> None:
    found = {}
    for release in CHAINS:
        models = model_files(release).parent / MODELS
        per_file = {name: len(source(text).chains()) for name, text in texts(models).items() if "attn" in text}
        found[release] = {name: count for name, count in per_file.items() if count}
    assert found == {release: dict.fromkeys(names, 1) for release, names in CHAINS.items()}
    assert sum(map(len, found.values())) == 37


def test_two_releases_have_the_same_models(model_files: ModelFiles) -> None:
    first, second = (texts(model_files(release).parent / MODELS) for release in SAME_MODELS)
    assert first == second


@pytest.mark.parametrize(("release", "target"), PAIRS)
def test_a_port_holds(release: str, target: str, model_files: ModelFiles, folder: Path) -> None:
    ported = port(model_files(release), target, folder)
    faults = [f"{check.__name__}: {fault}" for check in checks.ALL for fault in check(ported)]
    assert not faults, "\n".join(faults)


def test_neither_jobs_nor_the_order_of_files_matters(model_files: ModelFiles, folder: Path) -> None:
    release = model_files("0.12.0")
    ported = port(release, "0.32", folder / "one")
    expected = texts(ported.folder)

    models = lay_out(release, folder / "two jobs")
    run([models], "0.32", jobs=2)
    assert texts(models) == expected

    one_by_one = []
    for order in ("forwards", "backwards"):
        models = lay_out(release, folder / order)
        given = [models / file.name for file in ported.vision]
        run(given if order == "forwards" else given[::-1], "0.32")
        one_by_one.append(texts(models))
    assert one_by_one[0] == one_by_one[1]

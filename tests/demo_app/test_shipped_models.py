"""The shipped weights are those of the manifest, and as good as it says, on a sample of fresh questions and prompts.

Nothing is trained here. A sample may fall short of the score on everything by chance, so some points are allowed.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch

from demo_app.training import scores

MODELS = Path(__file__).parents[2] / "demo_app" / "models"
MANIFEST = json.loads((MODELS / "manifest.json").read_text(encoding="utf-8"))
SCORES = MANIFEST["held-out scores"]
OTHER_SEED = 99


@pytest.fixture(scope="module")
def chat():
    torch.set_num_threads(1)
    return scores.load_vl(MODELS / "shapes-vl")


def test_every_file_is_the_one_of_the_manifest_and_no_other_is_there():
    for folder, files in MANIFEST["files"].items():
        there = {
            path.relative_to(MODELS / folder).as_posix() for path in (MODELS / folder).rglob("*") if path.is_file()
        }
        assert there == set(files)
        for name, entry in files.items():
            content = (MODELS / folder / name).read_bytes()
            assert (hashlib.sha256(content).hexdigest(), len(content)) == (entry["sha256"], entry["bytes"])


def test_all_is_under_20_megabytes():
    assert sum(path.stat().st_size for path in MODELS.rglob("*") if path.is_file()) < 20e6


def test_the_card_states_the_scores_of_the_manifest():
    card = (MODELS / "README.md").read_text(encoding="utf-8")
    assert f"{SCORES['shapes-vl']['all']:.1%}" in card


def test_the_chat_model_answers_exactly(chat):
    assert SCORES["shapes-vl"]["all"] >= 0.95
    score = scores.score_vl(chat, 280, OTHER_SEED)
    assert score["all"] >= 0.92  # three standard errors of 280 questions below 0.96

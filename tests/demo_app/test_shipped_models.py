"""The shipped weights are those of the manifest, and as good as it says, on a sample of fresh questions and prompts.

Nothing is trained here.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

from codemods.migrate import main as migrate
from demo_app.small_models import CHAT, DRAWING, MODELS
from demo_app.training import prompts, scores
from demo_app.training.card import write

ROOT = Path(__file__).parents[2]
MANIFEST = json.loads((MODELS / "manifest.json").read_text(encoding="utf-8"))
SCORES = MANIFEST["held-out scores"]
OTHER_SEED = 99


@pytest.fixture(scope="module")
def chat():
    torch.set_num_threads(1)
    return scores.load_vl(MODELS / CHAT)


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


def test_the_card_says_what_the_manifest_says():
    card = (MODELS / "README.md").read_text(encoding="utf-8")
    assert card == write(MANIFEST)


def test_the_page_states_the_scores_and_shows_drawings_of_these_weights():
    page = (ROOT / "docs" / "small-models.md").read_text(encoding="utf-8")
    drawn, answered = SCORES[DRAWING], SCORES[CHAT]
    assert all(f"| {share:.1%} |" in page for share in (answered["all"], drawn["rules"], drawn["vl"], SCORES["rules"]))
    assert f"| {MANIFEST['stages']['text_to_image']['processor seconds']:,} s |" in page
    weights = MANIFEST["files"][DRAWING]["transformer/diffusion_pytorch_model.safetensors"]
    assert Image.open(ROOT / "docs" / "images" / "drawings.png").text["transformer"] == weights["sha256"]


def least(told: float, count: int) -> float:
    """What a sample of so many may come down to by chance, where all score `told`; 100% of 300 is about 99%."""
    return told - 3 * math.sqrt(max(told * (1 - told), 0.01) / count)


def test_the_chat_model_answers_as_well_as_the_manifest_says(chat):
    score = scores.score_vl(chat, 280, OTHER_SEED)
    assert score["all"] >= least(SCORES[CHAT]["all"], 280)


def test_the_drawing_model_draws_as_well_as_the_manifest_says(chat):
    pipeline = scores.load_drawing(MODELS / DRAWING)
    for told, (_, held) in ((DRAWING, prompts.split()), (f"{DRAWING}, short prompts", prompts.split_short())):
        score = scores.score_drawing(pipeline, chat, held, 48, OTHER_SEED)
        for judge in ("rules", "vl"):
            assert score[judge] >= least(SCORES[told][judge], 48)


@pytest.mark.vllm
def test_transformers_vllm_and_the_ported_example_plugin_give_the_same_answers(chat, tmp_path):
    """Right ones: the plugin reads the checkpoint of vLLM's own model, and its tower alone is its own."""
    plugin = shutil.copytree(ROOT / "examples" / "orchard_vl_plugin", tmp_path / "plugin")
    assert migrate([str(plugin), "--target", "0.32", "--quiet"]) == 0
    _, pictures, asked, true = zip(*scores.quiz(42, OTHER_SEED))

    def shown(picture, question):
        file = io.BytesIO()
        picture.save(file, "PNG")
        url = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
        content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": question}]
        return [{"role": "user", "content": content}]

    done = subprocess.run(
        [sys.executable, "-m", "tests.demo_app.vllm_answers", MODELS / CHAT, plugin],
        input=json.dumps([shown(*each) for each in zip(pictures, asked)]),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout.splitlines()[-1])
    expected = scores.answers(chat, list(pictures), list(asked))
    assert answers == {"own": expected, "plugin": expected}
    assert sum(map(str.__eq__, expected, true)) >= 38

"""Every stage of the training runs, on a few pictures and for two steps, and ends in folders like the shipped ones."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path

import pytest
import torch

from demo_app.small_models import CHAT, DRAWING, MODELS
from demo_app.training import scores, ship, text_to_image, tower, vae, vl

STAGES = (tower, vl, vae, text_to_image)
POOLS = {vl: 20, text_to_image: 700}  # enough for each of the 66 drawings to be there


def shapes_of(weights: Path) -> dict[str, object]:
    """The shape and dtype of each tensor in a file of safetensors, from its header."""
    content = weights.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    return {name: (entry["dtype"], entry["shape"]) for name, entry in header.items() if name != "__metadata__"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the stages leave, one after another, as the commands of docs/small-models.md."""
    out, models = tmp_path_factory.mktemp("out"), tmp_path_factory.mktemp("made") / "models"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "set_flush_denormal", bool)  # other tests share this process
        for stage in STAGES:
            patch.setattr(stage, "LOOKED_AT", 3)
        for stage, size in POOLS.items():
            patch.setattr(stage, "POOL", size)
        for count in ("QUESTIONS", "PROMPTS", "TRUE_PICTURES"):
            patch.setattr(scores, count, 4)
        for stage in STAGES:
            patch.setattr(sys, "argv", [stage.__name__, "--out", str(out), "--steps", "2"])
            stage.main()
        patch.setattr(sys, "argv", ["ship", "--out", str(out), "--to", str(models)])
        ship.main()
    return models


def test_the_stages_make_the_same_files_with_weights_of_the_same_shapes(made: Path) -> None:
    ours, shipped = (
        {path.relative_to(models): path for path in models.rglob("*") if path.is_file()} for models in (made, MODELS)
    )
    assert set(ours) == set(shipped)
    for name in ours:
        if name.suffix == ".safetensors":
            assert shapes_of(ours[name]) == shapes_of(shipped[name])


def test_they_make_the_shipped_tokenizer(made: Path) -> None:
    for place in (f"{CHAT}/tokenizer.json", f"{DRAWING}/tokenizer/tokenizer.json"):
        assert json.loads((made / place).read_text()) == json.loads((MODELS / place).read_text())


def test_the_manifest_tells_how_each_stage_ran(made: Path) -> None:
    told = json.loads((made / "manifest.json").read_text())["stages"]
    assert set(told) == {"tower", "vl", "vae", "text_to_image"}
    for stage in told.values():
        assert stage["steps"] == 2
        assert stage["runs"] == [{"from": 0, "steps": 2, "processes": 1}]

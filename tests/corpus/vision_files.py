"""The files of a release's models folder that have a part in vision attention, laid out as a package of their own."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tests.corpus.port import MODELS

RELEASES = ("0.10.2", "0.11.0", "0.11.1", "0.11.2", "0.12.0")
NUMBER = 126  # of all five releases

# The towers that vLLM's developers moved to MMEncoderAttention by a list.
CHECKLIST = (
    "dots_ocr",
    "ernie45_vl",
    "glm4_1v",
    "keye",
    "paddleocr_vl",
    "qwen2_vl",
    "qwen2_5_vl",
    "qwen3_vl",
    "siglip2navit",
)

# Those that hold vLLM's MultiHeadAttention in 0.12 and 0.13.
MULTI_HEAD = (
    *("aimv2", "blip", "clip", "deepencoder", "glm4v", "hunyuan_vision", "idefics2_vision_model"),
    *("intern_vit", "interns1_vit", "mllama4", "molmo", "siglip", "step3_vl", "whisper"),
)

_OLD = re.compile(
    r"\b(?:MultiHeadAttention|(?:maybe_)?get_vit_(?:flash_)?attn_backend|vit_\w+_(?:attn|sdpa)_wrapper|xformers"
    r"|flash_attn_varlen_func|check_(?:upstream_fa|xformers)_availability)\b"
)
_PLAIN = re.compile(r"\bscaled_dot_product_attention\b")
_TOWER = re.compile(r"^class \w*(?:Vision|ViT|Image|Siglip)", re.M)
_INFRASTRUCTURE = {"config.py", "registry.py", "vision.py"}  # what models are made of, and no model


def vision_files(release: Path) -> list[Path]:
    """`release` is its `vllm/` folder."""
    found = []
    for path in sorted((release.parent / MODELS).glob("*.py")):
        text = path.read_text(encoding="utf-8")
        if path.name not in _INFRASTRUCTURE and (_OLD.search(text) or (_PLAIN.search(text) and _TOWER.search(text))):
            found.append(path)
    return found


def lay_out_alone(release: Path, folder: Path) -> Path:
    """A package that holds these files alone: whatever else they import has to come from the vLLM that is there."""
    folder.mkdir()
    (folder / "__init__.py").touch()
    for path in vision_files(release):
        shutil.copy(path, folder)
    return folder

"""Nine vision towers of vLLM 0.12, ported as files of their own, are imported under a real vLLM 0.32."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.corpus.port import MODELS, run
from tests.wheels import VLLM_ENVIRONMENT

TOWERS = (
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

# Prints, as JSON, what importing each module of `ported` gives: its file, or its error.
IMPORT_EACH = """
import importlib, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.import_module("ported." + name).__file__
    except Exception as error:
        found[name] = f"{type(error).__name__}: {error}"
print(json.dumps(found))
"""


def test_nine_ported_towers_import(model_files: Callable[[str], Path], vllm_python: Path, tmp_path: Path) -> None:
    """The folder holds the nine alone, so whatever else they import has to come from the installed vLLM."""
    folder = tmp_path / "ported"
    folder.mkdir()
    (folder / "__init__.py").touch()
    for tower in TOWERS:
        shutil.copy(model_files("0.12.0").parent / MODELS / f"{tower}.py", folder)
    run([folder], "0.32")

    done = subprocess.run(
        [vllm_python, "-c", IMPORT_EACH, *TOWERS],
        capture_output=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, **VLLM_ENVIRONMENT, "PYTHONPATH": str(tmp_path)},
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {tower: str(folder / f"{tower}.py") for tower in TOWERS}

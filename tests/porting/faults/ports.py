"""The towers of this folder, ported to vLLM 0.32 by our own command."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from codemods import vllm_api
from codemods.run import Options, migrate

ORIGINALS = {name: Path(__file__).with_name(f"{name}.py") for name in ("packed", "fixed_size")}


@cache
def ports() -> dict[str, str]:
    """The text of each port. Raises AssertionError if something was left for a person."""
    with TemporaryDirectory() as folder:
        copies = [Path(shutil.copy(original, folder)) for original in ORIGINALS.values()]
        report = migrate(copies, Options(target=vllm_api.resolve("0.32")))
        assert not any(file.findings for file in report.files)
        return {copy.stem: copy.read_text(encoding="utf-8") for copy in copies}

"""Ported files imported by a real vLLM, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.wheels import VLLM_ENVIRONMENT

_IMPORT_EACH = """
import importlib, json, sys
found = {}
for name in sys.argv[2:]:
    try:
        found[name] = importlib.import_module(f"{sys.argv[1]}.{name}").__file__
    except Exception as error:
        found[name] = f"{type(error).__name__}: {error}"
print(json.dumps(found))
"""


def not_imported(python: Path, package: Path, names: Sequence[str], ahead: Sequence[Path] = ()) -> dict[str, str]:
    """The modules of a package that fail, and how. `ahead`: what is found before the vLLM that is installed."""
    path = os.pathsep.join(map(str, [package.parent, *ahead]))
    done = subprocess.run(
        [python, "-c", _IMPORT_EACH, package.name, *names],
        capture_output=True,
        check=False,
        cwd=package.parent,
        env={**os.environ, **VLLM_ENVIRONMENT, "PYTHONPATH": path},
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    return {name: result for name, result in found.items() if result != str(package / f"{name}.py")}

"""vLLM's entry point for a model file that has none of its own: the file's class, in place of vLLM's if it has one."""

from __future__ import annotations

import os
from pathlib import Path

FILE, CLASS = "VITPORT_MODEL_FILE", "VITPORT_MODEL_CLASS"
ENTRY_POINT = {"vitport": f"{__name__}:register"}


def register() -> None:
    """Register the class CLASS of the file FILE, both from the environment. vLLM calls this in each process."""
    from vllm import ModelRegistry

    from porting.model_file import load

    name = os.environ[CLASS]
    ModelRegistry.register_model(name, getattr(load(Path(os.environ[FILE])), name))

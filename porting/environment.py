"""What a process needs in its environment before it imports torch, vLLM or transformers."""

from __future__ import annotations

import os
from pathlib import Path

# To start quickly, quietly and without a network. One thread: the number of threads changes the last bits of a sum.
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_DIST_IDENT": "vitport",
    "VLLM_HOST_IP": "127.0.0.1",  # else vLLM asks the network for its own address
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}


def prepare_process() -> None:
    """Set ENVIRONMENT for this process, before vLLM or transformers are imported; what is set already stays."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def python_path() -> str:
    """PYTHONPATH for a child: this program's own packages, wherever it works, ahead of what is on the path here."""
    given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return os.pathsep.join([str(Path(__file__).resolve().parents[1]), *map(os.path.abspath, given)])

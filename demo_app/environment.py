"""What this process needs in its environment before it imports Gradio, torch, transformers or diffusers."""

from __future__ import annotations

import os

# Nothing looks for a network, and nothing reports home. One thread: the small models are slower with more.
ENVIRONMENT = {
    "DIFFUSERS_VERBOSITY": "error",
    "DO_NOT_TRACK": "1",
    "GRADIO_ANALYTICS_CACHE_FREQUENCY": "1000000000",  # requests between two summaries, each of which takes pandas
    "GRADIO_ANALYTICS_ENABLED": "False",
    "GRADIO_ANALYTICS_MAX_EVENTS": "100",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}


def prepare_process() -> None:
    """Set ENVIRONMENT for this process; what is set already stays."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)

"""One question through two vision towers of the example plugin: the original, and what `codemods` made of it.

The towers need vLLM, which is slow to import and takes a process for itself: `worker` is that process, `client` talks
to it.
"""

from pathlib import Path

PLUGIN = Path(__file__).parents[2] / "examples" / "orchard_vl_plugin"

"""Which names each vLLM release exports, from where, and how they may be called.

Data and look-up; vLLM itself is never imported. `docs/adding-a-target.md` says how a release is added.
"""

from __future__ import annotations

from codemods.vllm_api.api import Api, introduced, removed
from codemods.vllm_api.releases import installed, releases, resolve
from codemods.vllm_api.signature import Kind, Parameter, Signature

__all__ = ["Api", "Kind", "Parameter", "Signature", "installed", "introduced", "releases", "removed", "resolve"]

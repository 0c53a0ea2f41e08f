"""Which names each vLLM release exports, from where, and how they may be called. Data and look-up; vLLM itself is never imported."""

from __future__ import annotations

from codemods.vllm_api.api import Api, introduced, removed
from codemods.vllm_api.releases import installed, releases, resolve
from codemods.vllm_api.signature import Kind, Parameter, Signature

__all__ = ["Api", "Kind", "Parameter", "Signature", "installed", "introduced", "releases", "removed", "resolve"]

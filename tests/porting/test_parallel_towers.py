"""The level parallel on real towers: faults of vLLM's own files are found without being told."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from porting.job import Job
from porting.levels import parallel
from porting.result import Result, Status
from tests.wheels import model_files

pytestmark = [pytest.mark.vllm, pytest.mark.corpus, pytest.mark.usefixtures("no_groups")]


def asked(name: str, before: Path | None = None) -> Result:
    spec = find_spec("vllm")
    assert spec is not None and spec.submodule_search_locations
    stock = Path(spec.submodule_search_locations[0], "model_executor", "models", name)
    (result,) = parallel.run(Job(stock, "parallel", before=before, before_release="0.12.0" if before else ""))
    return result


def original(name: str) -> Path:
    return model_files("0.12.0") / "model_executor" / "models" / name


def test_dots_ocr_of_0_32_splits_what_it_gathered_in_the_wrong_place() -> None:
    """QKVParallelLinear leaves q, k and v of its own heads on each rank; gathered, they are no longer three parts."""
    result = asked("dots_ocr.py", before=original("dots_ocr.py"))

    assert result.status is Status.FAILED
    assert result.numbers["weights split"] > 0.1
    assert any(note.startswith("the original gives the same on 2 processes") for note in result.notes)


def test_qwen2_vl_of_0_12_splits_the_columns_of_all_three_as_one() -> None:
    """vLLM 0.12, fixed since: the new file holds, and of the original it is said."""
    result = asked("qwen2_vl.py", before=original("qwen2_vl.py"))

    assert result.status is Status.PASSED, result.summary
    assert result.numbers["weights split"] < 3e-6
    (said,) = (note for note in result.notes if note.startswith("the original differs from one process by 0."))
    assert said.endswith("with weights split")

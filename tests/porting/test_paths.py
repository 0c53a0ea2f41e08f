"""The paths level: right ports pass on every backend, and what is wrong is said with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from porting.job import Job
from porting.levels import paths
from porting.result import Result, Status
from tests.porting.faults.ports import ORIGINALS, ports

pytestmark = [pytest.mark.vllm, pytest.mark.usefixtures("groups")]


def asked(path: Path, text: str, backend: str = "native", dtype: str = "float32") -> dict[str, Result]:
    """The results for a model file of that text, by backend."""
    path.write_text(text, encoding="utf-8")
    return {result.backend: result for result in paths.run(Job(path, "paths", backend=backend, dtype=dtype))}


@pytest.mark.parametrize("dtype", paths.BOUNDS)
@pytest.mark.parametrize("tower", ORIGINALS)
def test_right_ports_pass(tower: str, dtype: str, tmp_path: Path) -> None:
    results = asked(tmp_path / "model.py", ports()[tower], dtype=dtype)

    assert {backend: result.status for backend, result in results.items()} == dict.fromkeys(
        ("flash", "triton", "npu"), Status.PASSED
    )
    for result in results.values():
        # two layers, two sets of pictures, two shapes
        assert (result.numbers["attention layers"], result.numbers["kernel calls"]) == (2, 8)
        assert result.numbers["largest difference"] <= 1e-6


def test_one_backend_can_be_asked_for(tmp_path: Path) -> None:
    assert list(asked(tmp_path / "model.py", ports()["fixed_size"], backend="npu")) == ["npu"]


def test_attention_beside_the_kernels_is_noted(tmp_path: Path) -> None:
    """The pooling head computes its own, and rightly so: one query to four keys is no self-attention."""
    result = asked(tmp_path / "model.py", ports()["fixed_size"], backend="flash")["flash"]

    assert result.status is Status.PASSED
    assert any(note.startswith("attention without a kernel in FixedSizePooling (model.py:") for note in result.notes)


def test_the_place_of_a_violation_is_the_line_of_the_model(tmp_path: Path) -> None:
    text = ports()["packed"].replace("cumsum(0, dtype=torch.int32)", "cumsum(0)")
    line = text[: text.index("context = self.attn(")].count("\n") + 1

    result = asked(tmp_path / "model.py", text, backend="flash")["flash"]

    assert result.status is Status.FAILED
    assert "cu_seqlens_q is a tensor of int64" in result.summary
    assert result.summary.endswith(f"(model.py:{line})")


def test_other_numbers_are_a_fault(tmp_path: Path) -> None:
    text = ports()["packed"].replace(
        "        return max_seqlen\n",
        "        if max_seqlen is not None:\n            cu_seqlens[1] += 1\n        return max_seqlen\n",
    )

    result = asked(tmp_path / "model.py", text, backend="flash")["flash"]

    assert result.status is Status.FAILED
    assert "its output differs from the native path's by" in result.summary
    assert result.numbers["largest difference"] > result.numbers["bound"]


def test_attention_with_a_mask_has_no_kernel_to_call(tmp_path: Path) -> None:
    text = ports()["fixed_size"].replace(
        "self.attn(q, k, v))",
        "nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=x.new_zeros(x.shape[1], x.shape[1])))",
    )
    assert "attn_mask" in text
    text = text.replace("        return self.pooling(x)\n", "        return x\n")

    result = asked(tmp_path / "model.py", text, backend="flash")["flash"]

    assert result.status is Status.NOT_RUN
    assert "attention takes a mask in FixedSizeAttention (model.py:" in result.summary


def test_a_file_without_a_tower_is_not_run(tmp_path: Path) -> None:
    results = asked(tmp_path / "model.py", "answer = 42\n")

    assert {result.status for result in results.values()} == {Status.NOT_RUN}

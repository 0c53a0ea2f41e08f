"""The example of docs/strict-kernels.md is a test that passes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.vllm

PAGE = Path(__file__).parents[2] / "docs" / "strict-kernels.md"


def test_the_example_passes(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(example, str(PAGE), "exec"), names)
    test = names["test_attention_calls_its_kernel_rightly"]

    (backends,) = [mark.args[1] for mark in test.pytestmark]
    assert backends == ["flash", "triton", "npu"]
    for backend in backends:
        test(backend)

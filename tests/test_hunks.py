"""Every change of a file is tied to the rules that made it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from codemods.hunks import Hunk, hunks
from codemods.run import Options, examine

EXAMPLE = Path(__file__).parents[1] / "examples" / "orchard_vl_plugin"


def hunks_of(path: Path, target: str = "0.32.0") -> dict[str, list[Hunk]]:
    report, plan = examine([path], Options(target, write=False))
    plans = {str(file.file.path): file for file in plan.files}
    return {Path(file.path).name: hunks(file, plans[file.path]) for file in report.files if file.changed}


@pytest.fixture(scope="module")
def example() -> dict[str, list[Hunk]]:
    return hunks_of(EXAMPLE)


def test_hunks_say_the_new_text_and_the_old(example):
    for name, found in example.items():
        before = (EXAMPLE / "orchard_vl" / name).read_text(encoding="utf-8").splitlines()
        for hunk in found:
            assert any(not row.same for row in hunk.rows)
            assert all(before[row.before[0] - 1] == row.before[1] for row in hunk.rows if row.before)


def test_every_hunk_names_its_rules(example):
    assert example
    assert all(hunk.codes for found in example.values() for hunk in found)


def test_a_hunk_tells_what_was_done_on_its_lines(example):
    (dispatch,) = (hunk for hunk in example["attention.py"] if "VA201" in hunk.codes)
    assert "the kernel dispatch is one call of self.attn" in "".join(r.message for r in dispatch.rewrites)
    assert all(any(row.before and row.before[0] == r.line for row in dispatch.rows) for r in dispatch.rewrites)


def test_a_new_import_belongs_to_the_rule_that_needs_it(example):
    imports = example["attention.py"][0]
    assert any(row.after and row.after[1].endswith("import MMEncoderAttention") for row in imports.rows)
    assert {"VA202", "VA501", "VA701"} <= set(imports.codes)


def test_a_notebook_is_shown_as_the_text_of_its_cells(tmp_path: Path):
    path = tmp_path / "old.ipynb"
    cells = '[{"cell_type": "code", "source": ["from vllm.attention.layer import MultiHeadAttention\\n", "m = 1"]}]'
    path.write_text('{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": ' + cells + "}", encoding="utf-8")
    for found in hunks_of(path).values():
        for hunk in found:
            assert all("cell_type" not in row.after[1] for row in hunk.rows if row.after)


@pytest.mark.parametrize("name", ["qwen2_5_vl.py", "intern_vit.py", "idefics2_vision_model.py", "mllama4.py"])
def test_every_hunk_of_a_real_file_names_its_rules(model_files: Callable[[str], Path], name: str):
    ((found,),) = (list(hunks_of(model_files("0.12.0") / "model_executor" / "models" / name).values()),)
    assert found
    assert all(hunk.codes for hunk in found)

"""`python -m codemods.what_breaks`: what a release changes for a plugin, by what the plugin uses of vLLM."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from codemods.what_breaks import main

Breaks = Callable[..., str]

MODELS = "vllm.model_executor.models"
ELSE = "What else the port to this release changes, or leaves to a person"


@pytest.fixture
def breaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Breaks:
    """Runs the command over one file, `plugin.py`, which it must leave as it is; gives what it prints."""
    monkeypatch.chdir(tmp_path)

    def run(text: str, target: str = "0.32", code: int = 1) -> str:
        path = tmp_path / "plugin.py"
        path.write_text(dedent(text))
        assert main(["plugin.py", "--target", target]) == code
        assert path.read_text() == dedent(text)
        assert [p.name for p in tmp_path.iterdir()] == ["plugin.py"]
        return capsys.readouterr().out

    return run


def rows(shown: str, title: str) -> list[list[str]]:
    """The cells of a section's table, head and rule left out."""
    section = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", shown, re.M | re.S)
    lines = [line for line in section[1].splitlines() if line.startswith("| ")] if section else []
    return [re.split(r"(?<!\\) \| ", line.strip("| ")) for line in lines[1:]]


def test_what_stays_as_it_was_is_not_listed(breaks: Breaks) -> None:
    shown = breaks(
        f"""\
        from {MODELS}.vision import get_vit_attn_backend
        from vllm.config import VllmConfig

        backend = get_vit_attn_backend(72, None)
        """,
        code=0,
    )
    assert "Nothing, in 1 file, as far as the text of the files tells.\n" in shown
    assert "##" not in shown


def test_imports_say_where_a_name_went(breaks: Breaks) -> None:
    shown = breaks(
        """\
        from vllm.attention.layer import Attention, check_upstream_fa_availability

        kind = Attention
        known = check_upstream_fa_availability
        """
    )
    assert rows(shown, "Imports from vLLM") == [
        [
            "`vllm.attention.layer.check_upstream_fa_availability`",
            "gone since 0.12.0",
            "**breaking**",
            "Take its uses out or replace them; no module of this release defines the name.",
            "`plugin.py:1`",
        ],
        [
            "`vllm.attention.layer.Attention`",
            "moved to vllm.model_executor.layers.attention.Attention (gone here since 0.16.0)",
            "**breaking**",
            "fixed by `vitport` (VA601)",
            "`plugin.py:1`",
        ],
    ]
    assert "2 changes in 1 of 1 file" in shown
    assert "**2 breaking**, 0 only behavioural. `vitport --target 0.32.0` fixes 1, 1 are left to a person." in shown


def test_names_newer_than_the_target_say_since_when_they_are(breaks: Breaks) -> None:
    shown = breaks(
        f"""\
        from {MODELS}.vision import is_vit_use_data_parallel
        from vllm.model_executor.layers.attention import MMEncoderAttention

        kinds = (MMEncoderAttention, is_vit_use_data_parallel)
        """,
        target="0.13",
    )
    assert [row[1] for row in rows(shown, "Imports from vLLM")] == [
        "comes with 0.15.0",
        "is vllm.attention.layers.mm_encoder_attention.MMEncoderAttention in this release",
    ]


def test_calls_show_the_signature_before_and_after(breaks: Breaks) -> None:
    shown = breaks(
        f"""\
        from vllm.attention.layer import check_upstream_fa_availability
        from {MODELS}.qwen2_5_vl import Qwen2_5_VisionPatchMerger

        known = check_upstream_fa_availability
        merger = Qwen2_5_VisionPatchMerger(64, 64, use_data_parallel=False)
        """
    )
    (row,) = rows(shown, "Classes of vLLM that are constructed")
    assert row[0] == f"`{MODELS}.qwen2_5_vl.Qwen2_5_VisionPatchMerger`"
    assert row[1].startswith("was (d_model, context_dim, ")
    assert row[1].endswith("it has no parameter 'use_data_parallel'")
    assert row[2] == "**breaking**"
    assert row[4] == "`plugin.py:5`"


def test_bases_tell_of_methods_that_an_override_no_longer_fits(breaks: Breaks) -> None:
    shown = breaks(
        f"""\
        from vllm.attention.layer import maybe_get_vit_flash_attn_backend
        from {MODELS}.qwen2_5_vl import Qwen2_5_VisionAttention


        class Mine(Qwen2_5_VisionAttention):
            def forward(self, x, cu_seqlens, rotary_pos_emb_cos, rotary_pos_emb_sin, max_seqlen):
                return maybe_get_vit_flash_attn_backend
        """
    )
    (row,) = rows(shown, "Classes of vLLM that are subclassed")
    assert row[0] == "`Qwen2_5_VisionAttention.forward`"
    assert row[1].endswith("rotary_pos_emb_sin, max_seqlen, sequence_lengths)")
    assert row[3].startswith("Let it take what Qwen2_5_VisionAttention.forward takes now: (x, cu_seqlens, ")
    assert (row[2], row[4]) == ("**breaking**", "`plugin.py:6`")


def test_patches_that_change_nothing_are_breaking(breaks: Breaks) -> None:
    shown = breaks(
        f"""\
        from {MODELS} import vision

        setattr(vision, "should_torch_compile_mm_vit", None)
        """
    )
    (row,) = rows(shown, "Patches of vLLM")
    assert "the assignment succeeds and changes nothing" in row[1]
    assert row[2] == "**breaking**"
    assert not rows(shown, ELSE)


def test_one_change_in_several_places_is_one_row(breaks: Breaks) -> None:
    calls = "".join(f"value_{n} = check_upstream_fa_availability(None)\n" for n in range(5))
    shown = breaks(f"from vllm.attention.layer import check_upstream_fa_availability\n\n{calls}")
    (row,) = rows(shown, "Functions of vLLM that are called")
    assert row[4] == "`plugin.py:3`, `plugin.py:4`, `plugin.py:5` and 2 more"


def test_long_tables_are_folded(breaks: Breaks) -> None:
    names = [f"from {MODELS}.nothing_{n} import thing_{n}\n" for n in range(12)]
    shown = breaks("".join(names))
    assert "<details><summary>12 changes</summary>\n\n| what |" in shown
    assert "|\n\n</details>" in shown


def test_what_fits_by_name_and_does_something_else_is_behavioural(breaks: Breaks) -> None:
    """Base and constructor are as they were; what the base promises of its tower is new."""
    shown = breaks(
        f"""\
        from torch import nn
        from {MODELS}.qwen2_5_vl import Qwen2_5_VLForConditionalGeneration


        class Tower(nn.Module):
            def forward(self, pixel_values, grid_thw):
                return pixel_values


        class Model(Qwen2_5_VLForConditionalGeneration):
            def __init__(self, *, vllm_config, prefix=""):
                super().__init__(vllm_config=vllm_config, prefix=prefix)
                self.visual = Tower()
        """
    )
    assert "1 change in 1 of 1 file: **0 breaking**, 1 only behavioural." in shown
    (row,) = rows(shown, ELSE)
    assert row[0] == "`VA643`"
    assert "supports_mm_device_do_normalize" in row[1]
    assert row[2:] == ["behavioural", "fixed by `vitport` (VA643)", "`plugin.py:10`"]


def test_a_method_that_vllm_calls_otherwise_is_breaking(breaks: Breaks) -> None:
    """No name of vLLM's stands there: only the rule knows that vLLM passes one argument less."""
    shown = breaks(
        f"""\
        from torch import nn
        from {MODELS}.interfaces import SupportsMultiModal


        class Model(nn.Module, SupportsMultiModal):
            def compute_logits(self, hidden_states, sampling_metadata):
                return self.head(hidden_states, sampling_metadata)
        """
    )
    (row,) = [row for row in rows(shown, ELSE) if row[0] == "`VA616`"]
    assert row[2] == "**breaking**"


def test_what_only_tidies_up_is_no_change(breaks: Breaks) -> None:
    shown = breaks(
        """\
        import vllm
        from packaging.version import Version

        if Version(vllm.__version__) >= Version("0.12"):
            size = 1
        else:
            size = 2
        """,
        code=0,
    )
    assert "Nothing, in 1 file, " in shown
    assert "`vitport --target 0.32.0` would only tidy up 1 file." in shown


def test_the_example_plugin_has_a_change_in_every_file_that_the_port_changes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(Path(__file__).parents[1])
    assert main(["examples/orchard_vl_plugin", "--target", "0.32"]) == 1
    assert " in 3 of 5 files, " in capsys.readouterr().out


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "good.py").write_text("import vllm\n")
    (tmp_path / "bad.py").write_text("import vllm\ndef broken(:\n")
    assert main([str(tmp_path), "--target", "0.32"]) == 2
    shown = capsys.readouterr().out
    assert "Nothing, in 1 file, " in shown
    assert re.search(r"^## Not read\n\n- .*bad.py:2: cannot be parsed", shown, re.M)


@pytest.mark.parametrize("content", [None, "import vllm\ndef broken(:\n"])
def test_nothing_that_could_be_read_is_one_line(
    content: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plugin.py"
    if content is not None:
        path.write_text(content)
    assert main([str(path), "--target", "0.32"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert err.startswith(f"error: {path}:")


def test_a_file_that_nothing_reaches_is_named(
    breaks: Breaks, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin = tmp_path / "plugin"
    plugin.mkdir()
    (plugin / "pyproject.toml").write_text('[project.entry-points."vllm.general_plugins"]\na = "orchard:register"\n')
    (plugin / "dead.py").write_text("from vllm.attention.layer import Attention\n\n\nclass Mine(Attention): ...\n")
    assert main(["plugin", "--target", "0.32"]) == 1
    assert "No registry or entry point of the plugin reaches `plugin/dead.py`." in capsys.readouterr().out


def test_places_in_a_notebook_are_lines_of_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    notebook = new_notebook(
        ["x = 1\n", "from vllm.attention.layer import check_upstream_fa_availability as c\n\nc(x)\n"]
    )
    (tmp_path / "look.ipynb").write_text(notebook)
    assert main([str(tmp_path), "--target", "0.32"]) == 1
    shown = capsys.readouterr().out
    assert rows(shown, "Imports from vLLM")[0][4].endswith("look.ipynb: cell 2, line 1`")
    assert rows(shown, "Functions of vLLM that are called")[0][4].endswith("look.ipynb: cell 2, line 3`")
    assert not rows(shown, ELSE)


def new_notebook(cells: list[str]) -> str:
    code = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
    return json.dumps(
        {"cells": [{**code, "source": cell} for cell in cells], "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    )


def test_bad_usage_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["plugin.py", "--target", "0.1"])
    assert ended.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1

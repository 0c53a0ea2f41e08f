"""One text for several vLLM releases: imports that all have, or guarded ones; else the file as it was, and why."""

from __future__ import annotations

import ast
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from codemods import vllm_api
from codemods.findings import FileReport, Severity
from codemods.migrate import main
from codemods.run import Options, migrate
from codemods.vllm_api import Api
from tests import wheels

Port = Callable[..., tuple[str, FileReport]]


@pytest.fixture
def port(tmp_path: Path) -> Port:
    """Ports one file to several targets, and gives its text afterwards and what is said of it."""

    def run(text: str, *targets: str, name: str = "model.py") -> tuple[str, FileReport]:
        path = tmp_path / name
        path.write_text(dedent(text))
        *also, target = map(vllm_api.resolve, targets or ("0.14", "0.32"))
        (report,) = migrate([path], Options(target=target, also=tuple(also))).files
        assert report.error is None
        return path.read_text(), report

    return run


TEXTS = {
    "a place that all have": (
        """\
        from torch import nn
        from vllm.attention.layer import MultiHeadAttention


        class Encoder(nn.Module):
            def __init__(self, heads: int, size: int) -> None:
                super().__init__()
                self.qkv = nn.Linear(heads * size, 3 * heads * size)
                self.attn = MultiHeadAttention(heads, size, size**-0.5)

            def forward(self, x):
                q, k, v = self.qkv(x).chunk(3, dim=-1)
                return self.attn(q, k, v)
        """,
        """\
        from torch import nn
        from vllm.model_executor.layers.attention.mm_encoder_attention import MMEncoderAttention


        class Encoder(nn.Module):
            def __init__(self, heads: int, size: int) -> None:
                super().__init__()
                self.qkv = nn.Linear(heads * size, 3 * heads * size)
                self.attn = MMEncoderAttention(heads, size, size**-0.5)

            def forward(self, x):
                q, k, v = self.qkv(x).chunk(3, dim=-1)
                return self.attn(q, k, v)
        """,
    ),
    "no such place": (
        """\
        import torch
        from vllm.attention.layer import Attention
        from vllm.attention.layer import MLAAttention as Latent
        from vllm.config import VllmConfig

        kinds = (Attention, Latent)
        """,
        """\
        import torch
        from vllm.config import VllmConfig

        try:
            from vllm.model_executor.layers.attention import Attention, MLAAttention as Latent
        except ImportError:
            from vllm.attention.layer import Attention, MLAAttention as Latent

        kinds = (Attention, Latent)
        """,
    ),
    "a type that was renamed": (
        """\
        from vllm.config import VllmConfig
        from vllm.multimodal.inputs import MultiModalInputs


        def prompt(inputs: MultiModalInputs) -> str:
            return inputs["prompt"]
        """,
        """\
        from vllm.config import VllmConfig

        try:
            from vllm.inputs import MultiModalInput
        except ImportError:
            from vllm.multimodal.inputs import MultiModalInputs as MultiModalInput


        def prompt(inputs: MultiModalInput) -> str:
            return inputs["prompt"]
        """,
    ),
    "a function that was renamed": (
        """\
        from vllm.config import VllmConfig
        from vllm.model_executor.models.vision import should_torch_compile_mm_vit

        compiled = should_torch_compile_mm_vit
        """,
        """\
        from vllm.config import VllmConfig

        try:
            from vllm.compilation.decorators import should_torch_compile_mm_encoder
        except ImportError:
            from vllm.model_executor.models.vision import (
                should_torch_compile_mm_vit as should_torch_compile_mm_encoder,
            )

        compiled = should_torch_compile_mm_encoder
        """,
    ),
    "an import in a function": (
        """\
        def kind():
            from vllm.attention.layer import Attention

            return Attention
        """,
        """\
        def kind():
            try:
                from vllm.model_executor.layers.attention import Attention
            except ImportError:
                from vllm.attention.layer import Attention

            return Attention
        """,
    ),
    "guards as the file has them": (
        """\
        from plugin.utils import vllm_version_is
        from vllm.attention.layer import Attention
        from vllm.config import VllmConfig

        size = 1 if vllm_version_is("0.12.0") else 2
        half = 3 if vllm_version_is("0.14.1") else 4
        kind = Attention
        """,
        """\
        from plugin.utils import vllm_version_is
        from vllm.config import VllmConfig

        if vllm_version_is("0.14.1"):
            from vllm.attention.layer import Attention
        else:
            from vllm.model_executor.layers.attention import Attention

        size = 2
        half = 3 if vllm_version_is("0.14.1") else 4
        kind = Attention
        """,
    ),
    "a guard that tells the targets apart": (
        """\
        import vllm
        from packaging.version import Version

        if Version(vllm.__version__) >= Version("0.20"):
            from vllm.model_executor.layers.attention import Attention
            from vllm.model_executor.models.vision import is_vit_use_data_parallel as parallel
        else:
            from vllm.attention import Attention

            def parallel():
                return False
        """,
        """\
        import vllm
        from packaging.version import Version

        if Version(vllm.__version__) >= Version("0.20"):
            from vllm.model_executor.layers.attention import Attention
            from vllm.model_executor.models.vision import is_vit_use_data_parallel as parallel
        else:
            from vllm.attention.layer import Attention

            def parallel():
                return False
        """,
    ),
    "a guard that does not": (
        """\
        try:
            from vllm.attention.backends.registry import AttentionBackendEnum
        except ImportError:
            from vllm.platforms import _Backend as AttentionBackendEnum

        flash = AttentionBackendEnum.FLASH_ATTN
        """,
        """\
        from vllm.v1.attention.backends.registry import AttentionBackendEnum

        flash = AttentionBackendEnum.FLASH_ATTN
        """,
    ),
}


@pytest.mark.parametrize(("before", "after"), TEXTS.values(), ids=TEXTS)
class TestOneText:
    def test_serves_both(self, before: str, after: str, port: Port) -> None:
        text, report = port(before)
        assert text == dedent(after)
        assert report.findings == ()

    def test_changes_once(self, before: str, after: str, port: Port) -> None:
        text, report = port(after)
        assert text == dedent(after)
        assert not report.changed

    def test_imports_what_each_release_has(self, before: str, after: str, port: Port) -> None:
        """Read arm by arm: each name comes from a place that the release has."""
        text, _ = port(before)
        for release in ("0.14.1", "0.32.0"):
            alone, report = port(text, release)
            assert report.findings == ()
            imported = [
                (node.module, alias.name)
                for node in ast.walk(ast.parse(alone))
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vllm.")
                for alias in node.names
            ]
            assert [pair for pair in imported if Api.of(release).has(*pair) is False] == []

    @pytest.mark.vllm
    def test_is_imported_by_a_real_vllm(self, before: str, after: str, port: Port, vllm_python: Path, tmp_path) -> None:
        port(before)
        (tmp_path / "plugin").mkdir()
        (tmp_path / "plugin" / "__init__.py").touch()
        helper = "import vllm\n\n\ndef vllm_version_is(text):\n    return vllm.__version__.split('+')[0] == text\n"
        (tmp_path / "plugin" / "utils.py").write_text(helper)
        done = subprocess.run(
            [str(vllm_python), "-c", "import model"],
            cwd=tmp_path,
            env={**os.environ, **wheels.VLLM_ENVIRONMENT, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def test_three_targets_are_tried_from_the_newest_on(port: Port) -> None:
    text, _ = port("from vllm.attention import Attention\n\nkind = Attention\n", "0.13", "0.15", "0.32")
    assert "from vllm.model_executor.layers.attention import Attention\n" in text
    for release in ("0.13.0", "0.15.1", "0.32.0"):
        alone, report = port(text, release)
        assert report.findings == ()
        (line,) = (line for line in alone.splitlines() if line.startswith("from vllm"))
        assert Api.of(release).has(line.split()[1], "Attention")


def test_what_only_one_of_them_has_is_told_for_the_other(port: Port) -> None:
    before = "from vllm.model_executor.models.vision import is_vit_use_data_parallel\n"
    text, report = port(before)
    assert text == before
    (finding,) = report.findings
    assert finding.severity is Severity.ERROR
    assert finding.message.startswith("for vLLM 0.14.1: vllm.model_executor.models.vision.is_vit_use_data_parallel")
    assert "came with 0.15.0" in finding.message


def test_what_one_text_cannot_serve_is_left_and_told(port: Port) -> None:
    """vLLM 0.13 has both layers, but the new one does not take there what the old one takes."""
    before, _ = TEXTS["a place that all have"]
    text, report = port(before, "0.13", "0.32")
    assert text == dedent(before)
    told = [f.message for f in report.findings if f.code == "VA900"]
    assert len(told) == 1
    assert told[0].startswith("the file is left as it is: one text cannot serve vLLM 0.13.0 and 0.32.0: ")


OVERRIDE = """\
    import torch
    from torch import nn
    from vllm.attention.backends.registry import AttentionBackendEnum
    from vllm.config import VllmConfig
    from vllm.model_executor.models.vision import get_vit_attn_backend


    class Tower(nn.Module):
        def __init__(self, head_size: int, attn_backend_override: AttentionBackendEnum | None = None) -> None:
            super().__init__()
            self.attn_backend = get_vit_attn_backend(
                head_size=head_size,
                dtype=torch.get_default_dtype(),
                attn_backend_override=attn_backend_override,
            )
    """


def test_a_text_that_leaves_something_out_for_the_older_one_is_told(port: Port) -> None:
    text, report = port(OVERRIDE)
    if report.changed:
        assert "attn_backend_override" not in text
        assert [(f.severity, "vLLM 0.14.1 gets what fits 0.32.0" in f.message) for f in report.findings] == [
            (Severity.WARNING, True)
        ]


def test_one_bad_file_does_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(dedent(TEXTS["a place that all have"][0]))
    (tmp_path / "good.py").write_text("from vllm.attention.layer import Attention\n\nkind = Attention\n")
    reports = migrate([tmp_path], Options(target="0.32.0", also=("0.13.0",))).files
    assert [report.changed for report in reports] == [False, True]


def test_a_notebook_serves_both(port: Port) -> None:
    import json

    cell = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    cells = [
        {**cell, "source": ["from vllm.attention.layer import Attention\n", "%matplotlib inline"]},
        {**cell, "source": ["kind = Attention"]},
    ]
    text, _ = port(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}), name="a.ipynb")
    first, second = ("".join(c["source"]) for c in json.loads(text)["cells"])
    assert "except ImportError:\n    from vllm.attention.layer import Attention" in first
    assert first.endswith("%matplotlib inline")
    assert second == "kind = Attention"


def test_the_command_takes_targets_in_any_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.py"
    path.write_text("from vllm.attention.layer import Attention\n\nkind = Attention\n")
    assert main([str(path), "--target", "0.32", "--target", "0.14"]) == 0
    assert "target vLLM 0.14.1 and 0.32.0 (as given)" in capsys.readouterr().out
    assert "except ImportError:\n    from vllm.attention.layer import Attention\n" in path.read_text()

"""VA660 and VA661: patches of vLLM are found in whatever form they are written, judged against the target, and left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from codemods import vllm_api
from codemods.findings import Finding, Severity
from codemods.run import Options, migrate

Port = Callable[..., tuple[str, list[Finding]]]

MODELS = "vllm.model_executor.models"
OP = '@CustomOp.register_oot(name="MMEncoderAttention")'


@pytest.fixture
def port(tmp_path: Path) -> Port:
    """Ports `plugin.py`, and what lies beside it; gives its text afterwards and its findings."""

    def run(text: str, target: str = "0.32", **others: str) -> tuple[str, list[Finding]]:
        for name, content in {**others, "plugin": text}.items():
            (tmp_path / f"{name}.py").write_text(dedent(content))
        reports = migrate([tmp_path], Options(target=vllm_api.resolve(target))).files
        (report,) = (report for report in reports if report.path.endswith("plugin.py"))
        assert report.error is None
        return (tmp_path / "plugin.py").read_text(), list(report.findings)

    return run


def told(found: list[Finding]) -> list[tuple[str, Severity]]:
    return [(finding.code, finding.severity) for finding in found]


# -- forms -----------------------------------------------------------------------------------------------------------

# Each puts something in the place of should_torch_compile_mm_vit, which vision had up to 0.17.
FORMS = {
    "an attribute of a module": f"""\
        import {MODELS}.vision as vision
        vision.should_torch_compile_mm_vit = None
        """,
    "a dotted name": f"""\
        import {MODELS}.vision
        {MODELS}.vision.should_torch_compile_mm_vit = None
        """,
    "a module taken from its package": f"""\
        from {MODELS} import vision
        vision.should_torch_compile_mm_vit = None
        """,
    "inside a function": f"""\
        def register():
            from {MODELS} import vision
            vision.should_torch_compile_mm_vit = None
        """,
    "setattr": f"""\
        from {MODELS} import vision
        setattr(vision, "should_torch_compile_mm_vit", None)
        """,
    "the module's dictionary": f"""\
        from {MODELS} import vision
        vision.__dict__["should_torch_compile_mm_vit"] = None
        """,
    "a module by its name": f"""\
        import importlib
        vision = importlib.import_module("{MODELS}.vision")
        vision.should_torch_compile_mm_vit = None
        """,
    "a module by parts of its name": f"""\
        from importlib import import_module
        PACKAGE = "{MODELS}"
        import_module(PACKAGE + ".vision").should_torch_compile_mm_vit = None
        import_module(f"{{PACKAGE}}.nothing")
        """,
    "a loaded module": f"""\
        import sys
        sys.modules["{MODELS}.vision"].should_torch_compile_mm_vit = None
        """,
    "a module by getattr": f"""\
        import {MODELS} as models
        setattr(getattr(models, "vision"), "should_torch_compile_mm_vit", None)
        """,
    "a loop over a table": f"""\
        import importlib
        TABLE = [("{MODELS}.vision", "should_torch_compile_mm_vit", None)]
        for module, name, new in TABLE:
            setattr(importlib.import_module(module), name, new)
        """,
    "a loop over a dictionary": f"""\
        from {MODELS} import vision
        for name, new in {{"should_torch_compile_mm_vit": None}}.items():
            setattr(vision, name, new)
        """,
    "a helper": f"""\
        from {MODELS} import vision


        def replace(where, name, new):
            setattr(where, name, new)


        replace(vision, "should_torch_compile_mm_vit", None)
        """,
    "a helper that is a decorator": f"""\
        from {MODELS} import vision


        def replaces(where, name):
            def register(function):
                setattr(where, name, function)
                return function

            return register


        @replaces(vision, "should_torch_compile_mm_vit")
        def mine(vllm_config): ...
        """,
}

# These fail where they are made, not in silence.
LOUD = {
    "mock.patch": f"""\
        from unittest import mock
        with mock.patch("{MODELS}.vision.should_torch_compile_mm_vit"):
            ...
        """,
    "mock.patch as a decorator": f"""\
        from unittest.mock import patch
        @patch("{MODELS}.vision.should_torch_compile_mm_vit", return_value=False)
        def test(compiles): ...
        """,
    "mock.patch.object": f"""\
        from unittest import mock
        from {MODELS} import vision
        mock.patch.object(vision, "should_torch_compile_mm_vit").start()
        """,
    "mock.patch.multiple": f"""\
        from unittest import mock
        mock.patch.multiple("{MODELS}.vision", should_torch_compile_mm_vit=None).start()
        """,
    "monkeypatch by a text": f"""\
        def test(monkeypatch):
            monkeypatch.setattr("{MODELS}.vision.should_torch_compile_mm_vit", None)
        """,
    "monkeypatch of an object": f"""\
        from {MODELS} import vision
        def test(monkeypatch):
            monkeypatch.setattr(vision, "should_torch_compile_mm_vit", None)
        """,
    "mocker": f"""\
        def test(mocker):
            mocker.patch("{MODELS}.vision.should_torch_compile_mm_vit")
        """,
    "del": f"""\
        from {MODELS} import vision
        del vision.should_torch_compile_mm_vit
        """,
}


def gone(found: list[Finding]) -> Finding:
    (finding,) = (f for f in found if "should_torch_compile_mm_vit is patched here" in f.message)
    assert finding.severity is Severity.ERROR
    assert "is not in vLLM 0.32.0 since 0.18.0" in finding.message
    assert "vllm.compilation.decorators.should_torch_compile_mm_encoder" in finding.remedy
    return finding


class TestForm:
    @pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
    def test_that_would_change_nothing_is_an_error(self, text: str, port: Port) -> None:
        after, found = port(text)
        assert gone(found).message.endswith("the assignment succeeds and changes nothing")
        assert after == dedent(text)

    @pytest.mark.parametrize("text", LOUD.values(), ids=LOUD)
    def test_that_raises_is_an_error(self, text: str, port: Port) -> None:
        after, found = port(text)
        assert gone(found).message.endswith("the patch fails where it is made")
        assert after == dedent(text)

    @pytest.mark.parametrize("text", [*FORMS.values(), *LOUD.values()], ids=[*FORMS, *LOUD])
    def test_whose_place_is_there_is_a_note(self, text: str, port: Port) -> None:
        _, found = port(text, target="0.17")
        assert {finding.severity for finding in found} == {Severity.NOTE}
        assert any("should_torch_compile_mm_vit(vllm_config) is patched here" in f.message for f in found)

    def test_is_told_once_for_each_turn_of_a_loop(self, port: Port) -> None:
        _, found = port(
            f"""\
            from {MODELS}.qwen2_vl import Qwen2VisionAttention, Qwen2VisionBlock
            for cls in (Qwen2VisionAttention, Qwen2VisionBlock):
                cls.forward = None
            """
        )
        assert [finding.message.partition("(")[0] for finding in found] == [
            "Qwen2VisionAttention.forward",
            "Qwen2VisionBlock.forward",
        ]

    def test_is_told_where_a_helper_of_another_file_is_called(self, port: Port) -> None:
        _, found = port(
            f"""\
            from {MODELS} import vision
            from .helpers import replace

            replace(vision, "should_torch_compile_mm_vit", None)
            """,
            helpers='"""Patches of vllm."""\n\n\ndef replace(where, name, new):\n    setattr(where, name, new)\n',
        )
        assert gone(found).line == 4


DECOYS = {
    "an object of its own": f"""\
        from {MODELS} import vision

        class Holder: ...

        holder = Holder()
        holder.get_vit_attn_backend = vision.get_vit_attn_backend
        setattr(holder, "backend", vision)
        """,
    "another library": """\
        import transformers
        import vllm.envs
        transformers.modeling_utils.attention = None
        """,
    "a name that something else shadows": f"""\
        from {MODELS} import vision

        def register(vision):
            vision.should_torch_compile_mm_vit = None
        """,
    "an instance": f"""\
        from {MODELS}.qwen2_vl import Qwen2VisionAttention

        def build(heads):
            attention = Qwen2VisionAttention(64, heads, 64)
            attention.forward = None
            return attention
        """,
    "a call named patch": f"""\
        def patch(text): ...

        patch("{MODELS}.vision.should_torch_compile_mm_vit")
        """,
    "what is counted on": """\
        from vllm.compilation.counter import compilation_counter
        compilation_counter.num_models_seen += 1
        """,
    "a value that an object of vLLM's holds": """\
        from vllm.compilation.counter import compilation_counter
        compilation_counter.num_models_seen = 0
        """,
    "a loaded module that is only looked at": f"""\
        import sys
        vision = sys.modules.get("{MODELS}.vision")
        sys.modules["orchard.vision"] = vision
        """,
    "a file of its own": """\
        from pathlib import Path
        import vllm
        Path(__file__).write_text("vllm/attention/layer.py")
        print(Path(vllm.__file__).read_text())
        """,
    "a finder of its own modules": """\
        class Finder:
            def find_spec(self, name, path, target=None):
                return None if name == "orchard.vision" else None
        """,
    "a text": '''\
        """vllm.attention.layer.MultiHeadAttention = Mine"""
        # setattr(vllm.attention.layer, "MultiHeadAttention", Mine)
        HELP = "vllm.attention.layer.MultiHeadAttention = Mine"
        ''',
}


@pytest.mark.parametrize("text", DECOYS.values(), ids=DECOYS)
def test_what_patches_nothing_of_vllm_is_not_spoken_of(text: str, port: Port) -> None:
    assert port(text) == (dedent(text), [])


# -- verdicts --------------------------------------------------------------------------------------------------------

ATTENTION = f"from {MODELS}.qwen2_5_vl import Qwen2_5_VisionAttention\n"
ARGUMENTS = "x, cu_seqlens, rotary_pos_emb_cos, rotary_pos_emb_sin, max_seqlen, sequence_lengths"

# What is put in the place of the attention's forward, and what is wrong with it; "" where nothing is.
REPLACEMENTS = {
    "the same parameters": (f"def mine(self, {ARGUMENTS}): ...\n", ""),
    "more that nobody has to give": (f"def mine(self, {ARGUMENTS}, scale=None): ...\n", ""),
    "whatever comes": ("def mine(self, *args, **kwargs): ...\n", ""),
    "a lambda": (f"mine = lambda self, {ARGUMENTS}: x\n", ""),
    "a method": (
        f"class Mine:\n    def forward(self, {ARGUMENTS}): ...\n\n\nmine = Mine.forward\n",
        "",
    ),
    "one that is missing": (
        f"def mine(self, {ARGUMENTS.removesuffix(', sequence_lengths')}): ...\n",
        "it takes no sequence_lengths",
    ),
    "one too many": (f"def mine(self, {ARGUMENTS}, seqlens): ...\n", "it needs seqlens"),
    "those of an earlier release": (
        "def mine(self, x, cu_seqlens, rotary_pos_emb, max_seqlen, seqlens): ...\n",
        "it takes no rotary_pos_emb_sin, sequence_lengths; it needs seqlens; "
        "rotary_pos_emb_cos is called rotary_pos_emb",
    ),
    "under a decorator that keeps them": (
        "import torch\n\n\n@torch.inference_mode()\ndef mine(self, x): ...\n",
        "it takes no cu_seqlens, rotary_pos_emb_cos, rotary_pos_emb_sin, max_seqlen, sequence_lengths",
    ),
    "under a decorator that may change them": (
        "from orchard import adapted\n\n\n@adapted\ndef mine(self, x): ...\n",
        "",
    ),
}


class TestReplacement:
    @pytest.mark.parametrize(("text", "wrong"), REPLACEMENTS.values(), ids=REPLACEMENTS)
    def test_is_called_like_what_it_replaces(self, text: str, wrong: str, port: Port) -> None:
        _, found = port(f"{ATTENTION}\n\n{text}\n\nQwen2_5_VisionAttention.forward = mine\n")
        (finding,) = found
        assert f"Qwen2_5_VisionAttention.forward({ARGUMENTS})" in finding.message
        assert OP in finding.remedy
        if wrong:
            assert finding.severity is Severity.ERROR
            assert finding.message.endswith(f"cannot be called like it: {wrong}")
        else:
            assert finding.severity is Severity.NOTE

    def test_that_only_some_calls_fit_is_a_warning(self, port: Port) -> None:
        _, (finding,) = port(f"{ATTENTION}\n\nQwen2_5_VisionAttention.forward = lambda self, y, *rest, **words: y\n")
        assert finding.severity is Severity.WARNING
        assert finding.message.endswith("some calls of that would fail: x is called y")

    def test_that_reads_what_nothing_passes_any_more_is_a_warning(self, port: Port) -> None:
        """`multimodal_config` came from vLLM's own block in 0.13: now it is always None."""
        mine = f"""\
            from {MODELS}.qwen2_5_vl import Qwen2_5_VisionMLP
            from vllm.attention.layer import maybe_get_vit_flash_attn_backend

            KERNEL = maybe_get_vit_flash_attn_backend


            class Mine:
                def __init__(
                    self, in_features, hidden_features, bias=False, act_fn=None, quant_config=None, prefix="",
                    multimodal_config=None,
                ):
                    self.whole = multimodal_config


            Qwen2_5_VisionMLP.__init__ = Mine.__init__
            """
        (finding,) = (f for f in port(mine)[1] if f.code == "VA660")
        assert finding.severity is Severity.WARNING
        assert finding.message.endswith("of vLLM 0.32.0; nothing passes multimodal_config to it any more")
        assert "get_current_vllm_config()" in finding.remedy
        (finding,) = (f for f in port(mine.replace("= multimodal_config", "= None"))[1] if f.code == "VA660")
        assert finding.severity is Severity.NOTE  # nothing reads it

    def test_is_judged_by_the_names_that_its_parameters_get(self, port: Port) -> None:
        mine = f"""\
            import torch
            from vllm.attention.backends.registry import AttentionBackendEnum
            from {MODELS}.qwen3_vl import Qwen3_VisionTransformer
            from {MODELS}.vision import get_vit_attn_backend


            class Mine(torch.nn.Module):
                def __init__(
                    self,
                    vision_config,
                    norm_eps=1e-6,
                    quant_config=None,
                    attn_backend_override: AttentionBackendEnum | None = None,
                    prefix="",
                ):
                    self.attn_backend = get_vit_attn_backend(
                        head_size=64,
                        dtype=torch.get_default_dtype(),
                        attn_backend_override=attn_backend_override,
                    )


            Qwen3_VisionTransformer.__init__ = Mine.__init__
            """
        text, found = port(mine, "0.14")
        assert "multimodal_config" in text
        assert [f.severity for f in found if f.code == "VA660"] == [Severity.NOTE]

    def test_that_is_a_class_is_built_and_called_like_it(self, port: Port) -> None:
        mine = """\
            from vllm.model_executor.models import qwen2_5_vl
            from torch import nn


            class Mine(nn.Module):
                def __init__(self, embed_dim, num_heads, projection_size, quant_config=None, prefix=""): ...

                def forward(self, x, cu_seqlens): ...


            qwen2_5_vl.Qwen2_5_VisionAttention = Mine
            """
        _, (finding,) = port(mine)
        assert finding.severity is Severity.ERROR
        assert finding.message.startswith("Mine.forward is put in place of Qwen2_5_VisionAttention.forward(")
        _, (finding,) = port(mine.replace("projection_size", "width"))
        assert finding.message.startswith("Mine is put in place of Qwen2_5_VisionAttention(embed_dim, ")
        assert finding.severity is Severity.WARNING

    def test_that_is_a_static_method_gets_no_self(self, port: Port) -> None:
        text = f"""\
            from {MODELS}.qwen2_5_vl import Qwen2_5_VisionAttention


            def mine({ARGUMENTS}): ...


            Qwen2_5_VisionAttention.forward = staticmethod(mine)
            """
        _, (finding,) = port(text)
        assert finding.severity is Severity.NOTE

    def test_that_is_not_seen_is_a_warning_where_the_signature_changed(self, port: Port) -> None:
        text = f"""\
            from vllm.attention.layer import maybe_get_vit_flash_attn_backend
            from {MODELS}.qwen2_5_vl import Qwen2_5_VisionAttention
            from orchard import mine

            Qwen2_5_VisionAttention.forward = mine
            """
        _, found = port(text)
        (finding,) = (finding for finding in found if finding.code == "VA660")
        assert finding.severity is Severity.WARNING
        assert finding.message.endswith(
            "in vLLM 0.13.0 it was (x, cu_seqlens, rotary_pos_emb_cos, rotary_pos_emb_sin, max_seqlen)"
        )


class TestReach:
    def test_names_who_keeps_the_original(self, port: Port) -> None:
        _, (finding,) = port(f"from {MODELS} import qwen2_vl\nqwen2_vl.Qwen2VisionAttention = None\n")
        assert finding.severity is Severity.NOTE
        assert finding.message.endswith(f"{MODELS}.dots_ocr imports it by name and may keep the original")

    def test_names_no_one_where_the_class_itself_is_changed(self, port: Port) -> None:
        _, (finding,) = port(
            f"from {MODELS}.qwen2_vl import Qwen2VisionAttention as A\nA.split_qkv = None\n", target="0.14"
        )
        assert "keep the original" not in finding.message


class TestModule:
    def test_that_is_gone_is_never_imported(self, port: Port) -> None:
        _, (finding,) = port('import sys\nimport orchard\n\nsys.modules["vllm.attention.layer"] = orchard\n')
        assert finding.severity is Severity.ERROR
        assert finding.message.endswith("nothing imports it, so what is put there is never used")
        assert "vllm.model_executor.layers.attention.attention" in finding.remedy

    @pytest.mark.parametrize(
        "text",
        [
            'sys.modules.setdefault("vllm.attention.layer", orchard)',
            'sys.modules.update({"vllm.attention.layer": orchard})',
            'mock.patch.dict(sys.modules, {"vllm.attention.layer": orchard}).start()',
            'mock.patch.dict("sys.modules", {"vllm.attention.layer": orchard}).start()',
        ],
    )
    def test_is_found_in_other_forms(self, text: str, port: Port) -> None:
        _, (finding,) = port(f"import sys\nfrom unittest import mock\n\nimport orchard\n\n{text}\n")
        assert finding.message.startswith("vllm.attention.layer is patched here and is not in vLLM 0.32.0 since 0.16.0")

    def test_must_have_what_vllm_imports_from_it(self, port: Port) -> None:
        text = f'import sys\nfrom . import mine\n\nsys.modules["{MODELS}.vision"] = mine\n'
        _, (finding,) = port(text, mine="def get_vit_attn_backend(head_size, dtype): ...\n")
        assert finding.severity is Severity.ERROR
        assert "mine has no " in finding.message
        assert "is_vit_use_data_parallel" in finding.remedy
        assert "get_vit_attn_backend" not in finding.remedy

    def test_that_answers_for_any_name_is_a_note(self, port: Port) -> None:
        text = f'import sys\nfrom . import mine\n\nsys.modules["{MODELS}.vision"] = mine\n'
        _, (finding,) = port(text, mine="from vllm.model_executor.models.qwen2_vl import *\n")
        assert finding.severity is Severity.NOTE


class TestImport:
    def test_that_serves_a_patch_follows_its_name(self, port: Port) -> None:
        after, (finding,) = port(
            """\
            import torch
            from vllm.attention.layer import Attention

            Attention.forward = lambda self, *args, **words: torch.zeros(1)
            """
        )
        assert after.splitlines()[1:] == [
            "from vllm.model_executor.layers.attention import Attention",
            "",
            "Attention.forward = lambda self, *args, **words: torch.zeros(1)",
        ]
        assert (finding.severity, finding.line) == (Severity.NOTE, 4)

    @pytest.mark.parametrize(
        "text",
        [
            "import vllm.attention.layer as layer\n\nlayer.Attention.forward = None\n",
            "import vllm.attention.layer as layer\n\nlayer.MultiHeadAttention = None\n",
            "from vllm.attention.layer import MultiHeadAttention\n\nMultiHeadAttention.forward = None\n",
            "from vllm.attention.layer import check_upstream_fa_availability as check\n\ncheck.answer = None\n",
        ],
    )
    def test_that_fails_is_told_of_by_the_patch_alone(self, text: str, port: Port) -> None:
        after, found = port(text)
        assert after == text
        assert told(found) == [("VA660", Severity.ERROR)]
        assert found[0].line == 3
        assert found[0].message.endswith("the import in line 1 fails")

    def test_of_an_enum_that_moved_stays_where_its_member_is_patched(self, port: Port) -> None:
        text = 'import vllm.attention.backends.registry as r\n\nsetattr(r.AttentionBackendEnum, "XFORMERS", 3)\n'
        after, found = port(text)
        assert after == text
        assert told(found) == [("VA660", Severity.ERROR)]


class TestFormer:
    """A name that its module lost when it moved: only the old place ever had it."""

    TEXT = """\
        import vllm.model_executor.layers.attention.mm_encoder_attention as attention

        attention.{name} = lambda backend: None
        """

    def test_is_an_error(self, port: Port) -> None:
        _, (finding,) = port(self.TEXT.format(name="maybe_get_vit_flash_attn_backend"))
        assert finding.severity is Severity.ERROR
        assert "vllm.attention.layers.mm_encoder_attention up to 0.13.0: nothing reads it now" in finding.message
        assert OP in finding.remedy

    def test_is_not_what_no_vllm_ever_had(self, port: Port) -> None:
        _, (finding,) = port(self.TEXT.format(name="_made_by_us"))
        assert finding.severity is Severity.NOTE


def test_a_patch_through_a_name_of_two_imports_is_judged_by_the_last(port: Port) -> None:
    text = """\
        try:
            import vllm.attention.layer as layer
        except ImportError:
            import vllm.model_executor.layers.attention.attention as layer

        layer.Attention = None
        """
    _, found = port(text)
    assert [f.severity for f in found if f.code == "VA660"] == [Severity.NOTE]


def test_a_platform_is_patched_through_the_object_that_stands_for_it(port: Port) -> None:
    _, (finding,) = port(
        """\
        from vllm.platforms import current_platform


        def backend(cls, head_size): ...


        current_platform.get_vit_attn_backend = classmethod(backend)
        """
    )
    assert finding.severity is Severity.ERROR
    assert "Platform.get_vit_attn_backend(head_size, dtype, backend=...)" in finding.message


# -- hooks and files ---------------------------------------------------------------------------------------------------

GONE_HOOKS = {
    "a finder": """\
        import sys

        class Finder:
            def find_spec(self, name, path, target=None):
                if name == "vllm.attention.layer":
                    return object()

        sys.meta_path.insert(0, Finder())
        """,
    "a finder with a table": """\
        TABLE = {"vllm.attention.layer": "orchard.layer"}

        class Finder:
            def find_spec(self, name, path, target=None):
                return TABLE.get(name)
        """,
    "a finder that is given its table": """\
        class Finder:
            def __init__(self, table):
                self.table = table

            def find_module(self, name, path=None):
                return self.table.get(name)

        finder = Finder({"vllm.attention.layer": "orchard.layer"})
        """,
    "a function in place of import": """\
        import builtins
        before = builtins.__import__

        def load(name, *rest):
            return None if name.startswith("vllm.attention.layer") else before(name, *rest)

        builtins.__import__ = load
        """,
    "a hook of another library": """\
        import wrapt

        @wrapt.when_imported("vllm.attention.layer")
        def patch(module): ...
        """,
}

GONE_FILES = {
    "a path from vLLM's own": """\
        from pathlib import Path
        import vllm
        path = Path(vllm.__file__).parent / "attention" / "layer.py"
        path.write_text(path.read_text().replace("a", "b"))
        """,
    "an opened file": """\
        import os
        import vllm

        def fix(path):
            with open(path, "r+") as file:
                file.write("")

        fix(os.path.join(os.path.dirname(vllm.__file__), "attention/layer.py"))
        """,
    "the place of a module": """\
        import shutil
        from importlib.util import find_spec
        shutil.copy("mine.py", find_spec("vllm").submodule_search_locations[0] + "/attention/layer.py")
        """,
    "the folder of packages": """\
        import site
        from pathlib import Path
        Path(site.getsitepackages()[0], "vllm", "attention", "layer.py").write_text("")
        """,
    "a tool": """\
        import os
        import subprocess
        import vllm
        root = os.path.dirname(vllm.__file__)
        subprocess.run(["sed", "-i", "s/a/b/", f"{root}/attention/layer.py"])
        """,
}


class TestSource:
    @pytest.mark.parametrize("text", GONE_HOOKS.values(), ids=GONE_HOOKS)
    def test_a_hook_for_a_module_that_is_gone_never_acts(self, text: str, port: Port) -> None:
        after, (finding,) = port(text)
        assert (finding.code, finding.severity) == ("VA661", Severity.ERROR)
        assert "vllm.attention.layer, which is not in vLLM 0.32.0 since 0.16.0: it never acts" in finding.message
        assert after == dedent(text)

    @pytest.mark.parametrize("text", GONE_HOOKS.values(), ids=GONE_HOOKS)
    def test_a_hook_for_a_module_that_is_there_is_a_note(self, text: str, port: Port) -> None:
        _, (finding,) = port(text, target="0.13")
        assert finding.severity is Severity.NOTE

    @pytest.mark.parametrize("text", GONE_FILES.values(), ids=GONE_FILES)
    def test_a_changed_file_that_is_gone_is_an_error(self, text: str, port: Port) -> None:
        after, found = port(text)
        assert told(found) == [("VA661", Severity.ERROR)]
        assert "the file of vllm.attention.layer is changed here, and is not in vLLM 0.32.0" in found[0].message
        assert after == dedent(text)

    @pytest.mark.parametrize("text", GONE_FILES.values(), ids=GONE_FILES)
    def test_a_changed_file_that_is_there_is_a_warning(self, text: str, port: Port) -> None:
        _, (finding,) = port(text, target="0.13")
        assert finding.severity is Severity.WARNING

    def test_a_text_that_names_what_is_gone_is_an_error(self, port: Port) -> None:
        _, (finding,) = port(
            """\
            from pathlib import Path
            import vllm
            path = Path(vllm.__file__).parent / "model_executor" / "models" / "vision.py"
            old = "def should_torch_compile_mm_vit("
            path.write_text(path.read_text().replace(old, "def unused("))
            """
        )
        assert finding.severity is Severity.ERROR
        assert "by a text that names should_torch_compile_mm_vit" in finding.message

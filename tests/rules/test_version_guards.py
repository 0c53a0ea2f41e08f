"""Guards that ask which vLLM runs: the arm that fits stays, whatever is not certain stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from codemods import vllm_api
from codemods.findings import Finding, Severity
from codemods.run import Options, migrate

Port = Callable[..., tuple[str, list[Finding]]]


@pytest.fixture
def port(tmp_path: Path) -> Port:
    """Ports one file, with others beside it, and gives its text afterwards and all findings for it."""

    def run(text: str, target: str = "0.32", keep_guards: bool = False, **beside: str) -> tuple[str, list[Finding]]:
        for name, content in {"model": text, **beside}.items():
            (tmp_path / f"{name}.py").write_text(dedent(content))
        options = Options(target=vllm_api.resolve(target), keep_guards=keep_guards)
        reports = migrate([tmp_path / f"{name}.py" for name in ("model", *beside)], options).files
        (report,) = (r for r in reports if r.path.endswith("model.py"))
        assert report.error is None
        return (tmp_path / "model.py").read_text(), list(report.findings)

    return run


SETTLED = {
    "a moved import": (
        """\
        try:
            from vllm.model_executor.layers.attention import Attention
        except ImportError:
            from vllm.attention.layer import Attention

        kind = Attention
        """,
        """\
        from vllm.model_executor.layers.attention import Attention

        kind = Attention
        """,
    ),
    "the old place first": (
        """\
        try:  # 0.12
            from vllm.attention.layer import Attention
        except (ImportError, AttributeError):
            # where it is now
            from vllm.model_executor.layers.attention import Attention  # noqa: F401
        """,
        """\
        # where it is now
        from vllm.model_executor.layers.attention import Attention  # noqa: F401
        """,
    ),
    "three places": (
        """\
        try:
            from vllm.attention import Attention
        except ImportError:
            try:
                from vllm.attention.layer import Attention
            except ImportError:
                from vllm.model_executor.layers.attention import Attention

        kind = Attention
        """,
        """\
        from vllm.model_executor.layers.attention import Attention

        kind = Attention
        """,
    ),
    "a place between, at a later vLLM": (
        """\
        try:
            from vllm.attention.layers.mm_encoder_attention import MMEncoderAttention
        except ImportError:
            MMEncoderAttention = None

        kind = MMEncoderAttention
        """,
        """\
        from vllm.model_executor.layers.attention import MMEncoderAttention

        kind = MMEncoderAttention
        """,
    ),
    "a flag set on the way": (
        """\
        from torch import nn

        try:
            from vllm.model_executor.layers.attention import MMEncoderAttention

            HAS_ENCODER_ATTENTION = True
        except ImportError:
            HAS_ENCODER_ATTENTION = False
            MMEncoderAttention = None


        def kind():
            if HAS_ENCODER_ATTENTION:
                return MMEncoderAttention
            return nn.MultiheadAttention


        def other():
            return MMEncoderAttention if MMEncoderAttention is not None else nn.MultiheadAttention
        """,
        """\
        from vllm.model_executor.layers.attention import MMEncoderAttention


        def kind():
            return MMEncoderAttention


        def other():
            return MMEncoderAttention
        """,
    ),
    "two places that are both gone": (
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
    "a module whose name only contains that of a device": (
        """\
        try:
            from vllm.inputs import MultiModalInput
        except ImportError:
            from vllm.multimodal.inputs import MultiModalInputs as MultiModalInput
        """,
        """\
        from vllm.inputs import MultiModalInput
        """,
    ),
    "a stand-in class": (
        """\
        try:
            from vllm.model_executor.models.vision import is_vit_use_data_parallel
        except ImportError:

            def is_vit_use_data_parallel():
                return False


        PARALLEL = is_vit_use_data_parallel
        """,
        """\
        from vllm.model_executor.models.vision import is_vit_use_data_parallel


        PARALLEL = is_vit_use_data_parallel
        """,
    ),
    "an elif": (
        """\
        import os

        import vllm

        if os.name == "nt":
            kind = 0
        elif vllm.__version__.startswith("0.12."):
            kind = 1
        elif vllm.__version__.startswith("0.32."):
            kind = 2
        else:
            kind = 3
        """,
        """\
        import os

        if os.name == "nt":
            kind = 0
        else:
            kind = 2
        """,
    ),
    "an elif that goes": (
        """\
        import os

        import vllm

        if os.name == "nt":
            kind = 0
        elif vllm.__version__ == "0.12.0":
            kind = 1
        else:
            kind = 3  # all others
        """,
        """\
        import os

        if os.name == "nt":
            kind = 0
        else:
            kind = 3  # all others
        """,
    ),
    "the first of several": (
        """\
        import os

        import vllm

        # by release
        if vllm.__version__ == "0.12.0":
            kind = 1
        # by system
        elif os.name == "nt":
            kind = 2
        else:
            kind = 3
        """,
        """\
        import os

        # by release
        # by system
        if os.name == "nt":
            kind = 2
        else:
            kind = 3
        """,
    ),
    "on one line, and comments at the end of an arm": (
        """\
        from plugin.utils import vllm_version_is

        def width(config):
            if vllm_version_is("0.32.0"): size = config.hidden_size
            else: size = config.width
            if not vllm_version_is("0.12.0"):
                size *= 2
                # that was for the two halves
            return size
        """,
        """\
        def width(config):
            size = config.hidden_size
            size *= 2
            # that was for the two halves
            return size
        """,
    ),
    "what stands behind a return": (
        """\
        from plugin.utils import vllm_version_is


        def width(config):
            if not vllm_version_is("0.12.0"):
                return config.hidden_size
            size = config.width
            return size
        """,
        """\
        def width(config):
            return config.hidden_size
        """,
    ),
    "a branch with nothing else": (
        """\
        from plugin.utils import vllm_version_is


        def width(config):
            if vllm_version_is("0.12.0"):
                config = config.vision_config
            return config.width
        """,
        """\
        def width(config):
            return config.width
        """,
    ),
    "an import that moved in the arm that stays": (
        """\
        import vllm
        from packaging.version import Version

        if Version(vllm.__version__) >= Version("0.12"):
            from vllm.attention.layer import Attention
        else:
            from vllm.attention import Attention

        kind = Attention
        """,
        """\
        from vllm.model_executor.layers.attention import Attention

        kind = Attention
        """,
    ),
}


@pytest.mark.parametrize(("before", "after"), SETTLED.values(), ids=SETTLED)
def test_the_arm_that_fits_stays(before: str, after: str, port: Port) -> None:
    text, findings = port(before)
    assert text == dedent(after)
    assert findings == []


UNTOUCHED = {
    "a package that may be missing": """\
        try:
            import flashinfer
        except ImportError:
            flashinfer = None
        """,
    "a kernel that a device may lack": """\
        try:
            from vllm.v1.attention.backends.fa_utils import flash_attn_varlen_func
        except ImportError:
            flash_attn_varlen_func = None
        """,
    "a name that every release has": """\
        try:
            from vllm.config import VllmConfig
        except ImportError:
            VllmConfig = object
        """,
    "two things of one name, both there": """\
        try:
            from vllm.model_executor.models.qwen2_vl import Qwen2VisionTransformer as Tower
        except ImportError:
            from vllm.model_executor.models.qwen2_5_vl import Qwen2_5_VisionTransformer as Tower
        """,
    "something that is done beside": """\
        import logging

        try:
            from vllm.model_executor.layers.attention import MMEncoderAttention

            logging.info("found")
        except ImportError:
            MMEncoderAttention = None
        """,
    "an error that is passed on": """\
        try:
            from vllm.model_executor.layers.attention import MMEncoderAttention
        except ImportError as error:
            raise RuntimeError("needs a newer vLLM") from error
        """,
    "a version that the environment gives": """\
        import os

        import vllm

        if vllm.__version__ == os.environ.get("PINNED"):
            kind = 0
        else:
            kind = 1
        """,
    "a version of something else": """\
        import torch

        if torch.__version__ >= "2.6":
            kind = 0
        else:
            kind = 1
        """,
    "a generator that would be none": """\
        import vllm


        def kinds():
            if vllm.__version__ == "0.12.0":
                yield 0
            return 1
        """,
    "names in the error arm that the body binds on the way": """\
        try:
            from vllm.config import VllmConfig
            from vllm.nowhere import nothing
        except ImportError:
            nothing = None
        """,
}


@pytest.mark.parametrize("text", UNTOUCHED.values(), ids=UNTOUCHED)
def test_what_is_not_certain_stays(text: str, port: Port) -> None:
    after, _ = port(text)
    assert after == dedent(text)


def test_the_other_arm_stays_at_another_target(port: Port) -> None:
    text = """\
        from plugin.utils import vllm_version_is

        if vllm_version_is("0.14.0"):
            from vllm.model_executor.layers.attention.mm_encoder_attention import MMEncoderAttention
        else:
            from vllm.model_executor.layers.attention import MMEncoderAttention

        kind = MMEncoderAttention
        """
    old, new = (port(text, target)[0] for target in ("0.14", "0.32"))
    assert old.startswith("from vllm.model_executor.layers.attention.mm_encoder_attention import")
    assert new.startswith("from vllm.model_executor.layers.attention import")


HELPER = """\
    import os
    from functools import lru_cache

    from packaging.version import Version


    @lru_cache
    def is_vllm(wanted):
        if os.environ.get("VLLM_VERSION"):
            found = os.environ["VLLM_VERSION"]
        else:
            import vllm

            found = vllm.__version__
        return Version(found) == Version(wanted)


    IS_OLD = is_vllm("0.12.0")
    """


def test_helpers_and_constants_are_followed_into_other_files(port: Port) -> None:
    text = """\
        from .compat import IS_OLD, is_vllm

        kind = 0 if IS_OLD else 1
        size = 2 if is_vllm("0.32.0") else 3
        """
    after, _ = port(text, compat=HELPER)
    assert after == "kind = 1\nsize = 2\n"


class TestKeepGuards:
    TEXT = """\
        from plugin.utils import vllm_version_is
        from vllm.attention.layer import AttentionType

        if vllm_version_is("0.12.0"):
            from vllm.attention.layer import Attention
        else:
            from vllm.model_executor.layers.attention import Attention

        kind = Attention, AttentionType
        """

    def test_guards_stay_and_the_rest_is_ported(self, port: Port) -> None:
        after, findings = port(self.TEXT, keep_guards=True)
        assert after == dedent(self.TEXT).replace(
            "vllm.attention.layer import AttentionType", "vllm.v1.attention.backend import AttentionType"
        )
        assert findings == []

    def test_an_arm_that_runs_and_is_broken_is_told(self, port: Port) -> None:
        text = self.TEXT.replace("0.12.0", "0.32.0")
        after, findings = port(text, keep_guards=True)
        assert "from vllm.attention.layer import Attention\n" in after
        assert [f.severity for f in findings] == [Severity.ERROR]


class TestRefusals:
    """A plugin that names the releases it serves: its check is not what chooses between two of them."""

    TEXT = """\
        import vllm
        from packaging.version import Version
        from vllm import ModelRegistry


        def register():
            here = Version(vllm.__version__)
            if here < Version("0.12") or here >= Version("0.17"):
                raise RuntimeError(f"not made for vLLM {vllm.__version__}")
            ModelRegistry.register_model("Tower", "plugin.tower:Tower")
        """

    def test_a_check_that_raises_at_the_target_stays_with_all_behind_it(self, port: Port) -> None:
        after, findings = port(self.TEXT)
        assert after == dedent(self.TEXT)
        (finding,) = findings
        assert (finding.line, finding.code, finding.severity) == (8, "VA670", Severity.ERROR)
        assert "refuses vLLM 0.32.0" in finding.message

    def test_a_check_that_lets_the_target_through_goes(self, port: Port) -> None:
        after, findings = port(self.TEXT, "0.14")
        assert "raise" not in after and "register_model" in after
        assert findings == []

    def test_the_other_arm_may_be_the_one_that_raises(self, port: Port) -> None:
        text = """\
            import vllm

            if vllm.__version__.startswith("0.12"):
                size = 1
            else:
                raise ImportError("0.12 alone")
            """
        after, findings = port(text)
        assert after == dedent(text)
        assert [f.line for f in findings] == [3]

    def test_an_assertion_that_fails_is_told(self, port: Port) -> None:
        text = """\
            import vllm
            from packaging.version import Version

            assert Version(vllm.__version__) < Version("0.17")
            """
        assert [f.line for f in port(text)[1]] == [4]
        assert port(text, "0.14")[1] == []


def test_a_mark_of_the_plugins_own_is_no_guard(port: Port) -> None:
    """Taken out, the patch would wrap itself when it is made twice."""
    text = """\
        import vllm.model_executor.models.utils as utils

        if not hasattr(utils, "_flatten_before"):
            utils._flatten_before = utils._flatten_embeddings
            utils._flatten_embeddings = lambda embeddings: utils._flatten_before(embeddings)
        """
    after, _ = port(text)
    assert after == dedent(text)


def test_a_patch_of_what_was_asked_for_first_goes_with_it(port: Port) -> None:
    text = """\
        import vllm.model_executor.models.vision as vision

        if hasattr(vision, "should_torch_compile_mm_vit"):
            vision.should_torch_compile_mm_vit = lambda config: False
        """
    after, findings = port(text)
    assert "should_torch_compile_mm_vit" not in after
    assert findings == []

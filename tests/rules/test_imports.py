"""Imports after a port: where they go, which names follow a move, which stay because several statements bind them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import libcst as cst
import pytest

from codemods import vllm_api
from codemods.edits import AddImport
from codemods.findings import Finding, Severity
from codemods.imports_layout import place_imports
from codemods.run import Options, migrate

Port = Callable[..., tuple[str, list[Finding]]]


@pytest.fixture
def port(tmp_path: Path) -> Port:
    """Ports one file, beside files that are only there, and gives its text afterwards and all findings."""

    def run(
        text: str, target: str = "0.32", beside: tuple[str, ...] = (), name: str = "model.py"
    ) -> tuple[str, list[Finding]]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
        for other in beside:
            (tmp_path / other).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / other).touch()
        (report,) = migrate([path], Options(target=vllm_api.resolve(target))).files
        return path.read_text(), list(report.findings)

    return run


MOVES = {
    "a name that moved": (
        """\
        import torch
        from vllm.attention.layer import Attention

        kind = Attention
        """,
        """\
        import torch
        from vllm.model_executor.layers.attention import Attention

        kind = Attention
        """,
    ),
    "by another name": (
        """\
        from vllm.attention.layer import Attention as Language

        kind = Language
        """,
        """\
        from vllm.model_executor.layers.attention import Attention as Language

        kind = Language
        """,
    ),
    "in parentheses, with a comment": (
        """\
        from vllm.attention.layer import (Attention)  # noqa: F401
        """,
        """\
        from vllm.model_executor.layers.attention import (Attention)  # noqa: F401
        """,
    ),
    "with a comment for each name": (
        """\
        from vllm.attention.layer import (
            Attention,  # language
            # batched
            MultiHeadAttention,  # vision
        )

        kinds = (Attention, MultiHeadAttention.__name__)
        """,
        """\
        # batched
        from vllm.model_executor.layers.attention import MMEncoderAttention  # vision
        from vllm.model_executor.layers.attention import Attention  # language

        kinds = (Attention, MMEncoderAttention.__name__)
        """,
    ),
    "over a continued line": (
        """\
        from vllm.attention.layer \\
            import Attention

        kind = Attention  # why
        """,
        """\
        from vllm.model_executor.layers.attention \\
            import Attention

        kind = Attention  # why
        """,
    ),
    "behind another statement": (
        """\
        import vllm.envs; from vllm.attention.layer import Attention
        kinds = (Attention, vllm.envs)
        """,
        """\
        import vllm.envs
        from vllm.model_executor.layers.attention import Attention
        kinds = (Attention, vllm.envs)
        """,
    ),
    "in a section of its own": (
        """\
        import torch

        from vllm.attention.layer import Attention

        from .layer import thing

        kinds = (Attention, thing)
        """,
        """\
        import torch

        from vllm.model_executor.layers.attention import Attention

        from .layer import thing

        kinds = (Attention, thing)
        """,
    ),
    "between isort's switches": (
        """\
        import torch

        # isort: off
        from vllm.attention.layer import Attention
        # isort: on

        kind = Attention
        """,
        """\
        import torch

        # isort: off
        from vllm.model_executor.layers.attention import Attention
        # isort: on

        kind = Attention
        """,
    ),
    "in a function": (
        """\
        def kinds():
            from vllm.attention.layer import Attention as A, MLAAttention

            return A, MLAAttention
        """,
        """\
        def kinds():
            from vllm.model_executor.layers.attention import Attention as A, MLAAttention

            return A, MLAAttention
        """,
    ),
    "for type checkers": (
        """\
        from typing import TYPE_CHECKING

        if TYPE_CHECKING:
            from vllm.platforms import _Backend, current_platform


        def use(kind: "_Backend", platform: "current_platform"): ...
        """,
        """\
        from typing import TYPE_CHECKING

        if TYPE_CHECKING:
            from vllm.platforms import current_platform
            from vllm.v1.attention.backends.registry import AttentionBackendEnum


        def use(kind: "AttentionBackendEnum", platform: "current_platform"): ...
        """,
    ),
    "in a guard of its own": (
        """\
        try:
            from vllm.attention.layer import MLAAttention

            kind = MLAAttention
        except ImportError:
            kind = None
        """,
        """\
        from vllm.model_executor.layers.attention import MLAAttention

        kind = MLAAttention
        """,
    ),
    "a name that is another now": (
        """\
        from vllm.model_executor.models.vision import should_torch_compile_mm_vit

        switch = should_torch_compile_mm_vit
        """,
        """\
        from vllm.compilation.decorators import should_torch_compile_mm_encoder

        switch = should_torch_compile_mm_encoder
        """,
    ),
    "a name that came in two places, one of the same file name": (
        """\
        from vllm.multimodal.evs import compute_retention_mask
        """,
        """\
        from vllm.multimodal.video_prune.evs import compute_retention_mask
        """,
    ),
}

MODULES = {
    "under a name": (
        """\
        import vllm.attention.layer as layer

        kind = layer.Attention
        """,
        """\
        from vllm.model_executor.layers.attention import Attention

        kind = Attention
        """,
    ),
    "from its package": (
        """\
        from vllm.attention.backends import registry

        flash = registry.AttentionBackendEnum.FLASH_ATTN
        """,
        """\
        from vllm.v1.attention.backends.registry import AttentionBackendEnum

        flash = AttentionBackendEnum.FLASH_ATTN
        """,
    ),
    "by its full name, beside others": (
        """\
        import vllm.attention.layer
        import vllm.envs

        kind = vllm.attention.layer.Attention
        where = vllm.envs.VLLM_CACHE_ROOT
        """,
        """\
        import vllm.envs
        from vllm.model_executor.layers.attention import Attention

        kind = Attention
        where = vllm.envs.VLLM_CACHE_ROOT
        """,
    ),
    "by its full name, with vllm itself in use": (
        """\
        import vllm.attention.layer

        kind = vllm.attention.layer.Attention
        version = vllm.__version__
        """,
        """\
        import vllm
        from vllm.model_executor.layers.attention import Attention

        kind = Attention
        version = vllm.__version__
        """,
    ),
}


class TestMovedName:
    @pytest.mark.parametrize(("before", "after"), MOVES.values(), ids=MOVES)
    def test_is_followed(self, before: str, after: str, port: Port) -> None:
        assert port(before) == (dedent(after), [])

    @pytest.mark.parametrize(("before", "after"), MODULES.values(), ids=MODULES)
    def test_is_imported_by_name_where_its_module_was(self, before: str, after: str, port: Port) -> None:
        assert port(before) == (dedent(after), [])

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("from vllm.attention.layer import *\n", "vllm.attention.layer is not in vLLM"),
            ("import vllm.attention.layer as layer\n\nuse(layer)\n", "vllm.attention.layer is not in vLLM"),
            (
                "import vllm.attention.layer as a\n\nclass Attention: ...\n\na.Attention\n",
                "layer.Attention is not in vLLM",
            ),
            ("import vllm.attention.layer as a\n\na.Attention = None\n", "and is not in vLLM"),
            (
                "from vllm.attention.layer import check_upstream_fa_availability as has\n\nhas(1)\n",
                "check_upstream_fa_availability is not",
            ),
        ],
    )
    def test_that_cannot_be_followed_is_told_of(self, text: str, message: str, port: Port) -> None:
        after, findings = port(text)
        assert after == text
        assert any(message in finding.message and finding.severity is Severity.ERROR for finding in findings)

    def test_that_takes_other_arguments_now_stays(self, port: Port) -> None:
        """Its fourth parameter was cu_seqlens; where it is now, that is scale."""
        text = dedent("""\
            from vllm.attention.ops.vit_attn_wrappers import vit_torch_sdpa_wrapper


            def attend(q, k, v, cu_seqlens):
                return vit_torch_sdpa_wrapper(q, k, v, cu_seqlens)
            """)
        after, findings = port(text)
        assert after == text
        assert any("the argument for 'cu_seqlens' would reach 'scale'" in finding.message for finding in findings)

    def test_that_is_gone_and_not_used_is_not_imported(self, port: Port) -> None:
        after, findings = port(
            "from vllm.attention.layer import Attention, check_upstream_fa_availability\n\nAttention\n"
        )
        assert after == "from vllm.model_executor.layers.attention import Attention\n\nAttention\n"
        assert findings == []

    @pytest.mark.parametrize(
        "use",
        [
            "has = check_upstream_fa_availability\n",
            "NAMES = 'check_upstream_fa_availability'\n",
            "def f(x: 'check_upstream_fa_availability'): ...\n",
            "__all__ = ['check_upstream_fa_availability']\n",
        ],
        ids=["read", "named in a text", "in an annotation", "exported"],
    )
    def test_that_is_gone_stays_where_anything_speaks_of_it(self, use: str, port: Port) -> None:
        text = f"from vllm.attention.layer import check_upstream_fa_availability\n\n{use}"
        after, findings = port(text)
        assert after == text
        assert [finding.severity for finding in findings] == [Severity.ERROR]

    def test_is_not_taken_for_another_of_its_spelling(self, port: Port) -> None:
        text = "from vllm.model_executor.models.internvl import IMG_CONTEXT\n\nprint(IMG_CONTEXT)\n"
        after, findings = port(text)
        assert after == text
        assert "see whether" in findings[0].remedy
        assert "nano_nemotron_vl.IMG_CONTEXT" in findings[0].remedy

    def test_is_told_of_where_a_star_brought_it(self, port: Port) -> None:
        """vLLM 0.14 still has the module, without the class."""
        text = "from vllm.attention.layer import *\n\nkinds = (Attention, MultiHeadAttention)\n"
        after, findings = port(text, target="0.14")
        assert after == text
        assert ["has no MultiHeadAttention, which" in finding.message for finding in findings] == [True]


class TestNameThatIsNotThere:
    @pytest.mark.parametrize(
        ("text", "target", "message"),
        [
            (
                "from vllm.model_executor.models.vision import is_vit_use_data_parallel\n",
                "0.14.0",
                "is not in vLLM 0.14.0 yet: it came with 0.15.0",
            ),
            (
                "import vllm.multimodal.encoder_budget as budget\n\nuse(budget)\n",
                "0.15.0",
                "vllm.multimodal.encoder_budget is not in vLLM 0.15.0 yet: it came with 0.16.0",
            ),
            (
                "import vllm.attention.layer as layer\n\nuse(layer)\n",
                "0.32.0",
                "vllm.attention.layer is not in vLLM 0.32.0: it went with 0.16.0",
            ),
            (
                "from vllm.config import no_such_thing\n",
                "0.32.0",
                "vllm.config.no_such_thing is not in vLLM 0.32.0, nor in any other from 0.10.2 to ",
            ),
        ],
    )
    def test_went_or_is_yet_to_come(self, text: str, target: str, message: str, port: Port) -> None:
        after, findings = port(text, target=target)
        assert after == text
        assert [f.severity for f in findings] == [Severity.ERROR]
        assert message in findings[0].message

    def test_that_is_newer_than_the_target_asks_for_a_later_one(self, port: Port) -> None:
        _, findings = port("from vllm.model_executor.models.vision import is_vit_use_data_parallel\n", target="0.14.0")
        assert findings[0].remedy == "Port to vLLM 0.15.0 or later."


class TestNameImportedTwice:
    """By one statement, which linters tell of and nothing else does."""

    def test_goes_as_often_as_it_stands_there(self, port: Port) -> None:
        after, findings = port(
            """\
            from vllm.attention.layer import Attention, Attention
            from vllm.utils import cdiv, cdiv as ceil, round_up

            kinds = Attention, cdiv, ceil, round_up
            """
        )
        assert after == dedent(
            """\
            from vllm.model_executor.layers.attention import Attention
            from vllm.utils.math_utils import cdiv, cdiv as ceil, round_up

            kinds = Attention, cdiv, ceil, round_up
            """
        )
        assert findings == []


class TestNameBoundTwice:
    OLD_AND_OLDER = """\
        import os

        if os.environ.get("OLD_VLLM"):
            from vllm.attention.backends.registry import AttentionBackendEnum
        else:
            from vllm.platforms import _Backend as AttentionBackendEnum

        flash = AttentionBackendEnum.FLASH_ATTN
        """
    OLD_AND_NEW = """\
        import os

        if os.environ.get("OLD_VLLM"):
            from vllm.attention.layer import Attention
        else:
            from vllm.model_executor.layers.attention import Attention

        kind = Attention
        """

    def test_stays_and_is_told_of_once(self, port: Port) -> None:
        after, findings = port(self.OLD_AND_OLDER)
        assert after == dedent(self.OLD_AND_OLDER)
        assert [(f.line, f.severity) for f in findings] == [(3, Severity.ERROR)]
        assert "bound in several places (lines 4, 6)" in findings[0].message

    def test_follows_where_the_other_is_no_choice_but_the_same_again(self, port: Port) -> None:
        after, findings = port(
            """\
            from vllm.model_executor.layers.attention import Attention

            try:
                from vllm.attention.layer import Attention, AttentionType
            except ImportError:
                pass

            kinds = Attention, AttentionType
            """
        )
        assert "    from vllm.model_executor.layers.attention import Attention\n" in after
        assert "vllm.attention.layer" not in after
        assert findings == []

    def test_is_looked_up_where_it_is_bound(self, port: Port) -> None:
        text = """\
            def one():
                import vllm.envs as envs

                return envs

            def other(more):
                from vllm.envs import environment_variables as envs

                envs.update(more)
            """
        assert port(text) == (dedent(text), [])

    def test_needs_nothing_where_one_import_works(self, port: Port) -> None:
        after, findings = port(self.OLD_AND_NEW)
        assert after == dedent(self.OLD_AND_NEW)
        assert [(f.line, f.severity) for f in findings] == [(3, Severity.NOTE)]


class TestBackendEnum:
    def test_keeps_its_old_name_where_the_file_has_the_new_one(self, port: Port) -> None:
        before = """\
            from vllm.platforms import _Backend


            class AttentionBackendEnum: ...


            flash = _Backend.FLASH_ATTN
            """
        after, findings = port(before)
        assert findings == []
        new = "from vllm.v1.attention.backends.registry import AttentionBackendEnum as _Backend"
        assert after == dedent(before).replace("from vllm.platforms import _Backend", new)

    def test_is_followed_through_a_module(self, port: Port) -> None:
        after, _ = port("import vllm.platforms\n\nflash = vllm.platforms._Backend.FLASH_ATTN\n")
        assert "from vllm.v1.attention.backends.registry import AttentionBackendEnum\n" in after
        assert "flash = AttentionBackendEnum.FLASH_ATTN\n" in after


class TestNeighbour:
    """A file copied out of vLLM's models folder still imports what lay beside it there."""

    BEFORE = """\
        import torch
        from vllm.logger import init_logger

        from ..layers.activation import SiluAndMul
        from .interfaces import MultiModalEmbeddings
        from .own import helper
        from .qwen2_vl import Qwen2VisionAttention as Vision
        from .unheard_of import thing
        from .vision import get_vit_attn_backend


        def late():
            from .utils import maybe_prefix

            return maybe_prefix
        """
    AFTER = """\
        import torch
        from vllm.logger import init_logger
        from vllm.model_executor.layers.activation import SiluAndMul
        from vllm.model_executor.models.interfaces import MultiModalEmbeddings
        from vllm.model_executor.models.qwen2_vl import Qwen2VisionAttention as Vision
        from vllm.model_executor.models.vision import get_vit_attn_backend

        from .own import helper
        from .unheard_of import thing


        def late():
            from vllm.model_executor.models.utils import maybe_prefix

            return maybe_prefix
        """

    def test_that_is_not_there_is_vllms(self, port: Port) -> None:
        after, findings = port(self.BEFORE, beside=("a/b/own.py",), name="a/b/model.py")
        assert after == dedent(self.AFTER)
        assert findings == []

    def test_that_is_there_stays(self, port: Port) -> None:
        beside = ("interfaces.py", "own.py", "qwen2_vl.py", "unheard_of.py", "vision/__init__.py", "utils.py")
        there = ("a/layers/activation.py", *(f"a/b/{name}" for name in beside))
        after, findings = port(self.BEFORE, beside=there, name="a/b/model.py")
        assert after == dedent(self.BEFORE)
        assert findings == []

    def test_of_whose_names_vllm_never_had_any_is_the_plugins(self, port: Port) -> None:
        text = "from .utils import our_helper, our_table\n\nour_helper(our_table)\n"
        after, (finding,) = port(text)
        assert after == text
        assert (finding.code, finding.severity) == ("VA601", Severity.NOTE)
        text = text.replace("our_table", "merge_multimodal_embeddings")
        assert [f.severity for f in port(text)[1]] == [Severity.ERROR, Severity.ERROR]

    def test_within_vllm_stays(self, port: Port) -> None:
        name = "vllm/model_executor/models/model.py"
        after, _ = port(self.BEFORE, name=name)
        assert "from .interfaces import MultiModalEmbeddings\n" in after
        assert "from ..layers.activation import SiluAndMul\n" in after


PLACES = {
    "among its like": ("from a import x\nfrom n import y\n", "from a import x\nfrom m.n import D\nfrom n import y\n"),
    "into an import": ("from m.n import A, Z\n", "from m.n import A, D, Z\n"),
    "into an import over several lines": (
        "from m.n import (\n    A,  # a\n    B,  # b\n)\n",
        "from m.n import (\n    A,  # a\n    B,  # b\n    D,\n)\n",
    ),
    "into one name over several lines": (
        "from m.n import (\n    A,  # a\n)\n",
        "from m.n import (\n    A,  # a\n    D,\n)\n",
    ),
    "behind modules of others": ("import os\n\nimport torch\n", "import os\n\nimport torch\nfrom m.n import D\n"),
    "as a section of its own": (
        "import os\n\nfrom .a import b\n",
        "import os\n\nfrom m.n import D\n\nfrom .a import b\n",
    ),
    "behind the future": (
        '"""Text."""\n\nfrom __future__ import annotations\n\nx = 1\n',
        '"""Text."""\n\nfrom __future__ import annotations\n\nfrom m.n import D\n\nx = 1\n',
    ),
    "behind a licence": ("# licence\n\nclass A: ...\n", "# licence\n\nfrom m.n import D\n\n\nclass A: ...\n"),
    "ahead of a late import": (
        "import torch\n\n\nclass A(D): ...\n\n\nfrom z import y\n",
        "import torch\nfrom m.n import D\n\n\nclass A(D): ...\n\n\nfrom z import y\n",
    ),
    "ahead of what reads it": (
        "import torch\n\nalias = D\nfrom a import y\n",
        "import torch\nfrom m.n import D\n\nalias = D\nfrom a import y\n",
    ),
    "in the block that the file is": (
        "if True:\n    import torch\n\n    class A: ...\n",
        "if True:\n    import torch\n    from m.n import D\n\n    class A: ...\n",
    ),
}


class TestPlaceOfNewImport:
    @pytest.mark.parametrize(("before", "after"), PLACES.values(), ids=PLACES)
    def test_is_where_a_person_would_put_it(self, before: str, after: str) -> None:
        assert place_imports(cst.parse_module(before), [AddImport("m.n", "D")]).code == after

    def test_is_made_once(self) -> None:
        module = cst.parse_module("from m.n import D\n")
        assert place_imports(module, [AddImport("m.n", "D"), AddImport("m.n", "D")]).code == "from m.n import D\n"

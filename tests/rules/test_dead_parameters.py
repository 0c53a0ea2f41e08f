"""VA401: parameters that only carried a backend go with the arguments of all callers, or stay with all of them."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from codemods.findings import Severity
from tests.rules.vision_model import ATTENTION, MODEL, TOWER, WITH_LENGTHS, Port, edited, porter

HEAD = "\n\nclass VisionTower"
CLASS = "class VisionAttention(nn.Module)"
LAYERS = TOWER[TOWER.index("        self.layers = ") : TOWER.index("        self.attn_backend = ")]
KEYWORD = "attn_backend_override=attn_backend_override)\n             for"
IN_TOWER = "class VisionTower(nn.Module):\n    def __init__(self, hidden, heads, depth, "
TAKES = 'hidden, heads, prefix="", attn_backend_override=None):\n        super().__init__()\n        self.head_dim'
CALL = "layer(x, cu_seqlens=cu_seqlens, max_seqlen=max_seqlen, seqlens=seqlens)"
PARAMETERS = "self, hidden, heads, prefix=''"
OVERRIDE = "VisionAttention.__init__ keeps its unused parameter attn_backend_override"


@pytest.fixture
def port(tmp_path: Path) -> Port:
    return porter(tmp_path)


def taking(parameters: str) -> tuple[str, str]:
    """The attention's constructor with other parameters."""
    return TAKES, f"{parameters}):{TAKES.partition('):')[2]}"


# name: (old, new, ..., the constructor's parameters afterwards, the arguments it is called with)
GOES: dict[str, tuple[tuple[str, ...], str, list[str]]] = {
    "by keyword": ((), PARAMETERS, ["hidden", "heads", "f'{prefix}.{i}'"]),
    "by position": (
        (KEYWORD, "attn_backend_override)\n             for"),
        PARAMETERS,
        ["hidden", "heads", "f'{prefix}.{i}'"],
    ),
    "by position, ahead of others": (
        (
            *taking('hidden, heads, attn_backend_override=None, prefix=""'),
            *('f"{prefix}.{i}", attn_backend_override=attn_backend_override', 'attn_backend_override, f"{prefix}.{i}"'),
        ),
        PARAMETERS,
        ["hidden", "heads", "f'{prefix}.{i}'"],
    ),
    "by position, two of them": (
        (
            *taking('hidden, heads, attn_backend_override=None, use_upstream_fa=False, bias=True, prefix=""'),
            *("3 * hidden)", "3 * hidden, bias=bias)"),
            *('f"{prefix}.{i}", attn_backend_override=attn_backend_override', "attn_backend_override, False, False"),
        ),
        "self, hidden, heads, bias=True, prefix=''",
        ["hidden", "heads", "False"],
    ),
    "by keyword only": (
        taking('hidden, heads, prefix="", *, attn_backend_override=None'),
        PARAMETERS,
        ["hidden", "heads", "f'{prefix}.{i}'"],
    ),
    "by keyword only, as others": (
        (*taking('hidden, heads, *, prefix="", attn_backend_override=None'), 'heads, f"', 'heads, prefix=f"'),
        "self, hidden, heads, *, prefix=''",
        ["hidden", "heads", "f'{prefix}.{i}'"],
    ),
    "required": (
        (
            *taking('attn_backend_override, hidden, heads, prefix=""'),
            *("[VisionAttention(hidden", "[VisionAttention(attn_backend_override, hidden"),
            *(", attn_backend_override=attn_backend_override)\n             for", ")\n             for"),
        ),
        PARAMETERS,
        ["hidden", "heads", "f'{prefix}.{i}'"],
    ),
}

# name: (old, new, ..., why it stays)
STAYS: dict[str, tuple[str, ...]] = {
    "a class out of a dictionary, by keyword": (
        LAYERS,
        "        kinds = {'full': VisionAttention}\n"
        "        self.first = kinds['full'](hidden, heads, attn_backend_override=attn_backend_override)\n"
        "        self.layers = nn.ModuleList([self.first])\n",
        "it is not clear what the call at model.py:",
    ),
    "a class out of a dictionary, by position": (
        LAYERS,
        "        kinds = {'full': VisionAttention}\n"
        "        self.layers = nn.ModuleList([kinds['full'](hidden, heads, prefix, attn_backend_override)])\n",
        "the class is handed on at model.py:",
    ),
    "a class that is a default": (
        *(IN_TOWER, f"{IN_TOWER}cls=VisionAttention, "),
        *("[VisionAttention(hidden", "[cls(hidden"),
        *(KEYWORD, "attn_backend_override)\n             for"),
        "the class is handed on at model.py:",
    ),
    "a partial": (
        LAYERS,
        "        make = partial(VisionAttention, hidden, heads, attn_backend_override=attn_backend_override)\n"
        "        self.layers = nn.ModuleList([make(f'{prefix}.{i}') for i in range(depth)])\n",
        "it is not clear what the call at model.py:",
    ),
    "hidden arguments": (
        LAYERS,
        "        options = dict(attn_backend_override=attn_backend_override)\n"
        "        self.layers = nn.ModuleList([VisionAttention(hidden, heads, **options)])\n",
        "it is not clear what the call at model.py:",
    ),
    "a subclass that hands on all it gets": (
        HEAD,
        "\n\nclass Logged(VisionAttention):\n    def __init__(self, *args, **kwargs):\n"
        f"        super().__init__(*args, **kwargs)\n{HEAD}",
        "arguments are passed on as a whole at model.py:",
    ),
}
SUBCLASS = f"""

class Logged(VisionAttention):
    def __init__(self, hidden, heads, attn_backend_override=None):
        super().__init__(hidden, heads, attn_backend_override=attn_backend_override)
        self.pad = 0
{HEAD}"""

SOMEBODYS = {
    "a text model's": """\
        class TextAttention(nn.Module):
            def __init__(self, config, attn_backend=None):
                super().__init__()
        """,
    "a protocol's": """\
        class Makes:
            def __init__(self, config, attn_backend=None): ...
        """,
    "a framework's": """\
        class Impl(Framework):
            def __init__(self, *, attn_backend=None, use_upstream_fa=False):
                self.x = 1
        """,
    "a function's": """\
        def build(hidden, attn_backend=None):
            return hidden
        """,
}
ON_LINES = """\

        hidden,
        heads,
        prefix="",
        *,
        attn_backend_override=None,  # which kernel
    """


ON_VLLMS = """\
from torch import nn
from vllm.attention.backends.registry import AttentionBackendEnum
from vllm.model_executor.models.qwen2_5_vl import Qwen2_5_VisionBlock


class Block(Qwen2_5_VisionBlock):
    def __init__(self, width, prefix="", attn_backend_override: AttentionBackendEnum | None = None):
        super().__init__(width, 16, 64, prefix=prefix, attn_backend_override=attn_backend_override)
        self.pad = 0


class Tower(nn.Module):
    def __init__(self, width, attn_backend_override: AttentionBackendEnum | None = None):
        super().__init__()
        self.block = Block(width, prefix="block", attn_backend_override=attn_backend_override)


def build(width):
    return Tower(width)
"""


class TestOfConstructor:
    @pytest.mark.parametrize(("edits", "parameters", "arguments"), GOES.values(), ids=GOES)
    def test_goes_with_its_arguments(
        self, edits: tuple[str, ...], parameters: str, arguments: list[str], port: Port
    ) -> None:
        ported = port(edited(MODEL, *edits))
        assert ported.findings == []
        assert ported.parameters("VisionAttention.__init__") == parameters
        assert list(ported.call("VisionAttention").values()) == arguments
        assert ported.parameters("VisionTower.__init__") == "self, hidden, heads, depth, prefix=''"

    def test_leaves_no_trace_of_a_marker(self, port: Port) -> None:
        ported = port(edited(MODEL, *taking('hidden, heads, prefix="", *, attn_backend_override=None')))
        assert '    def __init__(self, hidden, heads, prefix=""):\n' in ported.text

    def test_goes_with_its_line(self, port: Port) -> None:
        ported = port(edited(MODEL, "self, " + TAKES, "self," + taking(ON_LINES)[1]))
        wanted = '        hidden,\n        heads,\n        prefix="",\n    ):\n'
        assert f"    def __init__(self,\n{wanted}" in ported.text

    @pytest.mark.parametrize("edits", STAYS.values(), ids=STAYS)
    def test_stays_where_its_calls_are_not_all_known(self, edits: tuple[str, ...], port: Port) -> None:
        ported = port(edited(MODEL, *edits[:-1]))
        assert ported.parameters("VisionAttention.__init__") == f"{PARAMETERS}, attn_backend_override=None"
        assert any(message.startswith(f"{OVERRIDE}: {edits[-1]}") for _, message in ported.left(Severity.NOTE))
        assert "attn_backend_override" in ported.parameters("VisionTower.__init__")

    def test_goes_through_a_subclass(self, port: Port) -> None:
        ported = port(edited(MODEL, HEAD, SUBCLASS))
        assert ported.findings == []
        assert ported.parameters("Logged.__init__") == "self, hidden, heads"
        assert ported.body("Logged.__init__") == "super().__init__(hidden, heads)\nself.pad = 0"

    def test_stays_in_a_subclass_that_reads_it(self, port: Port) -> None:
        ported = port(edited(MODEL, HEAD, SUBCLASS.replace("self.pad = 0", "print(attn_backend_override)")))
        assert ported.parameters("Logged.__init__") == "self, hidden, heads, attn_backend_override=None"
        assert ported.body("Logged.__init__") == "super().__init__(hidden, heads)\nprint(attn_backend_override)"

    def test_goes_through_a_subclass_of_vllms_own(self, port: Port) -> None:
        """What is passed on to vLLM's constructor goes first; nothing is in the way of the rest then."""
        ported = port(ON_VLLMS, "0.32")
        assert ported.findings == []
        assert ported.parameters("Block.__init__") == "self, width, prefix=''"
        assert ported.parameters("Tower.__init__") == "self, width"
        assert ported.body("Block.__init__") == "super().__init__(width, 16, 64, prefix=prefix)\nself.pad = 0"
        assert ported.assigned("self.block") == ["Block(width, prefix='block')"]

    def test_of_the_model_is_vllms(self, port: Port) -> None:
        model = """

        class Model(nn.Module):
            def __init__(self, *, vllm_config, prefix=""):
                super().__init__()
                override = vllm_config.model_config.multimodal_config.mm_encoder_attn_backend
                self.visual = VisionTower(64, 4, 2, attn_backend_override=override)
        """
        ported = port(MODEL + dedent(model))
        assert ported.findings == []
        assert ported.parameters("Model.__init__") == "self, *, vllm_config, prefix=''"
        assert ported.assigned("self.visual") == ["VisionTower(64, 4, 2)"]

    def test_that_forced_a_backend_is_reported(self, port: Port) -> None:
        ported = port(
            f"{MODEL}\n\ntower = VisionTower(64, 4, 2, attn_backend_override=AttentionBackendEnum.TORCH_SDPA)\n"
        )
        assert ported.assigned("tower") == ["VisionTower(64, 4, 2)"]
        assert ported.left(Severity.WARNING) == [
            ("VA401", "VisionTower.__init__ is no longer told to use AttentionBackendEnum.TORCH_SDPA")
        ]

    @pytest.mark.parametrize("other", SOMEBODYS.values(), ids=SOMEBODYS)
    def test_of_somebody_else_stays(self, other: str, port: Port) -> None:
        ported = port(f"{MODEL}\n\n{dedent(other)}")
        assert ported.findings == []
        assert ported.text.endswith(dedent(other))

    def test_of_another_class_of_that_name_stays(self, port: Port) -> None:
        own = """\
            class VisionAttention:
                def __init__(self, hidden, attn_backend_override=None):
                    self.backend = attn_backend_override


            def make(override):
                return VisionAttention(8, attn_backend_override=override)
        """
        ported = port({"pkg/attention.py": MODEL, "pkg/own.py": own, "pkg/__init__.py": ""})
        assert ported.parameters("VisionAttention.__init__") == PARAMETERS
        assert ported.texts["pkg/own.py"] == dedent(own)

    def test_goes_in_other_files_too(self, port: Port) -> None:
        tower = "from torch import nn\n\nfrom .attention import VisionAttention\n\n\ndef layer(override):\n"
        tower += "    return VisionAttention(64, 4, attn_backend_override=override)\n\n\nblock = layer(None)\n"
        ported = port({"pkg/attention.py": ATTENTION, "pkg/tower.py": tower, "pkg/__init__.py": ""})
        assert ported.findings == []
        assert ported.parameters("VisionAttention.__init__") == PARAMETERS
        assert ported.texts["pkg/tower.py"].endswith(
            "def layer():\n    return VisionAttention(64, 4)\n\n\nblock = layer()\n"
        )

    def test_stays_where_a_file_that_was_not_given_passes_it(self, port: Port) -> None:
        tower = "from .attention import VisionAttention\n\n\n"
        tower += "def layer(override):\n    return VisionAttention(64, 4, attn_backend_override=override)\n"
        files = {"pkg/attention.py": ATTENTION, "pkg/tower.py": tower, "pkg/__init__.py": ""}
        ported = port(files, given=["pkg/attention.py"])
        assert ported.texts["pkg/tower.py"] == tower
        assert ported.parameters("VisionAttention.__init__") == f"{PARAMETERS}, attn_backend_override=None"
        assert ported.left(Severity.WARNING) == [
            ("VA401", f"{OVERRIDE}: tower.py:5 passes it and is not among the given files")
        ]


class TestOfFunction:
    BUILD = "\n\ndef build(hidden, override):\n    return VisionTower(hidden, 4, 2, attn_backend_override=override)\n"

    def test_stays_where_nobody_in_the_run_calls_it(self, port: Port) -> None:
        ported = port(MODEL + self.BUILD)
        assert ported.findings == []
        assert ported.parameters("build") == "hidden, override"
        assert ported.body("build") == "return VisionTower(hidden, 4, 2)"

    def test_goes_where_somebody_does(self, port: Port) -> None:
        ported = port(f"{MODEL}{self.BUILD}\n\ntower = build(64, None)\n")
        assert ported.parameters("build") == "hidden"
        assert ported.assigned("tower") == ["build(64)"]


LOGGED = (
    "\n\nclass Logged(VisionAttention):\n    def forward(self, x, cu_seqlens, max_seqlen, seqlens=None, other=None):\n"
)
# name: (old, new, ..., how attention is called)
CALLS: dict[str, tuple[str, ...]] = {
    "by keyword": ("layer",),
    "by position": (CALL, "layer(x, cu_seqlens, max_seqlen, seqlens)", "layer"),
    "by forward": (CALL, "layer.forward(x, cu_seqlens, max_seqlen, seqlens)", "layer.forward"),
    "in a list that was filled": (
        LAYERS,
        "        self.layers = nn.ModuleList()\n        self.layers.append(VisionAttention(hidden, heads))\n",
        "layer",
    ),
}
UNKNOWN_CALLS: dict[str, tuple[str, ...]] = {
    "by a checkpoint": (
        CALL,
        "torch.utils.checkpoint.checkpoint(layer, x, cu_seqlens, max_seqlen, seqlens)",
        "no call of it was found",
    ),
    "by getattr": (
        *(
            LAYERS,
            "        for i in range(depth):\n            setattr(self, f'layer{i}', VisionAttention(hidden, heads))\n",
        ),
        *("in self.layers:", "in [getattr(self, f'layer{i}') for i in range(2)]:"),
        *(CALL, "layer(x, cu_seqlens, max_seqlen, seqlens)"),
        "it is not clear what the call at model.py:",
    ),
    "by an override that reads it": (
        HEAD,
        f"{LOGGED}        print(seqlens)\n        return super().forward(x, cu_seqlens, max_seqlen)\n{HEAD}",
        "an override of the method still reads it",
    ),
}
DECORATED = f'@support_torch_compile(dynamic_arg_dims={{"x": 0, "seqlens": 0}})\n{CLASS}'


class TestOfForward:
    """`seqlens` is a list that only xFormers wanted."""

    @pytest.mark.parametrize("edits", CALLS.values(), ids=CALLS)
    def test_goes_with_its_arguments(self, edits: tuple[str, ...], port: Port) -> None:
        ported = port(edited(WITH_LENGTHS, *edits[:-1]))
        assert ported.findings == []
        assert ported.parameters("VisionAttention.forward") == "self, x, cu_seqlens, max_seqlen, other=None"
        assert list(ported.call(edits[-1]).values()) == ["x", "cu_seqlens", "max_seqlen"]

    @pytest.mark.parametrize("edits", UNKNOWN_CALLS.values(), ids=UNKNOWN_CALLS)
    def test_stays_where_its_calls_are_not_all_known(self, edits: tuple[str, ...], port: Port) -> None:
        ported = port(edited(WITH_LENGTHS, *edits[:-1]))
        assert "seqlens=None, other=None" in ported.parameters("VisionAttention.forward")
        kept = f"VisionAttention.forward keeps its unused parameter seqlens: {edits[-1]}"
        assert any(message.startswith(kept) for _, message in ported.left(Severity.NOTE))

    def test_leaves_the_decorator_that_names_it(self, port: Port) -> None:
        ported = port(edited(WITH_LENGTHS, CLASS, DECORATED))
        assert ported.findings == []
        assert '@support_torch_compile(dynamic_arg_dims={"x": 0})\nclass' in ported.text

    def test_that_a_constant_names_is_reported(self, port: Port) -> None:
        constant = f'DIMS = {{"x": 0, "seqlens": 0}}\n\n\n@support_torch_compile(dynamic_arg_dims=DIMS)\n{CLASS}'
        ported = port(edited(WITH_LENGTHS, CLASS, constant))
        assert ported.left(Severity.WARNING) == [
            ("VA401", "VisionAttention.forward no longer has seqlens, which this still names")
        ]

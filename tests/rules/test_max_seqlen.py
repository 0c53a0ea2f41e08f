"""VA303 and VA304: the longest length reaches attention as a tensor, and lengths for xFormers are not computed."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from codemods.findings import Severity
from tests.rules.vision_model import MODEL, TOWER, WITH_LENGTHS, Port, edited, porter

LENGTHS = "cu_seqlens[1:] - cu_seqlens[:-1]"
NUMBER = f"({LENGTHS}).max().item()"
TENSOR = f"({LENGTHS}).max()"
SET = f"            max_seqlen = {NUMBER}\n"
ASK = "        max_seqlen = self.longest(cu_seqlens)\n"
RETURN = "        return max_seqlen\n"

# name: (the length as it was, as it has to be)
WRITTEN = {
    "item": (NUMBER, TENSOR),
    "item of a copy": (f"({LENGTHS}).max().cpu().item()", TENSOR),
    "int": (f"int(({LENGTHS}).max())", TENSOR),
    "int of torch.max": (f"int(torch.max({LENGTHS}))", f"torch.max({LENGTHS})"),
    "item of torch.max": ("torch.max(torch.diff(cu_seqlens)).item()", "torch.max(torch.diff(cu_seqlens))"),
    "a tensor already": (TENSOR, TENSOR),
    "maximum of a list": (
        "max(torch.diff(cu_seqlens).tolist())",
        "torch.tensor(max(torch.diff(cu_seqlens).tolist()), dtype=torch.int32)",
    ),
    "a constant": ("1024", "torch.tensor(1024, dtype=torch.int32)"),
}

# name: (old, new, ...); the tower's number reaches attention in another way
WAYS: dict[str, tuple[str, ...]] = {
    "by a method": (),
    "as an argument": (
        *(ASK, ""),
        *("max_seqlen=max_seqlen)\n        return", "max_seqlen=self.longest(cu_seqlens))\n        return"),
    ),
    "by position": ("cu_seqlens=cu_seqlens, max_seqlen=max_seqlen)", "cu_seqlens, max_seqlen)"),
    "by a named expression": (ASK, "        if (max_seqlen := self.longest(cu_seqlens)) is None:\n            pass\n"),
    "by two callers": (
        ASK,
        f"        most = self.longest(cu_seqlens)\n        self.layers[0](x, cu_seqlens, most)\n{ASK}",
    ),
    "after it was asked for": (ASK, f"{ASK}        if max_seqlen is None:\n            raise ValueError('lengths')\n"),
    "in a pair": (
        RETURN,
        "        return max_seqlen, batch\n",
        ASK,
        ASK.replace("max_seqlen =", "max_seqlen, batch ="),
    ),
}

# name: (old, new, ...); somebody wants the number
STRAY: dict[str, tuple[str, ...]] = {
    "as a size": (ASK, f"{ASK}        x = torch.cat([x, x.new_zeros(max_seqlen, 1, 8)])\n"),
    "in a text": (ASK, f"{ASK}        print(f'{{max_seqlen:5d}}')\n"),
    "compared": (ASK, f"{ASK}        if max_seqlen > 4096:\n            raise ValueError('too long')\n"),
    "kept": (ASK, f"{ASK}        self.last = max_seqlen\n"),
    "in the method": (RETURN, f"        self.mask = torch.ones(max_seqlen or 1)\n{RETURN}"),
    "by another caller": (ASK, f"        mask = torch.ones(self.longest(cu_seqlens))\n{ASK}"),
}

# name: (old, new, ..., what cannot be shown to be a tensor)
UNKNOWN: dict[str, tuple[str, ...]] = {
    "an attribute": (NUMBER, "self.most", "self.most"),
    "somebody's function": (NUMBER, "most_of(cu_seqlens)", "most_of(cu_seqlens)"),
    "an item that is filled elsewhere": (ASK, "        max_seqlen = self.lengths['most']\n", "self.lengths['most']"),
}

# name: (what is stored, whether it is a number)
ENTRIES = {
    "a number": (NUMBER, True),
    "a tensor": (TENSOR, False),
    "a tensor of another shape": (f"{TENSOR}.reshape(1)", False),
    "a tensor made of a number": ("torch.tensor(max(torch.diff(cu_seqlens).tolist()))", False),
    "nothing": ("None", False),
}

LAYERS = TOWER[TOWER.index("        self.layers = ") : TOWER.index("        self.attn_backend = ")]
# name: (old, new, ...); calls of which it cannot be told that they reach attention
UNFOLLOWED: dict[str, tuple[str, ...]] = {
    "by a class out of a dictionary": (
        LAYERS,
        "        kinds = {'full': VisionAttention}\n"
        "        self.layers = nn.ModuleList([kinds['full'](hidden, heads)])\n",
    ),
    "by a checkpoint": (
        "layer(x, cu_seqlens=cu_seqlens, max_seqlen=max_seqlen)",
        "torch.utils.checkpoint.checkpoint(layer, x, cu_seqlens, max_seqlen)",
    ),
    "by getattr": (
        *(
            LAYERS,
            "        for i in range(depth):\n            setattr(self, f'layer{i}', VisionAttention(hidden, heads))\n",
        ),
        *("in self.layers:", "in [getattr(self, f'layer{i}') for i in range(2)]:"),
    ),
}


@pytest.fixture
def port(tmp_path: Path) -> Port:
    return porter(tmp_path)


def table(rows: dict[str, tuple[str, ...]]) -> list[object]:
    return [pytest.param(row, id=name) for name, row in rows.items()]


class TestLongest:
    @pytest.mark.parametrize(("before", "after"), WRITTEN.values(), ids=WRITTEN)
    def test_is_made_a_tensor(self, before: str, after: str, port: Port) -> None:
        ported = port(edited(MODEL, NUMBER, before))
        assert ported.findings == []
        assert ported.assigned("max_seqlen")[:2] == ["None", after]

    @pytest.mark.parametrize("edits", table(WAYS))
    def test_is_followed_to_where_it_is_computed(self, edits: tuple[str, ...], port: Port) -> None:
        ported = port(edited(MODEL, *edits))
        assert ported.findings == []
        assert ported.assigned("max_seqlen")[1] == TENSOR

    def test_is_followed_through_a_local_name(self, port: Port) -> None:
        ported = port(
            edited(
                MODEL, SET, "            sizes = torch.diff(cu_seqlens)\n            max_seqlen = sizes.max().item()\n"
            )
        )
        assert ported.findings == []
        assert ported.assigned("max_seqlen")[1] == "sizes.max()"

    def test_is_followed_into_a_function_of_the_module(self, port: Port) -> None:
        head = "\n\nclass VisionAttention"
        function = f"\n\ndef longest(cu_seqlens):\n    return {NUMBER}\n{head}"
        ported = port(edited(MODEL, head, function, "self.longest(", "longest("))
        assert ported.findings == []
        assert ported.body("longest") == f"return {TENSOR}"

    @pytest.mark.parametrize("setting", ["most = 4\n", "with torch.no_grad():\n    most = 4\n"])
    def test_is_followed_to_the_lines_of_the_module(self, setting: str, port: Port) -> None:
        """As in a notebook, whose cells stand in no function."""
        call = f"{setting}tokens = VisionAttention(64, 4)(tokens, cu_seqlens, max_seqlen=most)\n"
        ported = port(f"{MODEL}\n\n{call}")
        assert ported.findings == []
        assert ported.text.endswith(call.replace("= 4", "= torch.tensor(4, dtype=torch.int32)"))

    def test_of_a_loop_of_the_module_is_reported(self, port: Port) -> None:
        call = "for most in (4, 8):\n    VisionAttention(64, 4)(tokens, cu_seqlens, max_seqlen=most)\n"
        (finding,) = port(f"{MODEL}\n\n{call}").findings
        assert finding.message == "most reaches attention as max_seqlen, and cannot be shown to be a tensor"

    def test_is_followed_into_another_file(self, port: Port) -> None:
        lengths = f"def longest(cu_seqlens):\n    max_seqlen = {NUMBER}\n    return max_seqlen\n"
        model = edited(
            MODEL, "self.longest(", "longest(", "\n\nclass VisionA", "\nfrom .lengths import longest\n\n\nclass VisionA"
        )
        ported = port({"pkg/lengths.py": lengths, "pkg/model.py": model, "pkg/__init__.py": ""})
        assert ported.findings == []
        assert ported.text == lengths.replace(NUMBER, TENSOR)

    def test_changes_its_annotations(self, port: Port) -> None:
        ported = port(
            edited(
                MODEL,
                "def longest(self, cu_seqlens):",
                "def longest(self, cu_seqlens) -> int | None:",
                "max_seqlen, other=None",
                "max_seqlen: int | None, other=None",
            )
        )
        assert ast.unparse(ported.function("VisionTower.longest").returns or ast.Pass()) == "torch.Tensor | None"
        assert "max_seqlen: torch.Tensor | None" in ported.parameters("VisionAttention.forward")

    def test_of_numpy_lengths_is_wrapped(self, port: Port) -> None:
        steps = "            sizes = np.diff(cu_seqlens.numpy())\n            max_seqlen = sizes.max().item()\n"
        ported = port(edited(MODEL, SET, steps, "import torch\nimport", "import numpy as np\nimport torch\nimport"))
        assert ported.findings == []
        assert ported.assigned("max_seqlen")[1].startswith("torch.tensor(sizes.max()")

    @pytest.mark.parametrize("edits", table(UNFOLLOWED))
    def test_is_a_tensor_or_reported_where_calls_are_not_followed(self, edits: tuple[str, ...], port: Port) -> None:
        ported = port(edited(MODEL, *edits))
        assert ported.left(Severity.WARNING) or ported.assigned("max_seqlen")[1] == TENSOR

    @pytest.mark.parametrize("edits", table(STRAY))
    def test_that_is_used_as_a_number_as_well_is_reported(self, edits: tuple[str, ...], port: Port) -> None:
        ported = port(edited(MODEL, *edits))
        ((code, message),) = ported.left(Severity.WARNING)
        assert (code, "is used as a number at model.py:" in message) == ("VA303", True)
        assert ported.assigned("max_seqlen")[1] == NUMBER

    @pytest.mark.parametrize("edits", table(UNKNOWN))
    def test_that_may_be_a_number_is_reported(self, edits: tuple[str, ...], port: Port) -> None:
        ported = port(edited(MODEL, *edits[:-1]))
        assert ported.left(Severity.WARNING) == [
            ("VA303", f"{edits[-1]} reaches attention as max_seqlen, and cannot be shown to be a tensor")
        ]

    @pytest.mark.parametrize(("stored", "is_number"), ENTRIES.values(), ids=ENTRIES)
    def test_is_followed_into_a_dictionary(self, stored: str, is_number: bool, port: Port) -> None:
        """The entry stays as it is: others may read it."""
        ask = "        lengths = {'most': NUMBER}\n        max_seqlen = lengths['most']\n".replace("NUMBER", stored)
        ported = port(edited(MODEL, ASK, ask))
        message = "lengths['most'] reaches attention as max_seqlen, and all that is stored there are numbers"
        assert ported.left(Severity.WARNING) == ([("VA303", message)] if is_number else [])
        assert f"lengths = {{'most': {stored}}}" in ported.text

    def test_that_the_attention_takes_from_a_shape_is_reported(self, port: Port) -> None:
        shape = "        length, batch, _ = x.shape\n"
        ported = port(edited(MODEL, shape, f"{shape}        if max_seqlen is None:\n            max_seqlen = length\n"))
        assert [code for code, _ in ported.left(Severity.WARNING)] == ["VA303"]

    def test_of_no_attention_stays_a_number(self, port: Port) -> None:
        other = f"\n\ndef padded(x, cu_seqlens):\n    max_seqlen = {NUMBER}\n    return x.new_zeros(max_seqlen)\n"
        ported = port(MODEL + other)
        assert ported.findings == []
        assert f"max_seqlen = {NUMBER}\n    return x.new_zeros(max_seqlen)" in ported.text


PROBE = "\n\ndef probe(model, cu_seqlens):\n    return model.visual.longest(cu_seqlens)[0]\n"
OVERRIDE = "\n\nclass Other(VisionTower):\n    def longest(self, cu_seqlens):\n        return cu_seqlens.max(), [1]\n"


class TestLengthsForXformers:
    def test_go_from_where_they_are_computed_to_where_they_are_read(self, port: Port) -> None:
        ported = port(WITH_LENGTHS)
        assert ported.findings == []
        assert "seqlens" not in ported.text.replace("cu_seqlens", "")
        assert ported.body("VisionTower.longest").endswith("return max_seqlen")
        assert ported.assigned("max_seqlen")[-1] == "self.longest(cu_seqlens)"

    @pytest.mark.parametrize("user", [PROBE, OVERRIDE])
    def test_stay_in_the_pair_where_others_take_it_apart(self, user: str, port: Port) -> None:
        ported = port(WITH_LENGTHS + user)
        assert ported.body("VisionTower.longest").endswith("return (max_seqlen, seqlens)")
        assert ported.assigned("(max_seqlen, seqlens)")[-1] == "self.longest(cu_seqlens)"
        assert ported.text.endswith(user)
        assert ("VA602", "the backend XFORMERS is not in vLLM 0.28.0") in ported.left(Severity.ERROR)

    def test_stay_where_something_else_reads_them(self, port: Port) -> None:
        loop = "        for layer in self.layers:\n            x ="
        ported = port(edited(WITH_LENGTHS, loop, f"        x = self.embed(x, seqlens)\n{loop}"))
        assert "x = self.embed(x, seqlens)" in ported.body("VisionTower.forward")
        assert ported.body("VisionTower.longest").endswith("return (max_seqlen, seqlens)")
        assert ("VA602", "the backend XFORMERS is not in vLLM 0.28.0") in ported.left(Severity.ERROR)

"""`from module import *` between files of a plugin: what it brings is followed, where only one module can bring it."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from codemods.run import Options, migrate

ATTENTION = """\
    from torch import nn
    from vllm.attention.layer import MultiHeadAttention


    class Block(nn.Module):
        def __init__(self, heads: int, size: int, use_upstream_fa: bool = False) -> None:
            super().__init__()
            self.qkv = nn.Linear(heads * size, 3 * heads * size)
            self.attn = MultiHeadAttention(heads, size, size**-0.5)

        def forward(self, x):
            q, k, v = self.qkv(x).chunk(3, dim=-1)
            return self.attn(q, k, v)
    """

TOWER = """\
    from torch import nn

    {imported}


    class Tower(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = {block}(2, 4, use_upstream_fa=False)
    """


def port(folder: Path, **files: str) -> dict[str, str]:
    for name, text in {"__init__": "", **files}.items():
        (folder / f"{name}.py").write_text(dedent(text))
    migrate([folder], Options(target="0.32.0"))
    return {name: (folder / f"{name}.py").read_text() for name in files}


@pytest.mark.parametrize(
    ("imported", "block", "package"),
    [
        pytest.param("from .attention import *", "Block", "", id="in the file itself"),
        pytest.param("from . import Block", "Block", "from .attention import *\n", id="re-exported"),
        pytest.param("from . import layers as L", "L.Block", "", id="through a module"),
        pytest.param("from .layers import *", "Block", "", id="twice"),
    ],
)
def test_a_parameter_goes_with_the_argument_of_a_caller(
    imported: str, block: str, package: str, tmp_path: Path
) -> None:
    tower = TOWER.format(imported=imported, block=block)
    files = {"attention": ATTENTION, "layers": "from .attention import *\n", "tower": tower, "__init__": package}
    after = port(tmp_path, **files)
    assert "def __init__(self, heads: int, size: int) -> None:" in after["attention"]
    assert f"self.block = {block}(2, 4)\n" in after["tower"]


@pytest.mark.parametrize(
    "layers",
    [
        pytest.param("from .attention import *\nfrom .other import *\n", id="two modules have the name"),
        pytest.param("from .other import *\n\n__all__ = ['Other']\n", id="it is not among what is exported"),
        pytest.param("from .attention import *\n\n\ndef Block(*args, **kwargs): ...\n", id="it is bound anew"),
    ],
)
def test_what_may_be_something_else_keeps_its_arguments(layers: str, tmp_path: Path) -> None:
    tower = TOWER.format(imported="from .layers import *", block="Block")
    other = "class Block:\n    def __init__(self, *args, use_upstream_fa=False) -> None: ...\n"
    after = port(tmp_path, attention=ATTENTION, other=other, layers=layers, tower=tower)
    assert after["tower"] == dedent(tower)

"""VA801: a device's branch that cannot run goes; every branch that may run stays as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from codemods.findings import Severity
from tests.rules.vision_model import Port, edited, porter

IMPLEMENTATION = """\
import torch
from torch import nn


class BlockAttention:
    def __init__(self, heads, head_dim, scale):
        self.heads = heads

    def forward(self, query, key, value, attn_metadata=None):
        return query
"""

HEAD = f"""\
{IMPLEMENTATION}

class ImageAttention(nn.Module):
    def __init__(self, heads, head_dim):
        super().__init__()
        self.heads = heads
        self.on_npu = is_npu()
        self.attention = BlockAttention(heads, head_dim, head_dim**-0.5)

    def forward(self, query, key, value, attn_metadata=None):
"""
IMPORT = "from platform_of_ours import current_platform, is_npu\n"

SHARED = "self.attention.forward(query, key, value, attn_metadata)"
DEVICE = 'self.attention(query, key, value, num_heads=self.heads, input_layout="BSND")'


@pytest.fixture
def port(tmp_path: Path) -> Port:
    return porter(tmp_path)


def model(*body: str) -> str:
    """The model with these lines in `forward`, indented by two levels."""
    return IMPORT + HEAD + "".join(f"        {line}\n" for line in body)


def forward(text: str) -> list[str]:
    """The lines of the last method."""
    return [line[8:] for line in text.rpartition("attn_metadata=None):\n")[2].splitlines()]


FIXED = {
    "a return, and the shared call behind it": (
        ["if is_npu():", f"    return {DEVICE}[0]", f"return {SHARED}"],
        [f"return {SHARED}"],
    ),
    "two arms": (
        ["if is_npu():", f"    out = {DEVICE}[0]", "else:", f"    out = {SHARED}", "return out"],
        [f"out = {SHARED}", "return out"],
    ),
    "a tuple unpacked": (
        ["if is_npu():", f"    out, _ = {DEVICE}", "else:", f"    out = {SHARED}", "return out"],
        [f"out = {SHARED}", "return out"],
    ),
    "a tuple unpacked behind the branch": (
        [
            *(f"out = {DEVICE} if is_npu() else {SHARED}", "if is_npu():", "    out = out[0]"),
            "return out",
        ],
        [f"out = {SHARED}", "return out"],
    ),
    "the other way round": (
        ["if not is_npu():", f"    out = {SHARED}", "else:", f"    out = {DEVICE}[0]", "return out"],
        [f"out = {SHARED}", "return out"],
    ),
    "the device behind an early return": (
        ["if not is_npu():", f"    return {SHARED}", f"return {DEVICE}[0]"],
        [f"return {SHARED}"],
    ),
    "one arm of several": (
        [
            *('if query.device.type == "xpu":', "    out = query * 2"),
            *('elif query.device.type == "npu":', f"    out = {DEVICE}[0]"),
            *("else:", f"    out = {SHARED}", "return out"),
        ],
        ['if query.device.type == "xpu":', "    out = query * 2", "else:", f"    out = {SHARED}", "return out"],
    ),
    "an elif ahead of the shared call": (
        [
            *('if query.device.type == "xpu":', "    return query * 2"),
            *("elif is_npu():", f"    return {DEVICE}[0]", f"return {SHARED}"),
        ],
        ['if query.device.type == "xpu":', "    return query * 2", f"return {SHARED}"],
    ),
    "a test by a flag": (
        ["if self.on_npu:", f"    return {DEVICE}[0]", f"return {SHARED}"],
        [f"return {SHARED}"],
    ),
    "a layout of its own": (
        [
            *("layout = 'BNSD'", "if is_npu():", "    query = query.transpose(1, 2)"),
            *("    out = self.attention(query, key, value, input_layout=layout)[0]", "    return out.transpose(1, 2)"),
            f"return {SHARED}",
        ],
        [f"return {SHARED}"],
    ),
    "with and without a mask": (
        [
            *("if is_npu():", "    if attn_metadata is None:", f"        return {DEVICE}[0]", "    else:"),
            *(f"        return {DEVICE[:-1]}, mask=attn_metadata)[0]", f"return {SHARED}"),
        ],
        [f"return {SHARED}"],
    ),
    "inside of another branch": (
        ["if attn_metadata is not None:", "    if is_npu():", f"        return {DEVICE}[0]", f"return {SHARED}"],
        [f"return {SHARED}"],
    ),
    "where an error is handled": (
        [
            *("try:", "    key = key.contiguous()", "except RuntimeError:", "    if is_npu():"),
            *(f"        return {DEVICE}[0]", f"    return {SHARED}", "return query"),
        ],
        ["try:", "    key = key.contiguous()", "except RuntimeError:", f"    return {SHARED}", "return query"],
    ),
    "a name that is not defined": (
        ["if is_npu():", "    return fused_attention(query, key, value, scale=1.0)[0]", f"return {SHARED}"],
        [f"return {SHARED}"],
    ),
    "arguments that forward does not take": (
        ["if is_npu():", f"    return {SHARED[:-1]}, input_layout='BSND')[0]", f"return {SHARED}"],
        [f"return {SHARED}"],
    ),
    "more arguments than forward takes": (
        ["if is_npu():", f"    return {SHARED[:-1]}, 'BSND')", f"return {SHARED}"],
        [f"return {SHARED}"],
    ),
}


@pytest.mark.parametrize(("before", "after"), FIXED.values(), ids=FIXED)
def test_branch_gives_way_to_the_shared_call(before: list[str], after: list[str], port: Port) -> None:
    ported = port(model(*before))
    assert forward(ported.text) == after
    assert "VA801" in {rewrite.code for rewrite in ported.rewrites}
    assert ported.findings == []


def test_imports_without_a_reader_go(port: Port) -> None:
    text = model("if is_npu():", f"    return {DEVICE}[0]", f"return {SHARED}")
    ported = port(text.replace("        self.on_npu = is_npu()\n", ""))
    assert ported.text.startswith("from platform_of_ours import current_platform\n")


OWN = {"attention.py": IMPLEMENTATION, "__init__.py": ""}
USER = edited(
    model("if is_npu():", f"    return {DEVICE}[0]", f"return {SHARED}"),
    *(IMPLEMENTATION, "from torch import nn\n\nfrom .attention import BlockAttention\n"),
)


def test_class_is_found_in_another_file(port: Port) -> None:
    files = {f"plugin/{name}": text for name, text in {**OWN, "model.py": USER}.items()}
    assert forward(port(files, given=["plugin"]).texts["plugin/model.py"]) == [f"return {SHARED}"]


OMNI = """\
import torch.nn as nn
from vllm_omni.diffusion.attention.selector import get_attn_backend
from vllm_omni.platforms import current_omni_platform


class ImageAttention(nn.Module):
    def __init__(self, heads: int, head_dim: int):
        super().__init__()
        self.heads = heads
        self.backend = get_attn_backend(-1)
        self.impl_cls = self.backend.get_impl_cls()
        self.kernel = self.impl_cls(num_heads=heads, head_size=head_dim, softmax_scale=1.0)

    def forward(self, query, key, value, attn_metadata=None):
        if current_omni_platform.is_npu():
            return self.kernel(query, key, value, num_heads=self.heads, input_layout="BSND")[0]
        return self.kernel.forward(query, key, value, attn_metadata)
"""


@pytest.mark.parametrize("target", ["0.14", "0.32"])
def test_class_is_found_in_the_index_of_vllm_omni(target: str, port: Port) -> None:
    ported = port(OMNI, target)
    assert forward(ported.text) == ["return self.kernel.forward(query, key, value, attn_metadata)"]
    assert "current_omni_platform" not in ported.text


# -- what stays --------------------------------------------------------------------------------------------------------

BRANCH = ["if is_npu():", f"    return {DEVICE}[0]", f"return {SHARED}"]
STAYS = {
    "a module": (*("class BlockAttention:", "class BlockAttention(nn.Module):"),),
    "a class that can be called": (
        *("    def forward(self, query, key, value, attn_metadata=None):\n        return query", ""),
        *(
            "        self.heads = heads\n",
            "        self.heads = heads\n\n    def forward(self, query, key, value, attn_metadata=None):\n"
            "        return query\n\n    def __call__(self, query, key, value, **device):\n        return (query,)\n",
        ),
    ),
    "a module further up": (
        *("class BlockAttention:", "class Base(nn.Module):\n    pass\n\n\nclass BlockAttention(Base):"),
    ),
    "the device's own forward": (*(f"{DEVICE}[0]", "self.attention.forward_npu(query, key, value, attn_metadata)"),),
    "the device's own mathematics": (
        *(f"return {DEVICE}[0]", "query = query.cpu().to(torch.float64).to(query.device)"),
    ),
    "a branch on something else": (*("if is_npu():", "if attn_metadata is None:"),),
}


@pytest.mark.parametrize("edits", STAYS.values(), ids=STAYS)
def test_branch_that_may_run_stays(edits: tuple[str, ...], port: Port) -> None:
    text = edited(model(*BRANCH), *edits).replace("self.on_npu = is_npu()", "self.on_npu = None")
    ported = port(text)
    assert ported.text == text
    assert ported.findings == [] and ported.rewrites == []


def test_what_is_caught_is_left_to_a_person(port: Port) -> None:
    text = model(
        *("try:", "    if is_npu():", f"        return {DEVICE}[0]", f"    return {SHARED}"),
        *("except TypeError:", "    return query"),
    )
    ported = port(text)
    assert ported.text == text
    (found,) = ported.findings
    assert (found.code, found.severity) == ("VA801", Severity.ERROR)
    assert "a `try` around it may go on without it" in found.message


def test_without_a_shared_call_nothing_is_made_up(port: Port) -> None:
    text = model("if is_npu():", f"    return {DEVICE}[0]", "return query")
    ported = port(text)
    assert ported.text == text
    (found,) = ported.findings
    assert "self.attention is made by class BlockAttention, which is no module and has no __call__" in found.message
    assert "no arm makes the call that all devices share" in found.message


MADE = "BlockAttention(heads, head_dim, head_dim**-0.5)"
CLASS = "class BlockAttention:"
SUBCLASS = "\n\nclass Fused(BlockAttention, nn.Module):\n    pass\n"
UNKNOWN = {
    "given by the caller": (MADE, "head_dim"),
    "one of two": (MADE, f"nn.Identity() if heads else {MADE}"),
    "with a base from elsewhere": (CLASS, "from kernels import Kernel\n\n\nclass BlockAttention(Kernel):"),
    "with a subclass that is a module": ("\n\nclass ImageAttention", f"{SUBCLASS}\n\nclass ImageAttention"),
}


@pytest.mark.parametrize("edits", UNKNOWN.values(), ids=UNKNOWN)
def test_what_is_not_known_is_asked_for(edits: tuple[str, ...], port: Port) -> None:
    text = edited(model(*BRANCH), *edits)
    ported = port(text)
    assert ported.text == text
    (found,) = ported.findings
    assert (found.code, found.severity) == ("VA801", Severity.WARNING)
    assert "num_heads= to self.attention, which is not shown to be a module, nor to be none" in found.message


def test_star_import_may_define_the_name(port: Port) -> None:
    text = "from kernels import *\n" + model(
        "if is_npu():", "    return fused_attention(query, key, value)[0]", f"return {SHARED}"
    )
    assert port(text).text == text

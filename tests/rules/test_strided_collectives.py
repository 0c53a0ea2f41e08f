"""VA802: what a collective sends is made contiguous where it can be strided, and nothing else is touched."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from textwrap import indent

import pytest

from codemods.findings import Severity
from tests import wheels
from tests.rules.vision_model import Port, porter

HEAD = """\
import torch
import torch.distributed as dist


def move(out, n, ranks, peer, group, received, parts):
"""


@pytest.fixture
def port(tmp_path: Path) -> Port:
    return porter(tmp_path)


def function(*lines: str) -> str:
    return HEAD + "".join(f"    {line}\n" for line in lines)


def body(text: str) -> list[str]:
    return [line[4:] for line in text.removeprefix(HEAD).splitlines()]


# -- which views are strided -------------------------------------------------------------------------------------------

STRIDED = [
    *("out[:, :n]", "out[:, -n:]", "out[..., :n]", "out[..., n:, :]", "out[:, 0]", "out[:, n:, :]", "out[::2]"),
    *("out[None, :, :n]", "out[:n, :, 2:4]", "out[0][:, :n]", "out[:, :n].detach()", "out[:, :n].view(2, n, -1)"),
    *("out.chunk(2, dim=1)[0]", "out.chunk(2, 1)[0]", "torch.chunk(out, 2, dim=-1)[1]", "out.split(n, dim=2)[0]"),
    *("out.tensor_split(2, dim=1)[0]", "out.narrow(1, 0, n)", "out.select(1, 0)", "out.unbind(1)[0]"),
    *("out.transpose(0, 1)", "torch.transpose(out, 1, 2)", "out.permute(1, 0, 2)", "out.T", "out.t()", "out.mT"),
    *("out.movedim(0, 1)", "out.swapaxes(0, 1)", "out.transpose(0, 1).clone()", "out.transpose(0, 1).half()"),
    *("out.expand(2, -1)", "out.transpose(0, 1)[0]", "torch.zeros_like(out.transpose(0, 1))"),
    *("out[:, :n] if n else out[:, n:]", "out[:, :n] if n else out", "out.unsqueeze(1)[:, :, :n]"),
]
CONTIGUOUS = [
    *("out[:n]", "out[n:]", "out[0]", "out[0, :n]", "out[:n, :]", "out[None, :n]", "out[0][1]", "out[:, :]", "out[-1]"),
    *("out[:, 0:]", "out[:, :n][0]", "out.chunk(2)[0]", "out.chunk(2, dim=0)[1]", "out.split(n)[0]", "out.unbind()[0]"),
    *("out.narrow(0, 0, n)", "out.select(0, n)", "out[:, :n].contiguous()", "out[:, :n].clone()", "out.contiguous()"),
    *("torch.empty_like(out[:, :n])", "torch.cat([out[:, :n], out], dim=1)", "out.transpose(0, 1).contiguous()"),
    *("out.transpose(0, 1).transpose(0, 1)", "out.transpose(0, 1).transpose(1, 0)", "torch.stack([out.t(), out.t()])"),
    *("out.new_zeros(out.shape)", "out", "project(out[:, :n])", "out[:, :n] @ out", "out[parts]", "out[:, parts]"),
    "out.transpose(0, 1).clone(memory_format=torch.contiguous_format)",
]
UNDECIDED = ["out.transpose(0, 1).reshape(n, -1)", "out[:, :n].flatten(0, 1)", "out.chunk(2, dim=n)[0]"]


@pytest.mark.parametrize("view", STRIDED)
def test_strided_view_is_made_contiguous(view: str, port: Port) -> None:
    before = [f"x = {view}", "dist.send(x, peer)"]
    ported = port(function(*before))
    assert body(ported.text) == [before[0], "x = x.contiguous()", before[1]]
    assert ported.findings == [] and [r.code for r in ported.rewrites] == ["VA802"]


@pytest.mark.parametrize("view", CONTIGUOUS + UNDECIDED)
def test_anything_else_stays(view: str, port: Port) -> None:
    text = function(f"x = {view}", "dist.send(x, peer)", f"dist.isend({view}, peer)")
    ported = port(text)
    assert ported.text == text
    assert ported.findings == []


PROBE = """
import json, sys, torch
for view in json.load(sys.stdin):
    found = []
    for shape in ((3, 4, 6), (3, 4)):
        names = {"out": torch.ones(shape), "torch": torch, "n": 2, "parts": torch.tensor([0, 1])}
        try:
            found.append(eval(view, {**names, "project": torch.clone}).is_contiguous())
        except (RuntimeError, IndexError):
            pass  # not for this number of dimensions
    print(json.dumps(found))
"""


@pytest.mark.vllm
def test_torch_says_the_same() -> None:
    """On sizes of more than one: what counts as strided is so for some shape, what counts as contiguous for all."""
    views = [*STRIDED, *CONTIGUOUS]
    done = subprocess.run(
        [str(wheels.vllm_python()), "-c", PROBE], input=json.dumps(views), capture_output=True, text=True, check=True
    )
    said = dict(zip(views, map(json.loads, done.stdout.splitlines()), strict=True))
    unproven = {"out[:, :n].view(2, n, -1)", "out.expand(2, -1)", "out[:, :n] @ out"}  # fit no such shape
    assert {view for view in STRIDED if all(said[view])} <= unproven
    assert {view for view in CONTIGUOUS if not all(said[view]) or not said[view]} <= unproven


# -- which argument of which call ------------------------------------------------------------------------------------

SENT = {
    "all_gather": "dist.all_gather(received, {x}, group=group)",
    "all_gather by keyword": "dist.all_gather(tensor=x, tensor_list=received)".replace("=x", "={x}"),
    "all_gather_into_tensor": "dist.all_gather_into_tensor(received, {x})",
    "all_to_all_single": "dist.all_to_all_single(received, {x})",
    "reduce_scatter_tensor": "dist.reduce_scatter_tensor(received, {x})",
    "gather": "dist.gather({x}, received, dst=0)",
    "send": "dist.send({x}, peer)",
    "isend": "work = dist.isend({x}, peer)",
    "P2POp": "ops = [dist.P2POp(dist.isend, {x}, peer), dist.P2POp(dist.irecv, received, peer)]",
    "spelled out": "torch.distributed.send({x}, peer)",
}


@pytest.mark.parametrize("call", SENT.values(), ids=SENT)
def test_sent_tensor(call: str, port: Port) -> None:
    assert body(port(function(call.format(x="out[:, :n]"))).text) == [call.format(x="out[:, :n].contiguous()")]


LISTS = {
    "all_to_all": "dist.all_to_all(received, {x})",
    "reduce_scatter": "dist.reduce_scatter(received, {x})",
    "scatter": "dist.scatter(received, {x}, src=0)",
}


@pytest.mark.parametrize("call", LISTS.values(), ids=LISTS)
def test_sent_list(call: str, port: Port) -> None:
    def mended(made: str) -> str:
        (line,) = body(port(function(call.format(x=made))).text)
        return line

    inner = "part.contiguous() for part in out.chunk(ranks, dim=1)"
    assert mended("list(out.chunk(ranks, dim=1))") == call.format(x=f"[{inner}]")
    assert mended("[t[:, :n] for t in parts]") == call.format(x="[t[:, :n].contiguous() for t in parts]")
    assert mended("[t for t in out.chunk(ranks)]") == call.format(x="[t for t in out.chunk(ranks)]")


def test_list_that_is_appended_to(port: Port) -> None:
    before = [
        "shards = []",
        "for i in range(ranks):",
        "    shards.append(out[:, i])",
        "dist.all_to_all(received, shards)",
    ]
    after = body(port(function(*before)).text)
    assert after == [*before[:3], "shards = [part.contiguous() for part in shards]", before[3]]


FILLED = {
    "all_gather": "dist.all_gather(list(out.chunk(ranks, dim=1)), received)",
    "all_to_all_single": "dist.all_to_all_single(out[:, :n], received)",
    "recv": "dist.recv(out[:, :n], peer)",
    "irecv": "dist.irecv(out[:, :n], peer)",
    "P2POp": "ops = [dist.P2POp(dist.irecv, out[:, :n], peer)]",
    "scatter": "dist.scatter(out[:, :n], parts, src=0)",
    "broadcast": "dist.broadcast(out[:, :n], src=0)",
    "all_reduce": "dist.all_reduce(out.transpose(0, 1))",
}


@pytest.mark.parametrize("call", FILLED.values(), ids=FILLED)
def test_filled_tensor_is_reported_and_never_copied(call: str, port: Port) -> None:
    text = function(call)
    ported = port(text)
    assert ported.text == text
    (found,) = ported.findings
    assert (found.code, found.severity) == ("VA802", Severity.WARNING)


def test_broadcast_of_memory_made_here(port: Port) -> None:
    """A copy may take its place: nobody else sees the memory."""
    before = ["x = torch.empty(n, 4).transpose(0, 1)", "dist.broadcast(x, src=0)", "return x"]
    assert body(port(function(*before)).text) == [before[0], "x = x.contiguous()", *before[1:]]


@pytest.mark.parametrize(
    "lines",
    [
        ["y = torch.empty(n, 4)", "x = y.transpose(0, 1)", "dist.broadcast(x, src=0)", "return y"],
        ["x = torch.empty(n, 4).transpose(0, 1)", "y = x", "dist.broadcast(x, src=0)", "return y"],
    ],
    ids=["a view of what is returned", "another name"],
)
def test_broadcast_into_memory_that_others_see(lines: list[str], port: Port) -> None:
    ported = port(function(*lines))
    assert body(ported.text) == lines
    assert [f.severity for f in ported.findings] == [Severity.WARNING]


# -- the receive list ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("like", ["empty_like", "zeros_like"])
def test_receive_list_is_made_from_contiguous_memory(like: str, port: Port) -> None:
    before = [
        *("if ranks:", "    x = out[:, :n]", "else:", "    x = out[:, -n:]"),
        *(f"lists = [torch.{like}(x) for _ in range(ranks)]", "dist.all_gather(lists, x, group=group)"),
    ]
    assert body(port(function(*before)).text) == [*before[:4], "x = x.contiguous()", *before[4:]]


def test_receive_list_in_the_call(port: Port) -> None:
    before = ["x = out.t()", "dist.all_gather([torch.empty_like(x) for _ in range(ranks)], x)"]
    assert body(port(function(*before)).text) == [before[0], "x = x.contiguous()", before[1]]


def test_receive_buffer_of_a_view_without_a_name(port: Port) -> None:
    """`empty_like` of a transposed tensor is transposed as well, unless told otherwise."""
    before = ["buffer = torch.empty_like(out.t())", "dist.all_to_all_single(buffer, out.t())"]
    ported = port(function(*before))
    assert body(ported.text) == [
        "buffer = torch.empty_like(out.t(), memory_format=torch.contiguous_format)",
        "dist.all_to_all_single(buffer, out.t().contiguous())",
    ]
    assert ported.findings == []


def test_one_name_for_several_calls(port: Port) -> None:
    before = ["x = out[:, :n]", "dist.send(x, peer)", "if n:", "    dist.send(x, peer + 1)"]
    assert body(port(function(*before)).text) == [before[0], "x = x.contiguous()", *before[1:]]


def test_each_arm_has_its_own(port: Port) -> None:
    before = ["x = out[:, :n]", "if n:", "    dist.send(x, peer)", "else:", "    dist.send(x, peer + 1)"]
    arms = ["if n:", "    x = x.contiguous()", before[2], "else:", "    x = x.contiguous()", before[4]]
    assert body(port(function(*before)).text) == [before[0], *arms]


# -- where the name must stay what it is -------------------------------------------------------------------------------

INLINE = {
    "written to": ["x = out[:, :n]", "dist.send(x, peer)", "x[0] = 1"],
    "its base written to": ["x = out[:, :n]", "dist.send(x, peer)", "out.zero_()", "return x"],
    "in a comprehension": ["works = [dist.isend(x, peer) for x in out.chunk(2, dim=1)]"],
    "on one line": ["x = out[:, :n]; dist.send(x, peer)"],
    "on the line of a branch": ["x = out[:, :n]", "if n: dist.send(x, peer)"],
    "an attribute": ["group.x = out[:, :n]", "dist.send(group.x, peer)"],
}


@pytest.mark.parametrize("lines", INLINE.values(), ids=INLINE)
def test_only_the_argument_is_made_contiguous(lines: list[str], port: Port) -> None:
    name = "group.x" if "group.x" in lines[0] else "x"
    after = [line.replace(f"send({name},", f"send({name}.contiguous(),") for line in lines]
    assert body(port(function(*lines)).text) == after != lines


def test_name_of_the_function_around(port: Port) -> None:
    """Set in the inner function it would be another name: there it is not known at all, so nothing is done."""
    text = function("x = out[:, :n]", "def later():", "    dist.send(x, peer)", "return later")
    assert port(text).text == text


# -- what is contiguous already ----------------------------------------------------------------------------------------

GUARDED = {
    "made so": ["x = out[:, :n]", "x = x.contiguous()", "dist.send(x, peer)"],
    "made so if needed": [
        "x = out[:, :n]",
        "if not x.is_contiguous():",
        "    x = x.contiguous()",
        "dist.send(x, peer)",
    ],
    "asserted": ["x = out[:, :n]", "assert x.is_contiguous()", "dist.send(x, peer)"],
    "chosen": ["x = out[:, :n]", "dist.send(x if x.is_contiguous() else x.contiguous(), peer)"],
    "at the call": ["dist.send(out[:, :n].contiguous(), peer)"],
    "another since": ["x = out[:, :n]", "x = project(x)", "dist.send(x, peer)"],
    "left before": ["if n:", "    x = out[:, :n]", "    return x", "x = out", "dist.send(x, peer)"],
}


@pytest.mark.parametrize("lines", GUARDED.values(), ids=GUARDED)
def test_contiguous_tensor_stays(lines: list[str], port: Port) -> None:
    text = function(*lines)
    assert port(text).text == text


DECOYS = [
    "class Router:\n    def send(self, x):\n        self.queue.append(x[:, :2])\n        self.send(x[:, :2])\n",
    "import jax\n\n\ndef f(x):\n    return jax.lax.all_gather(x[:, :2], 'i')\n",
    "def f(socket, x):\n    socket.send(x[:, :2])\n    socket.broadcast(x.transpose(0, 1))\n",
    "import torch\n\n\ndef f(x, index):\n    return torch.gather(x[:, :2], 1, index), x[:, :2].scatter(1, index, x)\n",
    "import numpy as np\n\n\ndef gather(x):\n    return np.ascontiguousarray(x[:, :2])\n",
]


@pytest.mark.parametrize("text", DECOYS, ids=["own method", "jax", "socket", "torch.gather", "numpy"])
def test_other_functions_of_these_names_stay(text: str, port: Port) -> None:
    ported = port(text)
    assert ported.text == text
    assert [f for f in ported.findings if f.code == "VA802"] == []


# -- wrappers ----------------------------------------------------------------------------------------------------------

WRAPPER = """\
import torch
import torch.distributed as dist


class Group:
    def __init__(self, group):
        self.group = group

    def all_gather(self, x, dim=0):
        {ahead}
        out = torch.empty(2 * x.shape[0], *x.shape[1:])
        dist.all_gather_into_tensor(out, x, group=self.group)
        return out


def world() -> Group:
    return Group(None)


def use(x, group: Group):
    world().all_gather(x[:, :2], dim=1)
    half = x.chunk(2, dim=1)[0]
    return group.all_gather(half)
"""


def test_wrapper_that_hands_the_tensor_on(port: Port) -> None:
    text = WRAPPER.format(ahead="dim = dim % x.dim()")
    ported = port(text)
    after = text.replace("x[:, :2],", "x[:, :2].contiguous(),")
    after = after.replace("    return group.", "    half = half.contiguous()\n    return group.")
    assert ported.text == after


def test_wrapper_that_makes_it_contiguous(port: Port) -> None:
    text = WRAPPER.format(ahead="x = x.contiguous()")
    assert port(text).text == text


GATHER = """\
import torch
import torch.distributed as dist


def gather_tokens(x):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x)
    return torch.cat(parts, dim=1)
"""
CALLS = """\
from {package}comm import gather_tokens as joined
from {package}again import gather_more


def whole(x, n):
    head = x[:, :n]
    return joined(head), gather_more(x[:, n:])
"""


@pytest.mark.parametrize("package", ["plug.", "."])
def test_wrappers_in_other_files(package: str, port: Port) -> None:
    """The file that calls them has no word of collectives, and none of vLLM."""
    again = f"from {package}comm import gather_tokens\n\n\ndef gather_more(y):\n    return gather_tokens(y)\n"
    calls = CALLS.format(package=package)
    files = {"plug/__init__.py": "", "plug/comm.py": GATHER, "plug/again.py": again, "plug/calls.py": calls}
    ported = port(files)
    after = calls.replace("    return", "    head = head.contiguous()\n    return").replace("n:])", "n:].contiguous())")
    assert ported.texts == {**files, "plug/calls.py": after}
    assert ported.findings == []


@pytest.mark.parametrize(
    ("other", "changes"),
    [("", True), ("else:\n\n    def gather_tokens(x):\n        return x.contiguous()\n", False)],
    ids=["one", "which one depends"],
)
def test_wrapper_in_a_branch(other: str, changes: bool, port: Port) -> None:
    head, define = GATHER.split("def ")
    branch = head + "if dist.is_available():\n" + indent("def " + define, "    ") + other
    calls = "from plug.comm import gather_tokens\n\n\ndef whole(x, n):\n    return gather_tokens(x[:, :n])\n"
    ported = port({"plug/__init__.py": "", "plug/comm.py": branch, "plug/calls.py": calls})
    assert (ported.texts["plug/calls.py"] != calls) is changes


OMNI = """\
from vllm_omni.diffusion.distributed.parallel_state import get_cfg_group


def combine(pred):
    half = pred.chunk(2, dim=1)[0]
    return get_cfg_group().all_gather(half, separate_tensors=True)
"""


@pytest.mark.parametrize(("target", "changes"), [("0.14", True), ("0.18", True), ("0.20", False), ("0.32", False)])
def test_wrapper_of_vllm_omni_by_its_release(target: str, changes: bool, port: Port) -> None:
    """vllm-omni's all_gather makes its argument contiguous from 0.20 on."""
    after = OMNI.replace("    return", "    half = half.contiguous()\n    return") if changes else OMNI
    ported = port(OMNI, target)
    assert ported.text == after
    assert ported.findings == []


def test_group_of_which_nothing_is_known(port: Port) -> None:
    text = "def use(x, group):\n    return group.all_gather(x[:, :2])\n"
    ported = port(text)
    assert ported.text == text
    (found,) = ported.findings
    assert (found.code, found.severity) == ("VA802", Severity.NOTE)


def test_module_without_a_function(port: Port) -> None:
    before = "import torch\nimport torch.distributed as dist\n\nx = torch.ones(2, 4)[:, :2]\ndist.send(x, 1)\n"
    assert port(before).text == before.replace("dist.send", "x = x.contiguous()\ndist.send")

"""The index of vllm-omni: what it is built from, what it answers, and that it agrees with the wheels."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from textwrap import dedent

import pytest

from codemods.devices import build_omni_api as build
from codemods.vllm_omni_api import Kind, OmniApi, Role
from codemods.vllm_omni_api.api import facts_of, releases
from tests import wheels

ATTENTION = "vllm_omni.diffusion.attention.backends.abstract"
GROUPS = "vllm_omni.diffusion.distributed.group_coordinator"

PACKAGE = {
    "vllm_omni/__init__.py": "",
    "vllm_omni/diffusion/attention/__init__.py": "from .kernels import Kernel\n",
    "vllm_omni/diffusion/attention/kernels.py": """
        from abc import ABC
        from torch import nn
        class Kernel(ABC):
            def forward(self, q, k, *, mask=None): ...
        class Layer(nn.Module):
            def __init__(self):
                self.kernel: Kernel = pick()()
            def forward(self, q): ...
        class Mixed(ABC):
            def forward(self, q): ...
        def pick() -> type[Kernel]: ...
        """,
    "vllm_omni/diffusion/distributed/groups.py": """
        import torch.distributed as dist
        class Group:
            def all_gather(self, x, dim=0):
                dist.all_gather_into_tensor(make(x), x.contiguous())
            def send(self, x, peer):
                dist.send(x, peer)
            def share(self, x):
                dist.broadcast(x, 0)
        def world() -> Group: ...
        def hand_on(x):
            world().send(x, 1)
        """,
    "vllm_omni/models/own.py": """
        from torch import nn
        from vllm_omni.diffusion.attention.kernels import Mixed
        class Special(Mixed, nn.Module): ...
        """,
}


@pytest.fixture(scope="module")
def package() -> OmniApi:
    return OmniApi(build.read_release({path: dedent(text) for path, text in PACKAGE.items()}))


def test_what_can_be_called(package: OmniApi) -> None:
    kernels = "vllm_omni.diffusion.attention.kernels"
    assert package.callable(f"{kernels}.Kernel") is False
    assert package.callable(f"{kernels}.Layer") is True
    assert package.callable(f"{kernels}.Mixed") is None  # a subclass elsewhere in the package is a module


def test_what_is_returned(package: OmniApi) -> None:
    kernel = "vllm_omni.diffusion.attention.kernels.Kernel"
    made = package.function("vllm_omni.diffusion.attention.kernels.pick")
    assert made is not None and made.returns == {Kind(kernel, is_class=True)}
    assert package.attribute("vllm_omni.diffusion.attention.kernels.Layer", "kernel") == {Kind(kernel)}
    assert package.follow("vllm_omni.diffusion.attention.Kernel") == kernel


def test_what_is_sent(package: OmniApi) -> None:
    group = "vllm_omni.diffusion.distributed.groups.Group"
    sends = {name: package.method(group, name) for name in ("all_gather", "send", "share")}
    assert {name: method.sends for name, method in sends.items() if method} == {
        "all_gather": (),
        "send": (("x", Role.SENT),),
        "share": (("x", Role.BOTH),),
    }
    through = package.function("vllm_omni.diffusion.distributed.groups.hand_on")
    assert through is not None and through.sends == (("x", Role.SENT),)


def test_arguments_of_a_call() -> None:
    method = OmniApi.beside("0.14.1").method(f"{GROUPS}.GroupCoordinator", "all_gather")
    assert method is not None
    (call,) = (n for n in ast.walk(ast.parse("g.all_gather(half, dim=1)")) if isinstance(n, ast.Call))
    assert [ast.unparse(node) for p in ("input_", "dim") if (node := method.passed(call, p))] == ["half", "1"]
    assert method.passed(call, "separate_tensors") is None


def test_real_releases() -> None:
    """Facts looked up by hand: implementations are no modules; all_gather makes tensors contiguous from 0.20 on."""
    sent = {}
    for release in releases():
        api = OmniApi.beside(release)
        assert api.callable(f"{ATTENTION}.AttentionImpl") is False
        assert api.callable("vllm_omni.diffusion.attention.layer.Attention") is True
        method = api.method(f"{GROUPS}.GroupCoordinator", "all_gather")
        assert method is not None
        sent[release] = dict(method.sends)
    assert [release for release in releases() if sent[release]] == ["0.14.0", "0.16.0", "0.18.0"]


def test_release_beside_a_vllm() -> None:
    assert OmniApi.beside("0.15.0") is OmniApi.beside("0.14.0")
    assert OmniApi.beside("0.32.0") is OmniApi.beside(releases()[-1])
    assert OmniApi.beside("0.13.0").callable(f"{ATTENTION}.AttentionImpl") is None


@pytest.mark.corpus
def test_the_command_reads_wheels_and_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the Python files of two real releases: the data it writes, a check of it, and a check of stale data."""

    def files(version: str) -> dict[str, str]:
        root = wheels.omni_files(version)
        return {str(p.relative_to(root.parent)): p.read_text(encoding="utf-8") for p in root.rglob("*.py")}

    monkeypatch.setattr(build, "download", files)
    monkeypatch.setattr(build, "DATA", tmp_path / "data.json")
    assert build.main(["0.20.0", "0.14.0"]) == 0
    history = json.loads((tmp_path / "data.json").read_text(encoding="utf-8"))
    for name, fact in facts_of("0.14.0").items():
        assert history[name][0] == ["0.14.0", fact]
    assert build.main(["0.14.0", "0.20.0", "--check"]) == 0
    assert build.main(["0.14.0", "--check"]) == 1


def test_a_release_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert build.main(["0.0.1"]) == 2
    assert "error: no wheel of vllm-omni 0.0.1" in capsys.readouterr().err

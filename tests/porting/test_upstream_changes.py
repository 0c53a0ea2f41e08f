"""Declared changes of vLLM's own towers: each makes the difference it says, and nothing else is allowed for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import nn

from porting import host
from porting.comparison.case import Case, Pictures
from porting.comparison.original import against_original
from porting.model_file import load
from porting.pairs import Pair
from porting.shim import Original, load_original
from porting.shim.attention import EncoderAttentionIgnoringScale
from porting.towers.find import Found, find, make
from porting.towers.tower import ONE, SEVERAL, VIDEO, Shape
from porting.upstream_changes import UPSTREAM_CHANGES, UpstreamChange, changes

pytestmark = [pytest.mark.vllm, pytest.mark.usefixtures("groups")]

MODELS = Path("model_executor", "models")


class Towers(NamedTuple):
    """A tower of the installed vLLM, the one of vLLM 0.12, and the only change between them."""

    new: Found
    old: Found
    file: Original
    change: UpstreamChange

    def case(self, pictures: Pictures) -> Case:
        shape, dtype = Shape(), torch.float32
        ported, original = make(self.new, shape, dtype), make(self.old, shape, dtype)
        return Case(Pair(self.new, self.old, self.file), shape, pictures, dtype, "cpu", ported, original)


@pytest.fixture
def towers(model_files: Callable[[str], Path]) -> Callable[..., Towers]:
    def both(name: str, **config: object) -> Towers:
        import vllm

        file = load_original(model_files("0.12.0") / MODELS / f"{name}.py", "0.12.0")
        (new,) = find(load(Path(vllm.__file__).parent / MODELS / f"{name}.py"))
        if config:
            of_shape = new.tower.config
            new = replace(new, tower=replace(new.tower, config=lambda shape: {**of_shape(shape), **config}))
        old = replace(new, cls=getattr(file.module, new.name))
        (change,) = (c for c in changes(old.cls, "0.12.0", "0.32.0") if c.classes)
        return Towers(new, old, file, change)

    return both


CHANGED = [
    ("whisper", Pictures("several", SEVERAL), {}),
    ("siglip2navit", Pictures("one", ONE), {}),
    ("siglip", Pictures("one", ONE), {"vision_use_head": True}),
    ("glm4_1v", Pictures("a video and a picture", VIDEO), {}),
]


@pytest.mark.parametrize(("name", "pictures", "config"), CHANGED, ids=[name for name, *_ in CHANGED])
def test_an_original_run_the_new_way_is_equal(
    towers: Callable[..., Towers], name: str, pictures: Pictures, config: dict[str, object]
) -> None:
    both = towers(name, **config)
    case = both.case(pictures)
    assert case.original and both.change.as_after
    new, old = case.output(case.ported), case.output(case.original)
    assert new.shape != old.shape or float((new - old).abs().max()) > 0.1
    outcome = against_original(case)
    assert not outcome.problem and both.change.said() in outcome.note
    # Pictures one at a time are products of other sizes, whose sums come in another order.
    assert outcome.numbers["difference"] == 0 or "sums in another order" in outcome.note
    assert torch.equal(case.output(case.original), old)


@pytest.mark.parametrize(
    ("name", "pictures"),
    [
        ("whisper", Pictures("one", ONE)),
        ("glm4_1v", Pictures("several", SEVERAL)),
        ("paddleocr_vl", Pictures("several", SEVERAL)),
    ],
)
def test_elsewhere_nothing_is_different(towers: Callable[..., Towers], name: str, pictures: Pictures) -> None:
    case = towers(name).case(pictures)
    assert case.original
    assert torch.equal(case.output(case.ported), case.output(case.original))


@pytest.mark.parametrize(("name", "config"), [("paddleocr_vl", {}), ("siglip", {"vision_use_head": True})])
def test_the_parameters_that_went_are_those_declared(
    towers: Callable[..., Towers], name: str, config: dict[str, object]
) -> None:
    both = towers(name, **config)
    case = both.case(Pictures("one", ONE))
    assert case.original
    names = [{name for name, _ in tower.named_parameters()} for tower in (case.ported, case.original)]
    gone = names[1] - names[0]
    assert gone and names[0] <= names[1]
    assert {name for name in names[1] if both.change.drops(name)} == gone


def test_the_result_says_so(towers: Callable[..., Towers]) -> None:
    outcome = against_original(towers("siglip2navit").case(Pictures("one", ONE)))
    assert (outcome.problem, outcome.numbers["difference"], outcome.compared) == ("", 0.0, 1)
    assert "vLLM 0.17.0 changed this: the last layer norm is built, and no longer applied" in outcome.note


def test_a_fault_beside_a_change_is_still_one(towers: Callable[..., Towers]) -> None:
    case = towers("siglip2navit").case(Pictures("one", ONE))
    with torch.no_grad():
        next(p for name, p in case.ported.named_parameters() if name.endswith("fc2.bias"))[0] += 0.01
    assert "differs by" in against_original(case).problem


def test_a_tower_with_other_parameters_is_not_compared(
    model_files: Callable[[str], Path], towers: Callable[..., Towers]
) -> None:
    import vllm

    file = load_original(model_files("0.12.0") / MODELS / "pixtral.py", "0.12.0")
    found = find(load(Path(vllm.__file__).parent / MODELS / "pixtral.py"))
    new = next(f for f in found if f.name == "VisionTransformer")
    old = replace(new, cls=file.module.VisionTransformer)
    ported, original = make(new, Shape(), torch.float32), make(old, Shape(), torch.float32)
    case = Case(Pair(new, old, file), Shape(), Pictures("one", ONE), torch.float32, "cpu", ported, original)
    outcome = against_original(case)
    assert (outcome.compared, outcome.problem) == (0, "")
    assert "changed this: query, key and value" in outcome.note


class _Scaled(nn.Module):
    def __init__(self, scale: float | None) -> None:
        super().__init__()
        self.attention = EncoderAttentionIgnoringScale(2, 16, scale=scale)


def test_the_scale_that_0_13_did_not_use_is_used() -> None:
    (change,) = changes(_Scaled, "0.13.0", "0.14.0")
    with host.vllm_config():
        tower = _Scaled(0.7)
    q, k, v = torch.randn(3, 1, 5, 2, 16)
    bounds = torch.tensor([0, 5], dtype=torch.int32)
    assert change.as_after
    with change.as_after(tower):
        scaled = tower.attention(q, k, v, bounds)
    weights = torch.softmax(torch.einsum("bqhd,bkhd->bhqk", q, k) * 0.7, dim=-1)
    torch.testing.assert_close(scaled, torch.einsum("bhqk,bkhd->bqhd", weights, v), atol=1e-6, rtol=0)
    assert tower.attention.scale == 0.25


def test_a_change_counts_for_originals_before_it_and_ports_from_it_on() -> None:
    cls = type("Siglip2NavitModel", (), {"__module__": "vitport_original_0.siglip2navit"})
    assert [c.since for c in changes(cls, "0.16.0", "0.17.0")] == ["0.17.0"]
    assert changes(cls, "0.17.0", "0.32.0") == ()
    assert changes(cls, "0.14.0", "0.16.0") == ()


def test_a_class_of_another_file_is_not_excused_for_its_name() -> None:
    cls = type("VisionTransformer", (), {"__module__": "plum_vl.vision"})
    assert changes(cls, "0.14.0", "0.32.0") == ()


def test_every_change_has_its_evidence_and_a_way_to_compare_or_none_said() -> None:
    for change in UPSTREAM_CHANGES:
        assert change.evidence and change.what
        assert change.said().endswith(
            "not compared" if change.as_after is None else "compared with the original run that way"
        )

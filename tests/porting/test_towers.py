"""Vision towers are found by what they are, and every family's recipe builds and feeds the class of this vLLM."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn
from vllm.model_executor.layers.attention.mm_encoder_attention import MMEncoderAttention

from porting.attention_calls import attention_calls
from porting.comparison.case import shapes_of
from porting.host import output_tensor
from porting.model_file import load
from porting.towers import families, find, structure
from porting.towers.tower import SEVERAL, Shape, Tower, run

pytestmark = pytest.mark.usefixtures("groups")

MODELS = {
    "deepencoder_clip": "deepencoder",
    "deepencoder_sam": "deepencoder",
    "idefics2": "idefics2_vision_model",
    "pixtral_hf": "pixtral",
    "step3": "step3_vl",
}


class Attention(nn.Module):
    """Self-attention over packed patches, as small as it can be."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.attn = MMEncoderAttention(heads, width // heads)

    def forward(self, x: torch.Tensor, cu_seqlens: torch.Tensor) -> torch.Tensor:
        return self.attn(*self.qkv(x)[None].chunk(3, dim=-1), cu_seqlens=cu_seqlens)[0]


class Lens(nn.Module):
    """A tower of no family: two layers, and a configuration of which one name is its own."""

    def __init__(self, settings: object, prefix: str = "") -> None:
        super().__init__()
        width = settings.hidden_size
        self.embed = nn.Linear(settings.in_channels * settings.patch_size**2, width)
        self.layers = nn.ModuleList(Attention(width, settings.num_heads) for _ in range(settings.depth))
        self.gain = settings.pupil_factor

    def forward(self, x: torch.Tensor, grid_thw: list[list[int]]) -> torch.Tensor:
        bounds = torch.tensor([0, *(t * h * w for t, h, w in grid_thw)]).cumsum(0).to(torch.int32)
        x = self.embed(x)
        for layer in self.layers:
            x = x + self.gain * layer(x, bounds)
        return x


class Eye(nn.Module):
    """A tower that reads something of its configuration of which nothing can be said."""

    def __init__(self, config: object) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Attention(config.iris, 2)])

    def forward(self, x: torch.Tensor, grid_thw: list[list[int]]) -> torch.Tensor:
        return self.layers[0](x, torch.tensor([0, len(x)], dtype=torch.int32))


class GroupedAttention(Attention):
    """Two query heads share a key and value head, and the activation is one of its own."""

    def __init__(self, config: object) -> None:
        super().__init__(config.hidden_size, config.num_heads)
        assert config.hidden_act == "silu"
        self.attn = MMEncoderAttention(config.num_heads, config.head_dim, num_kv_heads=config.num_key_value_heads)
        self.qkv = nn.Linear(config.hidden_size, (config.num_heads + 2 * config.num_key_value_heads) * config.head_dim)
        self.sizes = [heads * config.head_dim for heads in (config.num_heads, *[config.num_key_value_heads] * 2)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attn(*self.qkv(x).split(self.sizes, dim=-1))


class Facet(nn.Module):
    """A tower for pictures of one size, with grouped-query attention."""

    def __init__(self, config: object) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, config.hidden_size, config.patch_size, config.patch_size)
        self.layers = nn.ModuleList(GroupedAttention(config) for _ in range(config.depth))

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        x = self.patches(pixel_values).flatten(2).transpose(1, 2)
        for layer in self.layers:
            x = x + layer(x)
        return x


class Helmet(nn.Module):
    """A tower around another, which wants something that is not known."""

    def __init__(self, config: object, visor: object) -> None:
        super().__init__()
        self.facet = Facet(config)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        return self.facet(pixel_values)


class Camera(nn.Module):
    """A whole model: it takes token ids."""

    def __init__(self, config: object) -> None:
        super().__init__()
        self.visual = Lens(config)

    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return self.visual(input_ids, [[1, 1, 1]])


def module_of(*classes: type) -> ModuleType:
    """These classes as a module of their own."""
    module = ModuleType(__name__)
    vars(module).update({cls.__name__: cls for cls in classes})
    return module


@pytest.mark.parametrize("family", families(), ids=lambda tower: tower.family)
def test_a_recipe_fits_the_class_of_this_vllm(family: Tower) -> None:
    module = import_module(f"vllm.model_executor.models.{MODELS.get(family.family, family.family)}")
    (found,) = (found for found in find.find(module) if found.name in family.classes)
    assert found.tower is family
    shape = Shape(head_dim=72)
    tower = find.make(found, shape, torch.float32)
    calls = []
    for op in tower.modules():
        if isinstance(op, MMEncoderAttention):
            op.register_forward_hook(lambda *_: calls.append(1))
            assert (op.head_size, op.num_heads) == (72, shape.heads)
    output = output_tensor(run(tower, found.inputs(shape, SEVERAL, torch.float32)))
    assert output.isfinite().all() and output.std() > 0
    assert len(calls) == shape.depth or family.family == "deepencoder_sam"  # its own attention


def test_a_tower_of_no_family_is_built_from_names_and_guesses() -> None:
    (found,) = find.find(module_of(Attention, Lens, Camera))
    assert found.cls is Lens
    assert found.guessed == ("pupil_factor=1.0",)
    assert "pupil_factor=1.0" in found.notes[1]


def test_a_tower_with_grouped_queries_is_asked_with_them() -> None:
    (found,) = find.find(module_of(GroupedAttention, Facet))
    assert found.tower.grouped_query
    grouped = [shape for shape in shapes_of(found) if shape.kv_heads]
    tower = find.make(found, grouped[0], torch.float32)
    assert (tower.layers[0].attn.num_heads, tower.layers[0].attn.num_kv_heads) == (4, 2)
    assert run(tower, found.inputs(grouped[0], SEVERAL, torch.float32)).shape == (3, 64, grouped[0].hidden_size)


def test_a_part_stands_for_a_tower_that_cannot_be_built_and_that_is_said() -> None:
    (found,) = find.find(module_of(GroupedAttention, Facet, Helmet))
    assert found.cls is Facet
    assert "part of Helmet, which cannot be built by itself" in found.notes[-1]
    assert "Helmet is constructed with `visor`, of which nothing is known" in found.notes[-1]


@pytest.mark.parametrize("name", ["qwen2_vl", "qwen2_5_vl", "keye", "siglip2navit", "clip", "moonvit"])
def test_a_vendors_copy_under_another_name_is_built_and_run(name: str, tmp_path: Path) -> None:
    stock = import_module(f"vllm.model_executor.models.{name}")
    (original,) = structure.towers_of(stock)
    text = re.sub(r"\bfrom \.(?=\w)", "from vllm.model_executor.models.", Path(stock.__file__).read_text())
    path = tmp_path / "vendor.py"
    path.write_text(text.replace(original.__name__, "VendorEye"))
    (found,) = find.find(load(path))
    assert found.name == "VendorEye"
    tower = find.make(found, Shape(), torch.float32)
    with attention_calls(tower) as calls:
        run(tower, found.inputs(Shape(), SEVERAL, torch.float32))
    assert len(calls) == 2


def test_pictures_of_one_call_are_those_of_several_calls() -> None:
    for tower in families():
        found = find.Found(nn.Module, tower)
        together = found.inputs(Shape(), SEVERAL, torch.float32)
        alone = found.inputs_one_by_one(Shape(), SEVERAL, torch.float32)
        pixels = [inputs.args[0][0] if isinstance(inputs.args[0], list) else inputs.args[0] for inputs in alone]
        joined = together.args[0] if isinstance(together.args[0], list) else [together.args[0]]
        assert torch.equal(*(torch.cat([part.flatten() for part in parts]) for parts in (joined, pixels)))


def test_what_a_tower_reads_and_nobody_knows_is_named_with_the_remedy() -> None:
    with pytest.raises(find.UnknownTower, match=r"Eye reads `iris` of its configuration.*--config FILE\.json"):
        find.find(module_of(Eye, Attention))


def test_a_configuration_can_be_given(tmp_path: Path) -> None:
    config = tmp_path / "tiny.json"
    config.write_text(json.dumps({"iris": 48, "in_channels": 3, "patch_size": 4}))
    (found,) = find.find(module_of(Eye), config)
    assert found.fixed
    assert find.make(found, Shape(), torch.float32).layers[0].attn.head_size == 24


@pytest.mark.parametrize(("text", "what"), [("{", "cannot be read"), ("[1]", "is not a JSON object")])
def test_a_configuration_that_is_none_is_said_in_a_line(tmp_path: Path, text: str, what: str) -> None:
    config = tmp_path / "tiny.json"
    config.write_text(text)
    with pytest.raises(find.UnknownTower, match=what):
        find.find(module_of(Eye), config)


def test_layers_attention_and_whole_models_are_no_towers() -> None:
    with pytest.raises(find.NoTower, match="no vision tower is defined here"):
        find.find(module_of(Attention, Camera))


def test_a_file_that_only_uses_a_tower_says_where_it_is() -> None:
    elsewhere = ModuleType("camera")
    Camera.__module__ = "camera"
    try:
        elsewhere.Camera = Camera
        with pytest.raises(find.NoTower, match=f"it uses Lens of {__name__}, to be checked there"):
            find.find(elsewhere)
    finally:
        Camera.__module__ = __name__


def test_two_towers_of_a_file_are_both_found() -> None:
    module = import_module("vllm.model_executor.models.pixtral")
    assert [cls.__name__ for cls in structure.towers_of(module)] == ["VisionTransformer", "PixtralHFVisionModel"]

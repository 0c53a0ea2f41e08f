"""The example plugin must be what it says: a real vLLM 0.12 plugin that takes a Qwen2.5-VL checkpoint, and old."""

from __future__ import annotations

import ast
import importlib
import sys
import types
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from codemods.vllm_api import Api

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PLUGIN = Path(__file__).parents[1] / "examples" / "orchard_vl_plugin"
WRITTEN_FOR = "0.12.0"
FILES = sorted((PLUGIN / "orchard_vl").glob("*.py"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}


def imports_of_vllm() -> Iterator[tuple[str, str]]:
    """Every (module, name) that the plugin takes from vLLM."""
    for tree in TREES.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").split(".")[0] == "vllm":
                yield from ((node.module or "", alias.name) for alias in node.names)


def missing_at(version: str) -> set[str]:
    """Names that the plugin imports from vLLM and that this release does not have there."""
    api = Api.of(version)
    return {name for module, name in imports_of_vllm() if not api.has(module, name)}


# Written for vLLM 0.12


def test_every_import_exists_in_the_vllm_it_is_written_for():
    assert missing_at(WRITTEN_FOR) == set()


def test_every_call_into_vllm_binds_there():
    api = Api.of(WRITTEN_FOR)
    origin = {name: f"{module}.{name}" for module, name in imports_of_vllm()}
    calls = [
        (api.signature(origin[call.func.id]), call)
        for tree in TREES.values()
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in origin
    ]
    assert len(calls) >= 15
    for signature, call in calls:
        assert signature is not None, ast.unparse(call.func)
        keywords = [keyword.arg for keyword in call.keywords if keyword.arg]
        starred = any(isinstance(argument, ast.Starred) for argument in call.args)
        assert signature.binds(len(call.args), keywords, star=starred) is None, ast.unparse(call)


def test_it_asks_pip_for_that_vllm():
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "vllm==0.12.*" in project["dependencies"]


# Old


@pytest.mark.parametrize("target", ["0.14.0", "0.18.0", "0.32.0"])
def test_later_releases_lack_what_the_codemod_replaces_and_nothing_else(target: str):
    assert missing_at(target) == {
        "AttentionBackendEnum",
        "apply_rotary_pos_emb_vision",
        "maybe_get_vit_flash_attn_backend",
    }


def test_parameters_flow_across_files():
    files = [path.name for path, tree in TREES.items() if "attn_backend_override" in ast.dump(tree)]
    assert files == ["attention.py", "model.py", "vision.py"]


# A plugin


@pytest.mark.usefixtures("plugin")
def test_the_entry_point_registers_the_model_once(monkeypatch: pytest.MonkeyPatch):
    registered: dict[str, str] = {}

    def register_model(name: str, where: str) -> None:
        assert name not in registered
        registered[name] = where

    registry = SimpleNamespace(register_model=register_model, get_supported_archs=registered.keys)
    monkeypatch.setattr(sys.modules["vllm"], "ModelRegistry", registry)
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (entry_point,) = project["entry-points"]["vllm.general_plugins"].values()
    module, _, function = entry_point.partition(":")

    for _ in range(2):  # vLLM calls it again in each of its processes, and some inherit the registry
        getattr(importlib.import_module(module), function)()

    ((architecture, where),) = registered.items()
    module, _, name = where.partition(":")
    tree = TREES[PLUGIN / f"{module.replace('.', '/')}.py"]
    assert name == architecture
    assert name in {node.name for node in tree.body if isinstance(node, ast.ClassDef)}


# A Qwen2.5-VL checkpoint

ONE_BLOCK = [
    "attn.proj.bias",
    "attn.proj.weight",
    "attn.qkv.bias",
    "attn.qkv.weight",
    "mlp.down_proj.bias",
    "mlp.down_proj.weight",
    "mlp.gate_proj.bias",
    "mlp.gate_proj.weight",
    "mlp.up_proj.bias",
    "mlp.up_proj.weight",
    "norm1.weight",
    "norm2.weight",
]
AROUND_THE_BLOCKS = [
    "patch_embed.proj.weight",
    "merger.ln_q.weight",
    "merger.mlp.0.bias",
    "merger.mlp.0.weight",
    "merger.mlp.2.bias",
    "merger.mlp.2.weight",
]
DEPTH = 2
CHECKPOINT = [*AROUND_THE_BLOCKS, *(f"blocks.{index}.{name}" for index in range(DEPTH) for name in ONE_BLOCK)]
VISION_CONFIG = SimpleNamespace(
    depth=DEPTH,
    hidden_size=32,
    num_heads=2,
    intermediate_size=48,
    hidden_act="silu",
    in_channels=3,
    patch_size=14,
    temporal_patch_size=2,
    spatial_merge_size=2,
    window_size=112,
    fullatt_block_indexes=[1],
    out_hidden_size=64,
)


def test_every_weight_of_the_checkpoint_has_its_parameter(tower: Module):
    parameters = dict(tower.named_parameters())

    loaded = tower.load_weights((name, f"tensor of {name}") for name in CHECKPOINT)

    assert loaded == set(parameters)
    filled = sorted(piece for parameter in parameters.values() for piece, *_ in parameter.pieces)
    assert filled == sorted(f"tensor of {name}" for name in CHECKPOINT)


def test_gate_and_up_fill_the_two_halves_of_one_parameter(tower: Module):
    tower.load_weights((name, name) for name in CHECKPOINT)
    merged = dict(tower.named_parameters())["blocks.1.mlp.gate_up_proj.weight"]
    assert sorted(merged.pieces, key=lambda piece: piece[1]) == [
        ("blocks.1.mlp.gate_proj.weight", 0),
        ("blocks.1.mlp.up_proj.weight", 1),
    ]


def test_every_weight_name_reaches_its_layer_for_quantisation(tower: Module):
    """A layer's `prefix` is what quantisation configurations name; it must say where the layer's parameters are."""
    for name, parameter in tower.named_parameters():
        if parameter.prefix is not None:
            assert f"visual.{name.rpartition('.')[0]}" == parameter.prefix


class Parameter:
    """Remembers what a checkpoint loader put into it."""

    def __init__(self, prefix: str | None) -> None:
        self.prefix = prefix
        self.pieces: list[tuple[object, ...]] = []

    def weight_loader(self, parameter: Parameter, tensor: object, *shard: int) -> None:
        assert parameter is self
        self.pieces.append((tensor, *shard))


class Module:
    """As much of `torch.nn.Module` as naming parameters takes."""

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        for name, value in vars(self).items():
            if isinstance(value, Parameter):
                yield prefix + name, value
            elif isinstance(value, Module):
                yield from value.named_parameters(f"{prefix}{name}.")


class Numbered(Module):
    """`ModuleList` and `Sequential`: children named 0, 1, 2."""

    def __init__(self, *modules: object) -> None:
        children = modules if len(modules) != 1 or isinstance(modules[0], Module) else modules[0]
        for index, child in enumerate(children):  # type: ignore[arg-type]
            setattr(self, str(index), child)


class Layer(Module):
    """A layer of vLLM with a weight and, unless told otherwise, a bias."""

    def __init__(self, *_: object, bias: bool = True, prefix: str | None = None, **__: object) -> None:
        self.weight = Parameter(prefix)
        if bias:
            self.bias = Parameter(prefix)


class Norm(Module):
    def __init__(self, *_: object, **__: object) -> None:
        self.weight = Parameter(None)


class Backend(Enum):
    FLASH_ATTN = 1
    ROCM_AITER_FA = 2
    TORCH_SDPA = 3


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """The plugin, imported where torch and vLLM are only names, with layers that remember what is done to them."""
    linear = dict.fromkeys(
        ["ColumnParallelLinear", "MergedColumnParallelLinear", "QKVParallelLinear", "RowParallelLinear"], Layer
    )
    nn = types.ModuleType("torch.nn")
    vars(nn).update(Module=Module, ModuleList=Numbered, Sequential=Numbered, GELU=Module)
    stubs: dict[str, dict[str, object]] = {
        "torch": {"nn": nn},
        "vllm.attention.backends.registry": {"AttentionBackendEnum": Backend},
        "vllm.attention.layer": {"maybe_get_vit_flash_attn_backend": lambda backend, **_: (backend, None)},
        "vllm.distributed": {"get_tensor_model_parallel_world_size": lambda: 1},
        "vllm.distributed.utils": {"divide": lambda a, b: a // b},
        "vllm.model_executor.layers.conv": {"Conv3dLayer": Layer},
        "vllm.model_executor.layers.layernorm": {"RMSNorm": Norm},
        "vllm.model_executor.layers.linear": linear,
        "vllm.model_executor.models.vision": {"get_vit_attn_backend": lambda **_: Backend.TORCH_SDPA},
    }
    wanted = {"torch", "torch.nn", "torch.nn.functional", "einops", "vllm"}
    wanted |= {
        node.module
        for tree in TREES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module
    }
    wanted = {name for name in wanted if name.split(".")[0] in ("torch", "einops", "transformers", "vllm")}
    for name in wanted:
        module = MagicMock(name=name)
        module.configure_mock(**stubs.get(name, {}))
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "torch.nn", nn)
    monkeypatch.syspath_prepend(PLUGIN)
    for path in FILES:  # so that nothing imported here outlives the test
        name = "orchard_vl" if path.stem == "__init__" else f"orchard_vl.{path.stem}"
        monkeypatch.setitem(sys.modules, name, None)  # type: ignore[arg-type]
        monkeypatch.delitem(sys.modules, name)
    return importlib.import_module("orchard_vl")


@pytest.fixture
def tower(plugin: types.ModuleType) -> Module:
    return importlib.import_module("orchard_vl.vision").OrchardVisionTower(VISION_CONFIG, prefix="visual")

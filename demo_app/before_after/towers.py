"""The example plugin's tower, as it was and as it is ported, with the weights of the small chat model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutputWithPooling

from codemods.trial import Trial
from demo_app.before_after import PLUGIN
from porting import host
from porting.model_file import load
from porting.shim import load_original
from porting.shim.installed import installed_release

FILE, TOWER = Path("orchard_vl", "vision.py"), "OrchardVisionTower"


class Visual(nn.Module):
    """A tower in the place of the one that transformers' own model has. `latest` is what it has given last."""

    def __init__(self, tower: nn.Module) -> None:
        super().__init__()
        self.tower, self.dtype, self.spatial_merge_size = tower, tower.dtype, tower.spatial_merge_size
        self.latest = torch.empty(0)
        self._right = tower.full_attention_layers

    def breaking(self, broken: bool) -> None:
        """Whether it forgets its windows: then every layer looks at the whole picture, which a port must not change."""
        self.tower.full_attention_layers = range(len(self.tower.blocks)) if broken else self._right

    def forward(self, pixels: torch.Tensor, grid_thw: torch.Tensor, **_: Any) -> BaseModelOutputWithPooling:
        self.latest = self.tower(pixels, grid_thw.tolist())
        return BaseModelOutputWithPooling(last_hidden_state=self.latest, pooler_output=self.latest)


def both(folder: Path, config: Any, weights: dict[str, torch.Tensor]) -> tuple[Visual, Visual]:
    """Original and port. `config` is the model's; `weights` are named as below `visual.`.

    A copy of the plugin is ported into `folder` for the installed vLLM. Raises RuntimeError where that fails, and
    whatever building a tower raises.
    """
    original = getattr(load_original(PLUGIN / FILE).module, TOWER)
    ported = getattr(load(_ported(folder) / FILE), TOWER)
    return Visual(_built(original, config, weights)), Visual(_built(ported, config, weights))


def _ported(folder: Path) -> Path:
    trial = Trial(PLUGIN, installed_release())
    if left := [finding for file in trial.seen.files for finding in file.findings]:
        raise RuntimeError(f"the example plugin is not ported: {left[0].message}")
    return trial.write(folder).place


def _built(cls: Callable[..., nn.Module], config: Any, weights: dict[str, torch.Tensor]) -> nn.Module:
    eps = config.text_config.rms_norm_eps
    tower = host.build(lambda: cls(config.vision_config, norm_eps=eps), torch.float32, hf_config=config)
    loaded = tower.load_weights(weights.items())
    missing = {name for name, _ in tower.named_parameters()} - loaded
    if missing:
        raise RuntimeError(f"the checkpoint has no {', '.join(sorted(missing))}")
    return tower

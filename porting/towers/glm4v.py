"""GLM-4V: EVA2-CLIP, whose configuration lies as a dictionary in that of the whole model."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import torch

from porting.towers.names import qwen_names, transformers_names
from porting.towers.pictures import images
from porting.towers.tower import Config, Grid, Inputs, Shape, Tower


def config(shape: Shape) -> dict[str, object]:
    both = {**transformers_names()(shape), **qwen_names(hidden_act="gelu")(shape)}
    vision = {**both, "dropout_prob": 0.0, "num_positions": 65, "scaling_factor": 2.0}
    return {"hidden_size": 48, "ffn_hidden_size": 96, "vision_config": vision}


def inputs(config: Config, grids: Sequence[Grid], dtype: torch.dtype, generator: torch.Generator) -> Inputs:
    return images(SimpleNamespace(**config.vision_config), grids, dtype, generator)


TOWER = Tower(
    family="glm4v",
    classes=("EVA2CLIPModel",),
    config=config,
    inputs=inputs,
    sizes=False,
    video=False,
)

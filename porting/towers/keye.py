"""Keye-VL: as PaddleOCR-VL, and the caller also switches rotary positions on."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from porting.towers.names import transformers_names
from porting.towers.pictures import one_long_sequence
from porting.towers.tower import Config, Grid, Inputs, Tower


def inputs(config: Config, grids: Sequence[Grid], dtype: torch.dtype, generator: torch.Generator) -> Inputs:
    plain = one_long_sequence(config, grids, dtype, generator)
    return Inputs(plain.args, {**plain.kwargs, "use_rope": True, "window_size": -1})


TOWER = Tower(
    family="keye",
    classes=("KeyeSiglipVisionModel",),
    config=transformers_names(spatial_merge_size=2),
    inputs=inputs,
)

"""The towers that are looked at: the port, and its original where there is one."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from porting.pairs import Pair
from porting.towers.find import Found, make
from porting.towers.tower import Grid, Inputs, Shape

BEFORE, AFTER = "before", "after"


def sides(pair: Pair) -> Iterator[tuple[str, Found]]:
    """Which of both there are, by what they are called in the figures."""
    if pair.original:
        yield BEFORE, pair.original
    yield AFTER, pair.ported


def shape_of(pair: Pair) -> Shape:
    """The size to look at: the usual one, or the only one that a given configuration allows."""
    return pair.ported.shape if pair.ported.fixed else Shape()


def built(pair: Pair, found: Found, dtype: torch.dtype, device: str) -> nn.Module:
    return make(found, shape_of(pair), dtype, device)


def inputs(pair: Pair, grid: Grid, dtype: torch.dtype, device: str) -> Inputs:
    """One picture, made anew at each call: a tower may write into what it gets."""
    return pair.ported.inputs(shape_of(pair), (grid,), dtype).to(device)

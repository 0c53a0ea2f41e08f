"""How far an output is from what it should be."""

from __future__ import annotations

import math

import torch


def difference(output: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest absolute difference; infinite where one is NaN and the other is not."""
    if torch.equal(output, expected):
        return 0.0
    distance = (output.double() - expected.double()).abs()
    distance[output.isnan() & expected.isnan()] = 0
    return float(distance.nan_to_num(nan=torch.inf).max())


def part_of_largest(output: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference as a part of the largest number of `expected`.

    Infinite where nothing is proved: other shapes, NaN in either, or an `expected` of zeros alone.
    """
    if output.shape != expected.shape:
        return math.inf
    part = float((output.double() - expected.double()).abs().max() / expected.double().abs().max())
    return math.inf if math.isnan(part) else part

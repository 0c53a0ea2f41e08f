"""Distances between outputs, and what is no proof of anything."""

from __future__ import annotations

import math

import pytest
import torch

from porting.comparison.distance import difference, part_of_largest

RIGHT = torch.tensor([1.0, -4.0])


def test_a_distance_is_absolute_or_a_part_of_the_largest_number() -> None:
    assert difference(torch.tensor([1.0, -3.0]), RIGHT) == 1.0
    assert part_of_largest(torch.tensor([1.0, -3.0]), RIGHT) == 0.25
    assert part_of_largest(RIGHT, RIGHT) == difference(RIGHT, RIGHT) == 0.0


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (torch.zeros(2), torch.zeros(2)),
        (torch.zeros(3), RIGHT),
        (torch.tensor([1.0, math.nan]), RIGHT),
        (torch.tensor([1.0, math.nan]), torch.tensor([1.0, math.nan])),
    ],
)
def test_what_proves_nothing_is_infinitely_far(output: torch.Tensor, expected: torch.Tensor) -> None:
    assert part_of_largest(output, expected) == math.inf


def test_numbers_that_are_none_differ_from_numbers_alone() -> None:
    none = torch.tensor([1.0, math.nan])
    assert difference(none, RIGHT) == math.inf
    assert difference(none, none.clone()) == 0.0

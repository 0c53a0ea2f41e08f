"""A real vLLM in one process, and weights that depend on nothing but names and shapes."""

from __future__ import annotations

import torch
from torch import nn

from porting import host


def test_equal_names_get_equal_weights_whatever_else_there_is() -> None:
    one, more = nn.Sequential(nn.Linear(8, 4)), nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 4))
    for module in (one, more):
        host.fill(module)
    assert torch.equal(one[0].weight, more[0].weight)
    assert not torch.equal(one[0].weight[:, :4], more[1].weight)


def test_the_output_of_a_tower_is_one_tensor_whatever_it_returns() -> None:
    first, second = torch.ones(1, 3, 4), torch.zeros(2, 4)
    assert host.output_tensor((first, [second, None])).shape == (5, 4)

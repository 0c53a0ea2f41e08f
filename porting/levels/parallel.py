"""Does it hold under tensor parallelism of two? One process and two must give the same vectors for the same weights.

The weights are those of the tower in one process; each parameter of a rank takes its part by its own weight_loader, as
from a checkpoint. What that cannot see are weights that the tower's own `load_weights` would have put in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import nn

from porting import host
from porting.forks import ForkFailed, on_ranks
from porting.towers.tower import Inputs
from porting.towers.tower import run as run_tower

RANKS = 2
SECONDS = 120.0  # the tiny towers take about two

# What the other order of a sum may cost, as a part of the largest number: row-parallel layers add partial results.
ALLOWED = {"float32": 1e-5, "float16": 5e-3, "bfloat16": 4e-2}


@dataclass(frozen=True)
class Difference:
    """Two processes against one. `error` is the largest difference on any rank as a part of the largest number."""

    error: float
    sharded: int
    parameters: int


def difference(make: Callable[[], nn.Module], inputs: Inputs, device: str = "cpu") -> Difference:
    """Run the tower that `make` builds and fills in one process and in two. Raises ForkFailed and its kinds."""

    def whole(rank: int) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        tower = make()
        return output_of(tower), {name: weight.detach().cpu() for name, weight in tower.named_parameters()}

    def part(rank: int) -> tuple[torch.Tensor, int]:
        tower = make()
        sharded = load(tower, weights)
        return output_of(tower), sharded

    def output_of(tower: nn.Module) -> torch.Tensor:
        return host.output_tensor(run_tower(tower, inputs)).detach().cpu()

    try:
        ((expected, weights),) = on_ranks(whole, 1, SECONDS, device)
    except ForkFailed as failure:
        raise WholeFails(f"it does not run in one process: {failure}", failure.trace) from None
    parts = on_ranks(part, RANKS, SECONDS, device)
    for output, _ in parts:
        if output.shape != expected.shape:
            raise ForkFailed(f"gives {tuple(output.shape)} where one process gives {tuple(expected.shape)}")
    largest = expected.abs().max().double()
    error = max(float((output.double() - expected.double()).abs().max() / largest) for output, _ in parts)
    return Difference(error, parts[0][1], len(weights))


class WholeFails(ForkFailed):
    """The tower does not even run in one process, so that nothing is known of two."""


def load(tower: nn.Module, weights: Mapping[str, torch.Tensor]) -> int:
    """Give each parameter this rank's part of the whole weight; how many got less than the whole. Raises ValueError."""
    sharded = 0
    for name, parameter in tower.named_parameters():
        whole = weights[name]
        loader = getattr(parameter, "weight_loader", None)
        if loader is not None:
            loader(parameter, whole)
        elif parameter.shape == whole.shape:
            parameter.data.copy_(whole)
        else:
            part = f"{tuple(parameter.shape)} of {tuple(whole.shape)}"
            raise ValueError(f"{name} is {part} and has no weight_loader to say which part")
        sharded += parameter.shape != whole.shape
    return sharded

"""What a family of vision towers has to say of itself to be built tiny and shown pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import nn


@dataclass(frozen=True)
class Shape:
    """The size of a tiny tower. `kv_heads` below `heads` is grouped-query attention, for families that have it."""

    head_dim: int = 80
    heads: int = 2
    kv_heads: int | None = None
    depth: int = 2

    @property
    def hidden_size(self) -> int:
        return self.head_dim * self.heads


class Grid(NamedTuple):
    """A picture (`t` = 1) or a video, in patches: frames, rows, columns."""

    t: int
    h: int
    w: int

    @property
    def patches(self) -> int:
        return self.t * self.h * self.w


# Rows and columns are even, since most families merge patches two by two.
ONE = (Grid(1, 4, 6),)
SEVERAL = (Grid(1, 4, 6), Grid(1, 8, 4), Grid(1, 2, 2))
VIDEO = (Grid(3, 4, 4), Grid(1, 4, 6))


@dataclass(frozen=True)
class Inputs:
    """What a tower's forward is called with."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def to(self, device: torch.device | str) -> Inputs:
        """The same with the floating-point tensors on a device. Grids stay on the CPU, as vLLM keeps them."""

        def moved(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return value.to(device) if value.is_floating_point() else value
            return [moved(item) for item in value] if isinstance(value, list) else value

        return Inputs(tuple(map(moved, self.args)), {name: moved(value) for name, value in self.kwargs.items()})


Config = Any  # vLLM's towers only read attributes of it
MakeInputs = Callable[[Config, Sequence[Grid], torch.dtype, torch.Generator], Inputs]


@dataclass(frozen=True)
class Tower:
    """One family.

    `classes` are the names its vision tower has in vLLM; a class of another name is recognised by what it reads and
    takes. `config` gives the tiny configuration for a shape; a constructor parameter that has the name of one of its
    entries gets that entry. `inputs` gives pixels of N(0, 1) from a generator, for pictures of these grids, as the
    forward takes them, on the CPU. `sizes`: it takes pictures of different sizes in one call. `video`: it takes videos.
    """

    family: str
    classes: tuple[str, ...]
    config: Callable[[Shape], Mapping[str, Any]]
    inputs: MakeInputs
    grouped_query: bool = False
    sizes: bool = True
    video: bool = True


def run(tower: nn.Module, inputs: Inputs) -> Any:
    """The tower's output on these inputs, without gradients."""
    with torch.no_grad():
        return tower(*inputs.args, **inputs.kwargs)

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


@dataclass(frozen=True)
class Inputs:
    """What a tower's forward is called with."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


Config = Any  # an attribute bag: vLLM's towers only read attributes of it


@dataclass(frozen=True)
class Tower:
    """One family.

    `classes` are the names its vision tower has in vLLM; a class of another name is recognised by what it reads and
    takes. `config` gives the tiny configuration for a shape. `inputs` gives pixels of N(0, 1) from a generator, for
    pictures of these grids, as the forward takes them. `arguments` are constructor arguments beside the configuration.
    """

    family: str
    classes: tuple[str, ...]
    config: Callable[[Shape], Mapping[str, Any]]
    inputs: Callable[[Config, Sequence[Grid], torch.dtype, torch.Generator], Inputs]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    grouped_query: bool = False
    video: bool = True


def run(tower: nn.Module, inputs: Inputs) -> Any:
    """The tower's output on these inputs, without gradients."""
    with torch.no_grad():
        return tower(*inputs.args, **inputs.kwargs)

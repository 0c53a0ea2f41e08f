"""What towers are compared on: a size of heads, and pictures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import nn

from porting.host import output_tensor
from porting.pairs import Pair
from porting.towers.find import Found, make
from porting.towers.tower import ONE, SEVERAL, VIDEO, Grid, Inputs, Shape, run
from porting.upstream_changes import AsAfter

HEAD_DIMS = (64, 72, 80, 128)

# What another order of the same sums may cost, as a part of the largest output.
ROUNDING = {torch.float64: 1e-9, torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}


class Pictures(NamedTuple):
    """Pictures to show in one call."""

    name: str
    grids: tuple[Grid, ...]


@dataclass(frozen=True)
class Case:
    """Both towers, built in one shape and dtype, and pictures. `original` is None where there is none to be built.

    `new_ways` make an original compute as a newer vLLM does, where that changed: the original runs inside all of them.
    """

    pair: Pair
    shape: Shape
    pictures: Pictures
    dtype: torch.dtype
    device: str
    ported: nn.Module
    original: nn.Module | None
    new_ways: tuple[AsAfter, ...] = ()

    @property
    def name(self) -> str:
        grouped = f", {self.shape.kv_heads} kv heads" if self.shape.kv_heads else ""
        return f"head_dim {self.shape.head_dim}{grouped}, {self.pictures.name}"

    def inputs(self) -> Inputs:
        """Made anew at each call: a tower may write into what it gets."""
        return self.pair.ported.inputs(self.shape, self.pictures.grids, self.dtype).to(self.device)

    def output(self, tower: nn.Module) -> torch.Tensor:
        """`(tokens, features)`."""
        with self.as_compared(tower):
            return output_tensor(run(tower, self.inputs())).detach()

    def outputs_alone(self, tower: nn.Module) -> torch.Tensor:
        """The same pictures, each in a call of its own, as `(tokens, features)`."""
        one_by_one = self.pair.ported.inputs_one_by_one(self.shape, self.pictures.grids, self.dtype)
        with self.as_compared(tower):
            return torch.cat([output_tensor(run(tower, inputs.to(self.device))).detach() for inputs in one_by_one])

    @contextmanager
    def as_compared(self, tower: nn.Module) -> Iterator[None]:
        """The original computes the new ways while the block lasts; any other tower as it is."""
        with ExitStack() as stack:
            for new_way in self.new_ways if tower is self.original else ():
                stack.enter_context(new_way(tower))
            yield

    def at(self, dtype: torch.dtype) -> Case:
        """The same in another dtype, built anew. There must be an original."""
        assert self.pair.original
        ported, original = (make(of, self.shape, dtype, self.device) for of in (self.pair.ported, self.pair.original))
        return replace(self, dtype=dtype, ported=ported, original=original)


@dataclass(frozen=True)
class Outcome:
    """What one case came to. `problem` is empty if nothing is wrong, `note` what a reader must know all the same.

    `compared` is how many tensors were: nothing compared is no success. `more` goes into the report for the first
    problem only.
    """

    numbers: dict[str, float | int]
    compared: int = 0
    problem: str = ""
    note: str = ""
    more: dict[str, Any] = field(default_factory=dict)


def shapes_of(found: Found) -> Iterator[Shape]:
    """Every size of head that the field uses, and grouped-query attention where the family has it."""
    if found.fixed:
        yield found.shape
        return
    yield from (Shape(head_dim=head_dim) for head_dim in HEAD_DIMS)
    if found.tower.grouped_query:
        yield Shape(heads=4, kv_heads=2)


def pictures_of(found: Found) -> Iterator[Pictures]:
    """One picture, several of different sizes (of one size for towers that take no other), a video beside a picture."""
    yield Pictures("one picture", ONE)
    yield Pictures("several pictures", SEVERAL)
    if found.tower.video:
        yield Pictures("a video and a picture", VIDEO)


def said(error: BaseException) -> str:
    """An exception in one short line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]

"""Tensor parallelism of two: the same numbers as one process, and every way to get it wrong is seen."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path

import pytest
import torch

from porting import forks, host
from porting.levels import parallel
from porting.towers.tower import Inputs

from . import parallel_tower as towers

pytestmark = [pytest.mark.vllm, pytest.mark.usefixtures("no_groups")]

PICTURE = Inputs((torch.randn(6, towers.HIDDEN, generator=torch.Generator().manual_seed(0)),))


def difference(attention: type[towers.Attention]) -> parallel.Difference:
    return parallel.difference(lambda: host.build(attention, torch.float32), PICTURE)


def test_a_right_tower_gives_the_same_on_two_processes() -> None:
    seen = difference(towers.Attention)
    assert seen.error < 1e-6
    assert (seen.sharded, seen.parameters) == (3, 4)  # the bias of a row-parallel layer is added once


@pytest.mark.parametrize("attention", [towers.GathersAcrossRanks, towers.PlainColumns])
def test_heads_that_end_up_on_the_wrong_rank_are_seen(attention: type[towers.Attention]) -> None:
    assert difference(attention).error > 0.1


def test_heads_that_were_not_divided_are_named() -> None:
    with pytest.raises(forks.ForkFailed, match=r"rank \d of 2: RuntimeError: shape '\[6, 3, 4, 16\]'"):
        difference(towers.KeepsAllHeads)


def test_a_rank_that_dies_does_not_leave_the_other_waiting() -> None:
    with pytest.raises(forks.ForkFailed, match="ended with code -9"):
        difference(towers.Dies)
    assert multiprocessing.active_children() == []


def test_a_hang_is_ended_and_says_where() -> None:
    with pytest.raises(forks.ForkHangs, match="still at work after 2 s") as hang:
        forks.forked(lambda: time.sleep(600), 2.0)
    assert f'{Path(__file__).name}", line' in hang.value.trace
    assert multiprocessing.active_children() == []

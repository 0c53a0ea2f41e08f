"""Strict collectives in two real processes over gloo, which itself takes whatever it is given."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional
from torch.distributed import all_gather as imported_by_name

from porting.forks import ForkFailed, forked_ranks
from porting.reference import ContractViolation, strict_collectives

pytestmark = pytest.mark.usefixtures("no_groups")

RANKS, SECONDS = 2, 60.0
ROWS, COLUMNS = 4, 3


def whole() -> torch.Tensor:
    return torch.ones(ROWS, COLUMNS)


def strided() -> torch.Tensor:
    """The same shape, a slice of the last dimension."""
    return torch.ones(ROWS, COLUMNS + 2)[:, :COLUMNS]


def on_root(value: Any) -> Any:
    return value if dist.get_rank() == 0 else None


def exchange(sent: torch.Tensor, received: torch.Tensor) -> None:
    peer = 1 - dist.get_rank()
    operations = [dist.P2POp(dist.isend, sent, peer), dist.P2POp(dist.irecv, received, peer)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()


def on_rank_0(call: Callable[[], Any], on_rank_1: Callable[[], Any] = lambda: None) -> None:
    call() if dist.get_rank() == 0 else on_rank_1()


# Each collective with a tensor `x` of 4 by 3 in each place that takes one.
SENDING: dict[str, Callable[[torch.Tensor], Any]] = {
    "all_gather": lambda x: dist.all_gather([whole(), whole()], x),
    "all_gather, imported by its name": lambda x: imported_by_name([whole(), whole()], x),
    "all_gather_into_tensor": lambda x: dist.all_gather_into_tensor(torch.ones(8, 3), x),
    "all_reduce": dist.all_reduce,
    "all_to_all": lambda x: dist.all_to_all([whole(), whole()], [x, x]),
    "all_to_all_single": lambda x: dist.all_to_all_single(whole(), x),
    "batch_isend_irecv": lambda x: exchange(x, whole()),
    "broadcast": lambda x: dist.broadcast(x, 0),
    "gather": lambda x: dist.gather(x, on_root([whole(), whole()])),
    "reduce": lambda x: dist.reduce(x, 0),
    "reduce_scatter": lambda x: dist.reduce_scatter(whole(), [x, x]),
    "reduce_scatter_tensor": lambda x: dist.reduce_scatter_tensor(torch.ones(2, 3), x),
    "scatter": lambda x: dist.scatter(whole(), on_root([x, x])),
    "functional all_gather": lambda x: functional.all_gather_tensor(x, 0, dist.group.WORLD),
    "functional all_to_all": lambda x: functional.all_to_all_single(x, None, None, dist.group.WORLD),
    "functional reduce_scatter": lambda x: functional.reduce_scatter_tensor(x, "sum", 0, dist.group.WORLD),
}
RECEIVING: dict[str, Callable[[torch.Tensor], Any]] = {
    "all_gather": lambda x: dist.all_gather([x, x], whole()),
    "all_gather_into_tensor": lambda x: dist.all_gather_into_tensor(x, torch.ones(2, 3)),
    "all_to_all": lambda x: dist.all_to_all([x, x], [whole(), whole()]),
    "all_to_all_single": lambda x: dist.all_to_all_single(x, whole()),
    "batch_isend_irecv": lambda x: exchange(whole(), x),
    "gather": lambda x: dist.gather(whole(), on_root([x, x])),
    "reduce_scatter": lambda x: dist.reduce_scatter(x, [whole(), whole()]),
    "reduce_scatter_tensor": lambda x: dist.reduce_scatter_tensor(x, torch.ones(8, 3)),
    "scatter": lambda x: dist.scatter(x, on_root([whole(), whole()])),
}
SOUND: dict[str, Callable[[], Any]] = {
    **{f"{name}, sent": lambda call=call: call(whole()) for name, call in SENDING.items()},
    **{f"{name}, received": lambda call=call: call(whole()) for name, call in RECEIVING.items()},
    "rows of a larger tensor": lambda: dist.all_gather([whole(), whole()], torch.ones(9, 3)[2:6]),
    "send, recv": lambda: on_rank_0(lambda: dist.send(whole(), 1), lambda: dist.recv(whole(), 0)),
    "uneven rows": lambda: dist.all_to_all_single(
        torch.ones(2 * (1 + 2 * dist.get_rank()), 3),
        torch.ones(4, 3),
        output_split_sizes=[1 + 2 * dist.get_rank()] * 2,
        input_split_sizes=[1, 3],
    ),
    "functional all_reduce, which copies": lambda: functional.all_reduce(strided(), "sum", dist.group.WORLD),
    "functional broadcast, which copies": lambda: functional.broadcast(strided(), 0, dist.group.WORLD),
    "objects": lambda: dist.all_gather_object([None, None], {"rank": dist.get_rank()}),
    "barrier": dist.barrier,
}
BROKEN: dict[str, tuple[Callable[[], Any], str]] = {
    **{f"{name}, sent": (lambda call=call: call(strided()), "contiguous") for name, call in SENDING.items()},
    **{f"{name}, received": (lambda call=call: call(strided()), "contiguous") for name, call in RECEIVING.items()},
    "send": (lambda: on_rank_0(lambda: dist.send(strided(), 1)), "contiguous"),
    "recv": (lambda: on_rank_0(lambda: dist.recv(strided(), 1)), "contiguous"),
    "recv from any": (lambda: on_rank_0(lambda: dist.recv(whole())), "HCCL cannot receive from whoever sends first"),
    "transposed": (lambda: dist.all_reduce(torch.ones(3, 4).T), r"shape \(4, 3\).*strides \(1, 4\).*contiguous"),
    "expanded": (lambda: dist.broadcast(torch.ones(1, 3).expand(4, 3), 0), r"strides \(0, 1\)"),
    "on one rank": (
        lambda: dist.all_gather([whole(), whole()], strided() if dist.get_rank() else whole()),
        "contiguous",
    ),
    "float64 is not reduced": (lambda: dist.all_reduce(whole().double()), "dtype that HCCL reduces"),
    "two dtypes": (lambda: dist.all_gather_into_tensor(torch.ones(8, 3).half(), whole()), "must all be"),
    "dtypes of ranks": (
        lambda: dist.broadcast(whole().half() if dist.get_rank() else whole(), 0),
        "HCCL carries bytes",
    ),
    "sizes of ranks": (lambda: dist.all_reduce(torch.ones(4 + dist.get_rank())), "must expect as many"),
    "sizes of a gather": (
        lambda: dist.all_gather([torch.ones(2), torch.ones(2)], torch.ones(2 + dist.get_rank())),
        "must expect as many",
    ),
    "rows that do not fit": (
        lambda: dist.all_to_all_single(torch.ones(4, 3), torch.ones(4, 3), [2, 2], [1, 3]),
        "must expect as many|elements from this rank to itself",
    ),
    "rows that cannot be shared": (lambda: dist.all_to_all_single(torch.ones(3), torch.ones(3)), "share equally"),
    "another call": (
        lambda: on_rank_0(lambda: dist.all_reduce(whole()), lambda: dist.broadcast(whole(), 0)),
        "the same calls in the same order",
    ),
}


@dataclass(frozen=True)
class Outcome:
    """Of one call on one rank. `raised` is empty where it went through."""

    names: tuple[str, ...]
    sites: tuple[str, ...]
    problems: int
    raised: str = ""
    broken: bool = False


def in_group(work: Callable[[int], Any]) -> Callable[[int, Path], Any]:
    """The work of a rank, in a group of gloo."""

    def rank_work(rank: int, rendezvous: Path) -> Any:
        dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=RANKS)
        result = work(rank)
        dist.destroy_process_group()
        return result

    return rank_work


@pytest.fixture
def outcomes(no_groups: None) -> dict[str, list[Outcome]]:
    return every_outcome()


@cache
def every_outcome() -> dict[str, list[Outcome]]:
    """Every call, on both ranks: all in one pair of processes."""

    def every(rank: int) -> dict[str, Outcome]:
        return {name: outcome(call) for name, call in calls()}

    first, second = forked_ranks(in_group(every), RANKS, SECONDS)
    return {name: [first[name], second[name]] for name in first}


def calls() -> Iterator[tuple[str, Callable[[], Any]]]:
    yield from ((f"sound {name}", call) for name, call in SOUND.items())
    yield from ((f"broken {name}", call) for name, (call, _) in BROKEN.items())


def outcome(call: Callable[[], Any]) -> Outcome:
    raised: Exception | None = None
    with strict_collectives() as seen:
        try:
            call()
        except Exception as error:
            raised = error
    names, sites = zip(*((made.name, made.site) for made in seen.calls)) if seen.calls else ((), ())
    broken = isinstance(raised, ContractViolation)
    return Outcome(tuple(names), tuple(sites), len(seen.problems), str(raised or ""), broken)


@pytest.mark.parametrize("name", SOUND)
def test_what_hccl_takes_goes_through(name: str, outcomes: dict[str, list[Outcome]]) -> None:
    for seen in outcomes[f"sound {name}"]:
        assert (seen.raised, seen.problems) == ("", 0)
        if name != "barrier":
            assert seen.names


@pytest.mark.parametrize("name", BROKEN)
def test_what_hccl_does_not_take_raises_on_the_rank_that_gives_it(
    name: str, outcomes: dict[str, list[Outcome]]
) -> None:
    first, second = outcomes[f"broken {name}"]
    told = [seen for seen in (first, second) if seen.names]
    for seen in told:
        assert seen.broken, seen.raised
        assert seen.problems == 1
    if name not in ("send", "recv", "recv from any"):
        assert len(told) == RANKS  # a collective raises on every rank


@pytest.mark.parametrize("name", BROKEN)
def test_the_rule_and_the_line_are_named(name: str, outcomes: dict[str, list[Outcome]]) -> None:
    _, rule = BROKEN[name]
    told = [seen for seen in outcomes[f"broken {name}"] if seen.names]
    assert any(re.search(rule, seen.raised) for seen in told), told
    for seen in told:
        assert all(re.fullmatch(r"test_strict_collectives\.py:\d+ in [\w<>]+", site) for site in seen.sites)
        assert f"{seen.names[-1]} at {seen.sites[-1]}: " in seen.raised


def test_a_rank_hears_why_another_broke_off(outcomes: dict[str, list[Outcome]]) -> None:
    first, second = outcomes["broken on one rank"]
    assert "input is a tensor of float32, shape (4, 3), on cpu, strides (5, 1)" in second.raised
    assert "on rank 1, all_gather at test_strict_collectives.py:" in first.raised


def test_gloo_alone_says_nothing() -> None:
    """So does NCCL where one device is attached: a test without strict collectives cannot fail."""

    def gathered(rank: int) -> torch.Tensor:
        received = [whole(), whole()]
        with strict_collectives():
            pass
        dist.all_gather(received, strided() * rank)
        return torch.stack(received)

    for output in forked_ranks(in_group(gathered), RANKS, SECONDS):
        assert torch.equal(output, torch.stack([whole() * 0, whole()]))


def test_the_violation_leaves_the_block() -> None:
    def gathers(rank: int) -> None:
        with strict_collectives():
            dist.all_gather([whole(), whole()], strided())

    with pytest.raises(ForkFailed, match=r"ContractViolation: all_gather at test_strict_collectives.py:\d+ in gathers"):
        forked_ranks(in_group(gathers), RANKS, SECONDS)


def test_a_group_of_some_ranks_is_asked_alone() -> None:
    def in_groups_of_one_and_two(rank: int) -> dict[str, int]:
        alone = [dist.new_group([0]), dist.new_group([1])][rank]
        with strict_collectives() as seen:
            dist.all_reduce(whole(), group=alone)
            dist.all_reduce(whole())
        return seen.counts()

    assert forked_ranks(in_group(in_groups_of_one_and_two), RANKS, SECONDS) == [{"all_reduce": 2}] * 2


def test_the_example_of_the_page_passes() -> None:
    page = Path(__file__).parents[2] / "docs" / "strict-collectives.md"
    (example,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(example, str(page), "exec"), names)
    names["test_on_two_ranks"]()

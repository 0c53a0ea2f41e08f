"""What each collective gives to whom: the operators below torch.distributed, as a table."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from porting.reference.contract import Contract

ANY_RANK = "recv from any rank"

Given = Mapping[str, Any]  # the arguments of an operator, by name


@dataclass(frozen=True)
class Exchange:
    """Of one rank: how many elements it gives each rank of the group and expects of each, and of what dtype."""

    name: str
    gives: tuple[int, ...]
    takes: tuple[int, ...]
    dtype: str

    def fits(self, contract: Contract, rank: int, others: Exchange, other: int) -> None:
        """What another rank does is the other half of this. Raises ContractViolation."""
        mine, its = f"rank {rank}", f"rank {other}"
        rule = f"{its} calls {others.name} meanwhile: all ranks of a group must make the same calls in the same order"
        contract.require(self.name == others.name, "the call", f"{mine}'s", rule)
        rule = f"must be the {others.dtype} of {its}: HCCL carries bytes"
        contract.require(self.dtype == others.dtype, "dtype", f"{self.dtype} on {mine}", rule)
        for giver, gives, taker, takes in (
            (mine, self.gives[other], its, others.takes[rank]),
            (its, others.gives[rank], mine, self.takes[other]),
        ):
            rule = f"{taker} must expect as many, and it expects {takes}: HCCL does not compare them"
            contract.require(gives == takes, "size", f"{gives} elements from {giver} to {taker}", rule)

    def to_json(self) -> str:
        return json.dumps([self.name, self.gives, self.takes, self.dtype])

    @classmethod
    def from_json(cls, text: str) -> Exchange:
        name, gives, takes, dtype = json.loads(text)
        return cls(name, tuple(gives), tuple(takes), dtype)


Counts = Callable[[Contract, Given, int, int], tuple[Sequence[int], Sequence[int]]]


@dataclass(frozen=True)
class Form:
    """An operator: its name in torch.distributed, which arguments are sent and received.

    `counts(contract, given, rank, ranks)` is how many elements this rank gives each rank and expects of each; None for
    calls between two ranks. `reduces` are calls that compute, `copies` those that make a contiguous copy beforehand.
    """

    name: str
    sends: str = ""
    receives: str = ""
    counts: Counts | None = None
    reduces: bool = False
    copies: bool = False

    @property
    def together(self) -> bool:
        """Whether all ranks of the group make the call."""
        return self.counts is not None

    def sent(self, given: Given) -> list[torch.Tensor]:
        return _flat(given[self.sends]) if self.sends else []

    def received(self, given: Given) -> list[torch.Tensor]:
        return _flat(given[self.receives]) if self.receives else []

    def exchange(self, contract: Contract, given: Given, rank: int, ranks: int) -> Exchange | None:
        """What this rank gives and expects, if that is sound in itself. Raises ContractViolation."""
        tensors = self.sent(given) + self.received(given)
        for tensor in tensors[1:]:
            rule = f"must all be {tensors[0].dtype}: HCCL is told one dtype"
            contract.require(tensor.dtype == tensors[0].dtype, "a tensor of the call", tensor, rule)
        if self.name == ANY_RANK:
            contract.broken("src", "left out", "must be given: HCCL cannot receive from whoever sends first")
        if self.counts is None:
            return None
        gives, takes = self.counts(contract, given, rank, ranks)
        return Exchange(self.name, tuple(gives), tuple(takes), str(tensors[0].dtype).removeprefix("torch."))


def _flat(value: Any) -> list[torch.Tensor]:
    """The tensors of an argument, which may be one, a list, or a list of lists."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for part in value or () for tensor in _flat(part)]


def _each(sends: str, receives: str) -> Counts:
    """Lists hold a tensor for each rank; a tensor alone goes to each, or is what each of them gives a part for."""

    def counts(contract: Contract, given: Given, rank: int, ranks: int) -> tuple[Sequence[int], Sequence[int]]:
        found = []
        for name in (sends, receives):
            numbers = [tensor.numel() for tensor in _flat(given[name])]
            rule = f"must be a tensor for each of the {ranks} ranks"
            contract.require(len(numbers) in (0, 1, ranks), name.replace("_", " "), f"{len(numbers)} tensors", rule)
            root = given.get("root_rank")
            if root is not None and len(numbers) == 1 and ranks > 1:  # between the root and this rank alone
                numbers = [numbers[0] if other == root else 0 for other in range(ranks)]
            found.append(numbers * ranks if len(numbers) == 1 else numbers or [0] * ranks)
        gives, takes = found
        _to_itself(contract, gives, takes, rank)
        return gives, takes

    return counts


def _parts(whole: str, part: str) -> Counts:
    """One tensor holds the parts of all ranks behind each other."""

    def counts(contract: Contract, given: Given, rank: int, ranks: int) -> tuple[Sequence[int], Sequence[int]]:
        numbers = [tensor.numel() for tensor in _flat(given[part])]
        for tensor, number in zip(_flat(given[whole]), numbers):
            rule = f"must have the elements of {ranks} parts of {number}"
            contract.require(tensor.numel() == ranks * number, "the whole", tensor, rule)
        same = [sum(numbers)] * ranks
        return same, same

    return counts


def _same(tensors: str) -> Counts:
    """Every rank gives and gets as much."""

    def counts(contract: Contract, given: Given, rank: int, ranks: int) -> tuple[Sequence[int], Sequence[int]]:
        same = [sum(tensor.numel() for tensor in _flat(given[tensors]))] * ranks
        return same, same

    return counts


def _rows(sends: str, receives: str = "") -> Counts:
    """Rows of one tensor go to the ranks, in equal shares or as sizes say. A functional call receives no tensor."""

    def counts(contract: Contract, given: Given, rank: int, ranks: int) -> tuple[Sequence[int], Sequence[int]]:
        (sent,) = _flat(given[sends])
        (received,) = _flat(given[receives]) if receives else (None,)
        gives = _shares(contract, "input", sent, given["input_split_sizes"], ranks)
        rows = received if received is not None else sent.new_empty((sum(given["output_split_sizes"]), *sent.shape[1:]))
        takes = _shares(contract, "output", rows, given["output_split_sizes"], ranks)
        _to_itself(contract, gives, takes, rank)
        return gives, takes

    return counts


def _shares(contract: Contract, name: str, tensor: torch.Tensor, sizes: Sequence[int], ranks: int) -> list[int]:
    """The elements of each rank's share of a tensor's rows."""
    row = prod(tensor.shape[1:])
    if not sizes:
        rule = f"must have a number of rows that {ranks} ranks can share equally, as no sizes are given"
        contract.require(tensor.shape[0] % ranks == 0, name, tensor, rule)
        return [tensor.shape[0] // ranks * row] * ranks
    rule = f"must be a size for each of the {ranks} ranks"
    contract.require(len(sizes) == ranks, f"{name}_split_sizes", list(sizes), rule)
    rule = f"must have the {sum(sizes)} rows of {name}_split_sizes"
    contract.require(sum(sizes) == tensor.shape[0], name, tensor, rule)
    return [size * row for size in sizes]


def _to_itself(contract: Contract, gives: Sequence[int], takes: Sequence[int], rank: int) -> None:
    rule = f"it must expect as many, and it expects {takes[rank]}"
    contract.require(gives[rank] == takes[rank], "size", f"{gives[rank]} elements from this rank to itself", rule)


_LISTS = ("input_tensors", "output_tensors")

FORMS = {
    "c10d::_allgather_base_": Form(
        "all_gather_into_tensor", "input_tensor", "output_tensor", _parts("output_tensor", "input_tensor")
    ),
    "c10d::_reduce_scatter_base_": Form(
        "reduce_scatter_tensor", "input_tensor", "output_tensor", _parts("input_tensor", "output_tensor"), True
    ),
    "c10d::allgather_": Form("all_gather", *_LISTS, _each(*_LISTS)),
    "c10d::allgather_coalesced_": Form("all_gather_coalesced", "input_list", "output_lists", _same("input_list")),
    "c10d::allgather_into_tensor_coalesced_": Form(
        "all_gather_into_tensor, coalesced", "inputs", "outputs", _parts("outputs", "inputs")
    ),
    "c10d::allreduce_": Form("all_reduce", "tensors", "", _same("tensors"), True),
    "c10d::allreduce_coalesced_": Form("all_reduce_coalesced", "tensors", "", _same("tensors"), True),
    "c10d::alltoall_": Form("all_to_all", *_LISTS, _each(*_LISTS)),
    "c10d::alltoall_base_": Form("all_to_all_single", "input", "output", _rows("input", "output")),
    "c10d::broadcast_": Form("broadcast", "tensors", "", _same("tensors")),
    "c10d::gather_": Form("gather", *_LISTS, _each(*_LISTS)),
    "c10d::recv_": Form("recv", "", "tensors"),
    "c10d::recv_any_source_": Form(ANY_RANK, "", "tensors"),
    "c10d::reduce_": Form("reduce", "tensors", "", _same("tensors"), True),
    "c10d::reduce_scatter_": Form("reduce_scatter", *_LISTS, _each(*_LISTS), True),
    "c10d::reduce_scatter_tensor_coalesced_": Form(
        "reduce_scatter_tensor, coalesced", "inputs", "outputs", _parts("inputs", "outputs"), True
    ),
    "c10d::scatter_": Form("scatter", *_LISTS, _each(*_LISTS)),
    "c10d::send": Form("send", "tensors"),
    # The functional calls make what they receive.
    "_c10d_functional::all_gather_into_tensor": Form("all_gather_tensor", "input", "", _same("input")),
    "_c10d_functional::all_gather_into_tensor_coalesced": Form(
        "all_gather_into_tensor_coalesced", "inputs", "", _same("inputs")
    ),
    "_c10d_functional::all_reduce": Form("all_reduce", "input", "", _same("input"), True, copies=True),
    "_c10d_functional::all_reduce_": Form("all_reduce", "input", "", _same("input"), True),
    "_c10d_functional::all_reduce_coalesced": Form("all_reduce_coalesced", "inputs", "", _same("inputs"), True, True),
    "_c10d_functional::all_reduce_coalesced_": Form("all_reduce_coalesced", "inputs", "", _same("inputs"), True),
    "_c10d_functional::all_to_all_single": Form("all_to_all_single", "input", "", _rows("input")),
    "_c10d_functional::batch_p2p_ops": Form("batch_isend_irecv", "tensors"),
    "_c10d_functional::broadcast": Form("broadcast", "input", "", _same("input"), copies=True),
    "_c10d_functional::broadcast_": Form("broadcast", "input", "", _same("input")),
    "_c10d_functional::irecv": Form("irecv", "", "tensor"),
    "_c10d_functional::isend": Form("isend", "tensor"),
    "_c10d_functional::reduce_scatter_tensor": Form("reduce_scatter_tensor", "input", "", _same("input"), True),
    "_c10d_functional::reduce_scatter_tensor_coalesced": Form(
        "reduce_scatter_tensor_coalesced", "inputs", "", _same("inputs"), True
    ),
}

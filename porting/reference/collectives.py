"""Collectives that insist on what Ascend's HCCL insists on, on whatever backend there is.

HCCL is given a pointer and a number of elements. What ProcessGroupHCCL of torch_npu checks before that is
not the same from call to call, and what it lets through arrives in the wrong places without a word. gloo copies strided
tensors for its callers, so that a CPU sees neither.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import typing_extensions
from torch.distributed import distributed_c10d as c10d
from torch.utils._python_dispatch import TorchDispatchMode

from porting.reference.collective_forms import FORMS, Exchange, Form
from porting.reference.contract import Contract, ContractViolation, describe

WAIT = timedelta(seconds=60)  # for the other ranks of a group to come to the same call

# Where a call passes on its way down from the line that made it.
_BETWEEN = (str(Path(torch.__file__).parent), str(typing_extensions.__file__), __file__, "<")


@dataclass(frozen=True)
class Collective:
    """A call that was made: its name in `torch.distributed`, the line that made it, the shape of what it was given."""

    name: str
    site: str
    shape: tuple[int, ...]


@dataclass
class Collectives:
    """What happened inside `strict_collectives`: every call in its order, and every call that broke a rule."""

    calls: list[Collective] = field(default_factory=list)
    problems: list[ContractViolation] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        """How often each collective was called."""
        return dict(Counter(call.name for call in self.calls))


@contextmanager
def strict_collectives() -> Iterator[Collectives]:
    """Hold every call of torch.distributed in this block, on every group and backend, to what HCCL carries out right.

    A call that breaks a rule raises ContractViolation before anything is sent. It names the call and the line that made
    it, and the tensor with its shape and strides. The ranks of a group tell one another through the store of
    torch.distributed what they give and expect, so all of them have to enter the block; where one breaks a rule, the
    call raises on each. Calls are seen in the thread that enters the block, below `torch.distributed`: by whatever name
    they are made.
    """
    seen = Collectives()
    with _Strict(seen):
        yield seen


class _Strict(TorchDispatchMode):
    """Every collective is an operator of the namespaces c10d or _c10d_functional."""

    def __init__(self, seen: Collectives) -> None:
        super().__init__()
        self.seen = seen

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Else torch imports its compiler at the first call, which takes longer than all of them."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        form = FORMS.get(func.name())
        if form is not None:
            given = {argument.name: argument.default_value for argument in func._schema.arguments}
            given |= dict(zip(given, args)) | dict(kwargs or {})
            self._check(form, given)
        return func(*args, **(kwargs or {}))

    def _check(self, form: Form, given: Mapping[str, Any]) -> None:
        group = _group(given)
        contract = Contract(f"{form.name} at {_site()}")
        sent, received = form.sent(given), form.received(given)
        shape = tuple((sent or received)[0].shape) if sent or received else ()
        self.seen.calls.append(Collective(form.name, contract.kernel.partition(" at ")[2], shape))
        problem: ContractViolation | None = None
        exchange = None
        try:
            for name, tensors in (("input", sent), ("output", received)):
                for tensor in tensors:
                    _carried(contract, form, name, tensor)
            exchange = form.exchange(contract, given, group.rank(), group.size())
        except ContractViolation as violation:
            problem = violation
        try:
            if form.together and group.size() > 1:
                self._agree(contract, group, exchange, problem)
            if problem:
                raise problem
        except ContractViolation as violation:
            self.seen.problems.append(violation)
            raise

    def _agree(self, contract: Contract, group: Any, mine: Exchange | None, problem: ContractViolation | None) -> None:
        """Every rank says what it gives each other and what it expects of it, and hears the others."""
        store, rank = c10d._get_default_store(), group.rank()
        group_place = f"strict collectives/{group.group_name}"
        place = f"{group_place}/{store.add(f'{group_place} of {rank}', 1)}"  # the store keeps count of a rank's calls
        store.set(f"{place}/{rank}", mine.to_json() if mine else f"!{problem}")
        if mine is None:
            return
        for other in range(group.size()):
            if other == rank:
                continue
            try:
                store.wait([f"{place}/{other}"], WAIT)
            except (RuntimeError, ValueError):  # what a store raises differs by its kind
                contract.broken("the call", "not made", f"rank {other} of the group must come to it as well")
            told = store.get(f"{place}/{other}").decode()
            if told.startswith("!"):
                contract.broken("the call", "broken off", f"on rank {other}, {told[1:]}")
            mine.fits(contract, rank, Exchange.from_json(told), other)


def _carried(contract: Contract, form: Form, name: str, tensor: torch.Tensor) -> None:
    """HCCL can carry that tensor."""
    given = f"{describe(tensor)}, strides {tensor.stride() if tensor.layout is torch.strided else 'none'}"
    contract.require(tensor.layout is torch.strided, name, given, "must be dense")
    contract.require(
        not form.reduces or tensor.dtype in REDUCED,
        name,
        given,
        "must be of a dtype that HCCL reduces: float16, bfloat16, float32, int8, int16, int32 or int64",
    )
    contract.require(
        form.copies or tensor.is_contiguous(),
        name,
        given,
        "must be contiguous: HCCL takes its memory as one run, and refuses it or sends what lies between",
    )


REDUCED = {torch.float16, torch.bfloat16, torch.float32, torch.int8, torch.int16, torch.int32, torch.int64}


def _group(given: Mapping[str, Any]) -> Any:
    """The group of a call, by object or by name."""
    if "process_group" in given:
        return c10d.ProcessGroup.unbox(given["process_group"])
    name = given["group_name"]
    return c10d._resolve_process_group(name) if isinstance(name, str) else name


def _site() -> str:
    """The line that made the call."""
    frame: FrameType | None = sys._getframe(1)
    while frame:
        code = frame.f_code
        if not code.co_filename.startswith(_BETWEEN):
            return f"{Path(code.co_filename).name}:{frame.f_lineno} in {code.co_name}"
        frame = frame.f_back
    return "an unknown place"

"""Does the ported tower give what the original gives?"""

from __future__ import annotations

from dataclasses import replace

import torch

from porting import localise
from porting.comparison.case import ROUNDING, Case, Outcome, said
from porting.comparison.distance import difference, part_of_largest


def against_original(case: Case) -> Outcome:
    """On the CPU every bit must be the same, but for what comes of another order of the same sums alone.

    Elsewhere the two may call different kernels, and rounding is allowed for. Where they differ and vLLM itself changed
    what such a tower computes, the original is run once more the new way: then all must be the same again.
    """
    outcome = _compared(case)
    if not outcome.problem or case.original is None:
        return outcome
    names = [name for name, _ in case.original.named_parameters()]
    told = []
    for change in case.pair.changes:
        if change.as_after is None:
            if any(change.drops(name) for name in names):
                return Outcome({}, note=f"{case.name}: {change.said()}")
            continue
        case = replace(case, new_ways=(*case.new_ways, change.as_after))
        told.append(change.said())
        again = _compared(case)
        if not again.problem:
            return replace(again, note="; ".join(filter(None, (again.note or f"{case.name}: equal", *told))))
    return outcome


def _compared(case: Case) -> Outcome:
    assert case.original
    try:
        expected = case.output(case.original)
    except Exception as error:
        return Outcome({}, note=f"{case.name}: the original cannot be run here, {said(error)}")
    try:
        output = case.output(case.ported)
    except Exception as error:
        return Outcome({}, 1, f"{case.name}: the original runs, the port raises {said(error)}")
    if output.shape != expected.shape:
        return Outcome({}, 1, f"{case.name}: gives {tuple(output.shape)}, the original {tuple(expected.shape)}")
    numbers = {"difference": difference(output, expected), "largest output": float(expected.abs().max())}
    if numbers["difference"] == 0:
        return Outcome(numbers, 1)
    if note := _rounding_alone(case, output, expected):
        return Outcome(numbers, 1, note=f"{case.name}: {note}")
    with case.as_compared(case.original):
        where = localise.first_difference(case.original, case.ported, case.inputs(), case.pictures.grids, case.shape)
    maps = localise.heat_maps((output.double() - expected.double()).abs(), case.pictures.grids)
    problem = f"{case.name}: differs by {numbers['difference']:.3g}, {localise.said(where)}"
    return Outcome(numbers, 1, problem, more={"first difference": where, "heat maps": maps})


def _rounding_alone(case: Case, output: torch.Tensor, expected: torch.Tensor) -> str:
    """Why a difference is no fault, empty if it is one.

    Sums in another order differ in every dtype by its own rounding, so next to nothing in fp64. A step taken in too few
    bits, or another constant, differs in fp64 too, or in 16 bits only.
    """
    part = part_of_largest(output, expected)
    if part > ROUNDING[case.dtype]:
        return ""
    if case.device != "cpu":
        return f"differs by {part:.1g} of the largest output, which is rounding"
    try:
        parts = {dtype: part_of_largest(*_outputs(case.at(dtype))) for dtype in (torch.float64, torch.float32)}
    except Exception:  # what cannot be told from a fault is one
        return ""
    if 0 < parts[torch.float32] <= ROUNDING[torch.float32] and parts[torch.float64] <= ROUNDING[torch.float64]:
        return f"sums in another order, {part:.1g} of the largest output, in fp64 {parts[torch.float64]:.1g}"
    return ""


def _outputs(case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    assert case.original
    return case.output(case.ported), case.output(case.original)

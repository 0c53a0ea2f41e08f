"""Does the ported tower give what attention should give, whatever the original did?

Two questions. Did every call of encoder attention get what has a meaning, and answer as fp64 attention would? And do
pictures that are shown together give what they give alone? The second is what a lost or shifted `cu_seqlens` breaks:
attention then answers rightly, but what it was asked was wrong.
"""

from __future__ import annotations

from torch import nn

from porting.attention_calls import ALLOWED, WrongCall, attention_calls
from porting.comparison.case import ROUNDING, Case, Outcome, said
from porting.comparison.distance import part_of_largest
from porting.localise import heat_maps
from porting.reference.watch import AroundKernels, Watch

# Pictures alone are products of other sizes, which sum in another order, in every layer.
TOGETHER = 10


def against_reference(case: Case) -> Outcome:
    """The errors are parts of the largest value of a call, and of the largest output."""
    numbers: dict[str, float | int] = {"attention calls": 0}
    try:
        with attention_calls(case.ported) as calls:
            together = case.output(case.ported)
        numbers["attention calls"] = len(calls)
        errors = {call.error(): call.name for call in calls}
        alone = case.outputs_alone(case.ported)
    except WrongCall as wrong:
        return Outcome(numbers, len(calls), f"{case.name}: {wrong}")
    except Exception as failure:
        return Outcome(numbers, problem=f"{case.name}: raises {said(failure)}")
    if not errors:
        seen = Watch()
        with AroundKernels(seen):
            case.output(case.ported)
        if seen.unserved:
            return Outcome(numbers, note=seen.unserved)
        return Outcome(numbers, problem="no call of MMEncoderAttention was seen: not ported, or replaced")
    worst = numbers["attention error"] = max(errors)
    if not worst <= ALLOWED[case.dtype]:
        problem = f"{errors[worst]} is {worst:.2g} of the largest value away from fp64 attention"
        return Outcome(numbers, len(calls), f"{case.name}: {problem}")
    if alone.shape != together.shape:
        problem = f"pictures give {tuple(together.shape)} together, {tuple(alone.shape)} alone"
        return Outcome(numbers, len(calls), f"{case.name}: {problem}")
    apart = numbers["together and alone"] = part_of_largest(together, alone)
    if apart <= TOGETHER * ROUNDING[case.dtype]:
        return Outcome(numbers, len(calls) + 1)
    problem = f"pictures see each other: together they give {apart:.2g} of the largest output away from alone"
    if case.original and _so_did(case, case.original):
        return Outcome(numbers, len(calls) + 1, note=f"{case.name}: {problem}, and so in the original")
    maps = heat_maps((together.double() - alone.double()).abs(), case.pictures.grids)
    return Outcome(numbers, len(calls) + 1, f"{case.name}: {problem}", more={"heat maps": maps})


def _so_did(case: Case, original: nn.Module) -> bool:
    """Whether pictures see each other in the original too: then it is not the port that broke it."""
    try:
        return part_of_largest(case.output(original), case.outputs_alone(original)) > TOGETHER * ROUNDING[case.dtype]
    except Exception:  # an original that cannot be run excuses nothing
        return False

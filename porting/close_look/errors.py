"""How far layers and tokens are from the same tower in fp64.

Both towers have the weights and the picture of the fp64 one, rounded to the dtype under test. What is told is rounding,
of which some is always there: it should be of one size before and after, and no layer or token should stand out.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from porting.close_look import towers
from porting.comparison.case import said
from porting.host import output_tensor
from porting.job import Job
from porting.localise import heat_maps, record
from porting.pairs import Pair, each_tower
from porting.result import Result, Status
from porting.towers.tower import Grid

PICTURE = Grid(1, 16, 24)
_DEEP = 2  # dots in the names of submodules that are not told: `blocks.0` is, `blocks.0.attn` is not
_DECADES = range(-12, 1)


def run(job: Job) -> list[Result]:
    """A result for each tower. Its numbers: `layers`, `histogram`, and `heat maps` of the tokens of one picture."""
    return each_tower(job, lambda pair: [_look(job, pair)])


def _look(job: Job, pair: Pair) -> Result:
    dtype = getattr(torch, job.dtype)
    exact, note = _exact(job, pair)
    if exact is None:
        return job.result(Status.NOT_RUN, f"{pair.name}: {note}")
    try:
        recorded = {side: _recorded(job, pair, found, dtype) for side, found in towers.sides(pair)}
    except Exception as error:
        return job.result(Status.ERROR, f"{pair.name}: {said(error)}")
    outputs = {side: _output_error(events, exact) for side, events in recorded.items()}
    maps = [{"side": side, **each} for side, error in outputs.items() for each in heat_maps(error, [PICTURE])]
    numbers = {
        **{f"largest error {side}": float(error.max()) for side, error in outputs.items()},
        "layers": _layers(recorded, exact),
        "histogram": _histogram(outputs),
        "heat maps": maps,
    }
    figures = ", ".join(f"{side} {float(error.max()):.2g}" for side, error in outputs.items())
    summary = f"{pair.name}: largest error, as a part of the largest output: {figures}"
    return job.result(Status.PASSED, summary, numbers=numbers, notes=(*pair.notes, *filter(None, (note,))))


_Events = dict[str, torch.Tensor]


def _exact(job: Job, pair: Pair) -> tuple[_Events | None, str]:
    """What the submodules of the original (of the port, without one) give in fp64; else in fp32, and a note."""
    (_, found), *_ = towers.sides(pair)
    why = ""
    for dtype in (torch.float64, torch.float32):
        try:
            return _recorded(job, pair, found, dtype), why and f"held against fp32, since in fp64: {why}"
        except Exception as error:
            why = said(error)
    return None, f"cannot be run as a reference: {why}"


def _recorded(job: Job, pair: Pair, found: Any, dtype: torch.dtype) -> _Events:
    """The outputs of the first calls of submodules, and of the tower under the name ""."""
    tower = towers.built(pair, found, dtype, job.device)
    events = record(tower, towers.inputs(pair, PICTURE, dtype, job.device))
    return {e.module: value.double().cpu() for e, value in events.items() if e.side == "output" and e.time == 0}


def _output_error(events: _Events, exact: _Events) -> torch.Tensor:
    """`(tokens, features)`, as parts of the largest output."""
    output, expected = (output_tensor(each[""]) for each in (events, exact))
    return (output - expected).abs() / expected.abs().max()


def _layers(recorded: dict[str, _Events], exact: _Events) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for name in [*(name for name in exact if name and name.count(".") < _DEEP), ""]:
        parts = {side: _part(events.get(name), exact[name]) for side, events in recorded.items()}
        rows.append({"layer": name or "the tower", **parts})
    return rows


def _part(output: torch.Tensor | None, expected: torch.Tensor) -> float | None:
    """The largest error as a part of the largest value; None where there is nothing to compare."""
    if output is None or output.shape != expected.shape:
        return None
    largest = float(expected.abs().max())
    return float((output - expected).abs().max()) / largest if largest > 0 else None


def _histogram(outputs: dict[str, torch.Tensor]) -> list[dict[str, Any]]:
    """How many numbers of the output have an error of each decade; the first row is of those without any."""
    rows = [{"error": "0", **{side: int((error == 0).sum()) for side, error in outputs.items()}}]
    for decade in _DECADES:
        low = 0.0 if decade == _DECADES.start else 10.0 ** (decade - 1)
        high = math.inf if decade == _DECADES[-1] else 10.0**decade
        counts = {side: int(((error > low) & (error <= high)).sum()) for side, error in outputs.items()}
        rows.append({"error": f"up to 1e{decade}" if high < math.inf else "more", **counts})
    filled = [index for index, row in enumerate(rows) if any(row[side] for side in outputs)]
    return [rows[0], *rows[max(filled[0], 1) : filled[-1] + 1]]

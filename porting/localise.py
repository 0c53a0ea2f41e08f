"""Where two towers of the same submodules and weights first differ: submodule, token, head, picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn

from porting.host import output_tensor
from porting.towers.tower import Grid, Inputs, Shape, run


class Event(NamedTuple):
    """A submodule that was called, for which time, and whether this is what it got or what it gave."""

    module: str
    time: int
    side: str  # "input" or "output"


def first_difference(
    original: nn.Module, ported: nn.Module, inputs: Inputs, grids: Sequence[Grid], shape: Shape
) -> dict[str, Any]:
    """The first thing that a submodule of both got or gave, and that is not the same, as plain data.

    `module` and `side` say what; `token`, `head` (and `part`, of a joined projection "q", "k" or "v") the largest error
    in it; `picture` which picture the token is of; `wrong` how many of its `tokens` are not the same. Empty if all that
    both have in common is the same.
    """
    then, now = record(original, inputs), record(ported, inputs)
    for event, tensor in now.items():
        if event not in then:
            continue
        expected = then[event]
        what = {"module": event.module or "the tower", "side": event.side}
        if tensor.shape != expected.shape:
            return {**what, "shape": list(tensor.shape), "shape in the original": list(expected.shape)}
        if not torch.equal(tensor, expected):
            return {**what, **_largest((tensor.double() - expected.double()).abs(), grids, shape)}
    return {}


def heat_maps(error: torch.Tensor, grids: Sequence[Grid]) -> list[dict[str, Any]]:
    """The largest error of each token on the grid of its picture, for outputs in the order of the pictures.

    `error` is `(tokens, features)`; tokens are patches, or squares of them that were merged. Empty where they are
    neither. Each map has `picture`, and `errors` of a frame as rows of columns, the frames of a video below each other.
    """
    merged = _patches_in_a_token(len(error), grids)
    side = round(merged**0.5)
    if not merged or side**2 != merged:
        return []
    maps, start = [], 0
    for picture, grid in enumerate(grids):
        rows, columns = grid.t * grid.h // side, grid.w // side
        tokens = error[start : start + rows * columns].amax(dim=1)
        start += rows * columns
        errors = [[float(f"{value:.3g}") for value in row] for row in tokens.view(rows, columns).tolist()]
        maps.append({"picture": picture, "errors": errors})
    return maps


def said(where: dict[str, Any]) -> str:
    """`first_difference` as a phrase."""
    if not where:
        return "all submodules that both have give the same"
    place = f"first in the {where['side']} of {where['module']}"
    if "shape" in where:
        return f"{place}: {where['shape']} instead of {where['shape in the original']}"
    part = f" {where['part']}" if "part" in where else ""
    head = f",{part} head {where['head']}" if "head" in where else ""
    picture = f" of picture {where['picture']}" if "picture" in where else ""
    return f"{place}, token {where['token']}{picture}{head}"


def _largest(error: torch.Tensor, grids: Sequence[Grid], shape: Shape) -> dict[str, Any]:
    rows = error.reshape(-1, error.shape[-1])
    token, feature = divmod(int(rows.argmax()), rows.shape[1])
    found: dict[str, Any] = {
        "token": token,
        "error": float(rows.max()),
        "tokens": len(rows),
        "wrong": int((rows.amax(dim=1) > 0).sum()),
    }
    width = shape.hidden_size
    if rows.shape[1] in (width, 3 * width):
        found["head"] = feature % width // shape.head_dim
    if rows.shape[1] == 3 * width:
        found["part"] = "qkv"[feature // width]
    if merged := _patches_in_a_token(len(rows), grids):
        ends = torch.tensor([grid.patches // merged for grid in grids]).cumsum(0)
        found["picture"] = int(torch.searchsorted(ends, token, right=True))
    return found


def _patches_in_a_token(tokens: int, grids: Sequence[Grid]) -> int:
    """0 where tokens are not the same number of patches each."""
    merged, rest = divmod(sum(grid.patches for grid in grids), tokens)
    return 0 if rest or any(grid.patches % merged for grid in grids) else merged


def record(tower: nn.Module, inputs: Inputs) -> dict[Event, torch.Tensor]:
    """What each submodule of a tower got and gave, in the order of the calls; "" stands for the tower itself."""
    found: dict[Event, torch.Tensor] = {}
    times: dict[str, int] = {}
    with _hooked(tower, found, times):
        output = run(tower, inputs)
    found[Event("", 0, "output")] = output_tensor(output).detach().clone()
    return found


@contextmanager
def _hooked(tower: nn.Module, found: dict[Event, torch.Tensor], times: dict[str, int]) -> Iterator[None]:
    def keep(name: str, side: str, value: Any) -> None:
        value = value[0] if isinstance(value, tuple) and value else value
        if isinstance(value, torch.Tensor) and value.dim() > 1:
            found[Event(name, times[name], side)] = value.detach().clone()

    def before(name: str) -> Any:
        def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
            times[name] = times.get(name, -1) + 1
            keep(name, "input", args or tuple(kwargs.values()))

        return hook

    def after(name: str) -> Any:
        return lambda module, args, output: keep(name, "output", output)

    handles = []
    for name, module in tower.named_modules():
        if name:
            handles.append(module.register_forward_pre_hook(before(name), with_kwargs=True))
            handles.append(module.register_forward_hook(after(name)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()

"""Where each patch of a picture sits, and which patches look at each other.

Patches arrive in merge order: the `merge * merge` patches that later become one language token stand together.
Such a group is a *cell* here; all functions count cells row by row, frame by frame.
"""

from functools import lru_cache
from typing import NamedTuple

import torch


class GridLayout(NamedTuple):
    """One picture or clip: `t` frames of `h` by `w` patches. The tensors are on the CPU and shared: never write."""

    positions: torch.Tensor  # [t * h * w, 2], row and column of each patch, in merge order
    cell_order: torch.Tensor  # [cells], the cells sorted window by window
    window_lengths: torch.Tensor  # [windows], patches in each window, int32
    frame_lengths: torch.Tensor  # [t], patches in each frame, int32


def patch_positions(t: int, h: int, w: int, merge: int) -> torch.Tensor:
    """Row and column of each patch in merge order, [t * h * w, 2]."""
    grid = torch.cartesian_prod(torch.arange(h), torch.arange(w)).view(h // merge, merge, w // merge, merge, 2)
    return grid.transpose(1, 2).reshape(-1, 2).repeat(t, 1)


def window_of_each_cell(t: int, rows: int, columns: int, side: int) -> torch.Tensor:
    """The number of the window that each cell lies in, [t * rows * columns]; windows at the edge may be smaller."""
    windows_across = -(-columns // side)
    windows_per_frame = -(-rows // side) * windows_across
    window = (torch.arange(rows) // side).unsqueeze(1) * windows_across + torch.arange(columns) // side
    return (torch.arange(t).view(-1, 1) * windows_per_frame + window.view(1, -1)).flatten()


@lru_cache(maxsize=512)
def grid_layout(t: int, h: int, w: int, merge: int, window_side: int) -> GridLayout:
    """Layout of one picture; `window_side` is the side of an attention window in cells."""
    window = window_of_each_cell(t, h // merge, w // merge, window_side)
    return GridLayout(
        positions=patch_positions(t, h, w, merge),
        cell_order=torch.argsort(window, stable=True),
        window_lengths=(torch.bincount(window) * merge**2).to(torch.int32),
        frame_lengths=torch.full((t,), h * w, dtype=torch.int32),
    )


def cumulative(lengths: torch.Tensor) -> torch.Tensor:
    """Sequence boundaries of consecutive `lengths`, with the leading zero that flash attention asks for, int32."""
    boundaries = torch.zeros(len(lengths) + 1, dtype=torch.int32)
    torch.cumsum(lengths, dim=0, dtype=torch.int32, out=boundaries[1:])
    return boundaries

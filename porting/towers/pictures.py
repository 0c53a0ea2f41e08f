"""Pictures as towers take them. Families differ in configuration; in what their forward takes there are few ways.

Pixels are drawn picture by picture, so that several pictures of one generator are those that it gives one at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from porting.towers.tower import Config, Grid, Inputs, MakeInputs


def first_of(config: Config, *names: str, default: int | None = None) -> int:
    """The first of these attributes that the configuration has; of a pair, the first."""
    for name in names:
        if (value := getattr(config, name, default)) is not None:
            return int(value[0] if isinstance(value, (list, tuple)) else value)
    raise AttributeError(f"the configuration has none of {', '.join(names)}")


def channels(config: Config) -> int:
    return first_of(config, "in_channels", "num_channels", "in_chans", default=None)


def side_of(config: Config) -> int:
    """The rows, and columns, of a patch in pixels."""
    return first_of(config, "patch_size")


def pixels(generator: torch.Generator, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """N(0, 1), drawn in fp32 so that all dtypes see the same picture."""
    return torch.randn(shape, generator=generator).to(dtype)


def packed(grid_as_tensor: bool = False) -> MakeInputs:
    """`(patches, channels * frames * side**2)` and the grids: a list of lists, or an int64 tensor `(pictures, 3)`."""

    def make(config: Config, grids: Sequence[Grid], dtype: torch.dtype, generator: torch.Generator) -> Inputs:
        depth = first_of(config, "temporal_patch_size", default=1)
        row = channels(config) * depth * side_of(config) ** 2
        listed = [list(grid) for grid in grids]
        patches = torch.cat([pixels(generator, dtype, grid.patches, row) for grid in grids])
        return Inputs((patches, torch.tensor(listed) if grid_as_tensor else listed))

    return make


def one_long_sequence(config: Config, grids: Sequence[Grid], dtype: torch.dtype, generator: torch.Generator) -> Inputs:
    """`(1, patches, channels, side, side)` with positions and int32 cu_seqlens of whole frames made by the caller."""
    frames = torch.tensor([grid.h * grid.w for grid in grids for _ in range(grid.t)])
    side = side_of(config)
    patches = [pixels(generator, dtype, grid.patches, channels(config), side, side) for grid in grids]
    return Inputs(
        (torch.cat(patches)[None],),
        {
            "position_ids": torch.cat([torch.arange(grid.patches) % (grid.h * grid.w) for grid in grids]),
            "image_grid_thw": [tuple(grid) for grid in grids],
            "cu_seqlens": torch.nn.functional.pad(frames.cumsum(0), (1, 0)).to(torch.int32),
            "interpolate_pos_encoding": True,
        },
    )


def images(config: Config, grids: Sequence[Grid], dtype: torch.dtype, generator: torch.Generator) -> Inputs:
    """`(pictures, channels, image_size, image_size)`: as many as there are grids, all of the tower's one size."""
    size = first_of(config, "image_size", "img_size")
    return Inputs((torch.stack([pixels(generator, dtype, channels(config), size, size) for _ in grids]),))


def images_with_masks(config: Config, grids: Sequence[Grid], dtype: torch.dtype, generator: torch.Generator) -> Inputs:
    """`images`, with a mask `(pictures, rows, columns)` that leaves nothing out, and sizes in patches, int32."""
    plain = images(config, grids, dtype, generator)
    side = plain.args[0].shape[-1] // side_of(config)
    masks = torch.ones(len(grids), side, side, dtype=torch.bool)
    return Inputs((*plain.args, masks, torch.tensor([[side, side]] * len(grids), dtype=torch.int32)))


def list_of_images(config: Config, grids: Sequence[Grid], dtype: torch.dtype, generator: torch.Generator) -> Inputs:
    """A list of pictures `(channels, rows, columns)` of their own sizes."""
    side = side_of(config)
    return Inputs(([pixels(generator, dtype, channels(config), grid.h * side, grid.w * side) for grid in grids],))


def patches_with_sizes(config: Config, grids: Sequence[Grid], dtype: torch.dtype, generator: torch.Generator) -> Inputs:
    """`(patches, channels, side, side)` and an int64 tensor `(pictures, 2)` of rows and columns."""
    side = side_of(config)
    patches = [pixels(generator, dtype, grid.patches, channels(config), side, side) for grid in grids]
    return Inputs((torch.cat(patches), torch.tensor([[grid.h, grid.w] for grid in grids])))


def sounds(config: Config, grids: Sequence[Grid], dtype: torch.dtype, generator: torch.Generator) -> Inputs:
    """For audio towers: as many spectrograms `(mel bins, frames)` as there are grids, all of the longest length."""
    frames = 2 * config.max_source_positions
    return Inputs(([pixels(generator, dtype, config.num_mel_bins, frames) for _ in grids],))


WAYS: dict[str, MakeInputs] = {
    "packed patches": packed(),
    "packed patches, grids as a tensor": packed(grid_as_tensor=True),
    "one long sequence": one_long_sequence,
    "images": images,
    "images with masks": images_with_masks,
    "list of images": list_of_images,
    "patches with sizes": patches_with_sizes,
    "sounds": sounds,
}

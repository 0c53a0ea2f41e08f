"""Pictures as `embed_multimodal` of a whole model takes them, and how many vectors each must become."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from porting.towers.tower import Grid

Make = Callable[[Mapping[str, Any], Sequence[Grid], torch.dtype, Sequence[int]], dict[str, Any]]


@dataclass(frozen=True)
class Pictures:
    """How an architecture takes pictures. `keywords(vision, grids, dtype, seeds)` are those of `embed_multimodal`, from
    the vision part of the configuration, with a seed for each picture. `video`: it takes videos by VIDEO_KEYWORDS.

    `vision` and `merge` are the names of that part and of the number of patches, each way, that become one vector;
    `more` vectors stand around those of each picture.
    """

    keywords: Make
    vision: str = "vision_config"
    merge: str = "spatial_merge_size"
    more: int = 0
    video: bool = False

    def vectors(self, vision: Mapping[str, Any], grid: Grid) -> int:
        return int(grid.patches) // int(vision[self.merge]) ** 2 + self.more


def _drawn(grids: Sequence[Grid], row: Sequence[int], dtype: torch.dtype, seeds: Sequence[int]) -> list[torch.Tensor]:
    """For each picture N(0, 1) of its own seed, `(patches, *row)`."""
    return [
        torch.randn(grid.patches, *row, generator=torch.Generator().manual_seed(seed)).to(dtype)
        for grid, seed in zip(grids, seeds)
    ]


def _row(vision: Mapping[str, Any]) -> int:
    return 3 * int(vision.get("temporal_patch_size", 1)) * int(vision["patch_size"]) ** 2


def _grids(grids: Sequence[Grid]) -> torch.Tensor:
    return torch.tensor([list(grid) for grid in grids])


def packed(
    vision: Mapping[str, Any], grids: Sequence[Grid], dtype: torch.dtype, seeds: Sequence[int]
) -> dict[str, Any]:
    """`pixel_values (patches, channels * frames * side**2)` and `image_grid_thw (pictures, 3)`."""
    pixels = torch.cat(_drawn(grids, [_row(vision)], dtype, seeds))
    return {"pixel_values": pixels, "image_grid_thw": _grids(grids)}


def squares(
    vision: Mapping[str, Any], grids: Sequence[Grid], dtype: torch.dtype, seeds: Sequence[int]
) -> dict[str, Any]:
    """`pixel_values (patches, 3, side, side)` and `image_grid_thw (pictures, 3)`."""
    side = int(vision["patch_size"])
    return {
        "pixel_values": torch.cat(_drawn(grids, [3, side, side], dtype, seeds)),
        "image_grid_thw": _grids(grids),
    }


def listed_squares(
    vision: Mapping[str, Any], grids: Sequence[Grid], dtype: torch.dtype, seeds: Sequence[int]
) -> dict[str, Any]:
    """`pixel_values`, a list of `(patches, 3, side, side)`, and `image_grid_thw (pictures, 3)`."""
    side = int(vision["patch_size"])
    return {"pixel_values": _drawn(grids, [3, side, side], dtype, seeds), "image_grid_thw": _grids(grids)}


def with_indicators(
    vision: Mapping[str, Any], grids: Sequence[Grid], dtype: torch.dtype, seeds: Sequence[int]
) -> dict[str, Any]:
    """Lists of `pixel_values (patches, channels * side**2)`, of the tokens around each picture, and of its grid."""
    pixels = _drawn(grids, [_row(vision)], dtype, seeds)
    return {
        "pixel_values": pixels,
        "indicator_tokens": [torch.tensor([1, 2]) for _ in grids],
        "grids": list(_grids(grids).unsqueeze(1)),
    }


VIDEO_KEYWORDS = {"pixel_values": "pixel_values_videos", "image_grid_thw": "video_grid_thw"}

PICTURES = {
    "DotsOCRForCausalLM": Pictures(packed),
    "Ernie4_5_VLMoeForConditionalGeneration": Pictures(packed),
    "Glm4vForConditionalGeneration": Pictures(packed, video=True),
    "KeyeForConditionalGeneration": Pictures(squares, video=True),
    "Ovis2_5": Pictures(with_indicators, vision="vit_config", merge="hidden_stride", more=2),
    "PaddleOCRVLForConditionalGeneration": Pictures(listed_squares),
    "Qwen2VLForConditionalGeneration": Pictures(packed, video=True),
    "Qwen2_5_VLForConditionalGeneration": Pictures(packed, video=True),
    "Qwen3VLForConditionalGeneration": Pictures(packed, video=True),
}

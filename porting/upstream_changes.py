"""What vLLM itself changed in what its vision towers compute, so that it is neither taken for a fault nor hides one.

A port keeps its own text, so none of this makes a difference between an original and its port: it matters where the
newer vLLM's own file, or a port that follows it, is compared with an older original. A change does not widen what is
allowed: it says how the original is run so that it computes what the newer vLLM does, and all else must still be equal
to the last bit. Each was read in the texts of the releases named, and seen in numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from codemods.target import release_key

if TYPE_CHECKING:
    from torch import nn

AsAfter = Callable[["nn.Module"], AbstractContextManager[None]]


@dataclass(frozen=True)
class UpstreamChange:
    """One change, of towers of these `classes` (file and class; empty: of any), by the release that first had it.

    `as_after` makes an original of an earlier release compute the new way while a `with` block lasts; None where that
    cannot be had, so that there is nothing to compare. `dropped` are submodules whose parameters went or were renamed.
    """

    classes: tuple[str, ...]
    since: str
    what: str
    evidence: str
    as_after: AsAfter | None
    dropped: tuple[str, ...] = ()

    def drops(self, parameter: str) -> bool:
        """Whether a parameter of the original has no counterpart of its name for this reason."""
        return not set(self.dropped).isdisjoint(parameter.split("."))

    def said(self) -> str:
        """One line for the notes of a result."""
        how = "compared with the original run that way" if self.as_after else "not compared"
        return f"vLLM {self.since} changed this: {self.what}; {how}"


def changes(cls: type, before: str, after: str) -> tuple[UpstreamChange, ...]:
    """What vLLM changed, later than `before` and up to `after`, in what a tower of the original computes."""
    names = {f"{base.__module__.rpartition('.')[2]}.{base.__name__}" for base in cls.__mro__}
    return tuple(
        change
        for change in UPSTREAM_CHANGES
        if release_key(before) < release_key(change.since) <= release_key(after)
        and (not change.classes or names.intersection(change.classes))
    )


@contextmanager
def _without(tower: nn.Module, name: str) -> Iterator[None]:
    """Every submodule whose name ends so gives back what it is given."""
    from torch import nn

    found = [(parent, name) for parent in tower.modules() if isinstance(getattr(parent, name, None), nn.Module)]
    kept = [getattr(parent, name) for parent, name in found]
    for parent, name in found:
        setattr(parent, name, nn.Identity())
    try:
        yield
    finally:
        for (parent, name), module in zip(found, kept):
            setattr(parent, name, module)


@contextmanager
def _with(tower: nn.Module, **attributes: Any) -> Iterator[None]:
    """Every submodule that has such an attribute has it with this value."""
    found = [(module, name) for module in tower.modules() for name in attributes if hasattr(module, name)]
    kept = [getattr(module, name) for module, name in found]
    for module, name in found:
        setattr(module, name, attributes[name])
    try:
        yield
    finally:
        for (module, name), value in zip(found, kept):
            setattr(module, name, value)


@contextmanager
def _forward(tower: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    tower.forward = forward  # of the instance
    try:
        yield
    finally:
        del tower.forward


def _each_clip(tower: nn.Module) -> AbstractContextManager[None]:
    """The encoder is given one clip of speech at a time, of `(mel bins, frames)`; `(clips, tokens, features)` out."""
    import torch

    run = tower.forward

    def forward(clips: Any) -> Any:
        return torch.stack([run([clip]) for clip in clips])

    return _forward(tower, forward)


def _each_picture(tower: nn.Module) -> AbstractContextManager[None]:
    """The tower is given one picture or video at a time, of patches `(patches, ...)` and grids `[[t, h, w], ...]`."""
    import torch

    run = tower.forward

    def forward(x: torch.Tensor, grid_thw: Any) -> torch.Tensor:
        grids = grid_thw.tolist() if isinstance(grid_thw, torch.Tensor) else grid_thw
        parts = x.split([t * h * w for t, h, w in grids])
        return torch.cat([run(part, grid_thw=[grid]) for part, grid in zip(parts, grids)])

    return _forward(tower, forward)


@contextmanager
def _with_given_scale(tower: nn.Module) -> Iterator[None]:
    """Attention uses the scale that it was given."""
    found = [module for module in tower.modules() if hasattr(module, "unused_scale")]
    kept = [module.scale for module in found]
    for module in found:
        module.scale = module.unused_scale
    try:
        yield
    finally:
        for module, scale in zip(found, kept):
            module.scale = scale


@contextmanager
def _as_before(tower: nn.Module) -> Iterator[None]:
    """It computes the new way already."""
    yield


UPSTREAM_CHANGES = (
    UpstreamChange(
        ("whisper.WhisperEncoder",),
        "0.13.0",
        "several clips in one call no longer attend to each other",
        "0.12.0 joins the clips along time, 0.13.0 stacks them; differs by 1.9 for two clips, by 0 for one",
        _each_clip,
    ),
    UpstreamChange(
        (),
        "0.14.0",
        "MMEncoderAttention uses the scale that it is given",
        "0.13.0 passes no scale to its SDPA and flash wrappers, 0.14.0 passes its own",
        _with_given_scale,
    ),
    UpstreamChange(
        ("siglip.SiglipVisionModel", "siglip.SiglipVisionTransformer"),
        "0.15.0",
        "the pooling head is built only where it is asked for (use_head)",
        "0.14.0 builds and applies it unless the configuration says vision_use_head=False; in 0.15.0 use_head is False",
        partial(_with, use_head=False),
        dropped=("head",),
    ),
    UpstreamChange(
        ("siglip2navit.Siglip2NavitModel", "siglip2navit.Siglip2VisionTransformer"),
        "0.17.0",
        "the last layer norm is built, and no longer applied",
        "0.16.0 applies post_layernorm, 0.17.0 to 0.32.0 do not; differs by 2.1 to 3.0",
        partial(_without, name="post_layernorm"),
    ),
    UpstreamChange(
        ("paddleocr_vl.SiglipVisionModel", "paddleocr_vl.SiglipVisionTransformer"),
        "0.19.0",
        "a table of positions that only packed pictures without interpolation used is gone (PaddleOCR-VL)",
        "packing_position_embedding is in 0.18.1 and not in 0.19.0; differs by 0 with interpolation",
        _as_before,
        dropped=("packing_position_embedding",),
    ),
    UpstreamChange(
        ("pixtral.VisionTransformer",),
        "0.20.0",
        "query, key and value, and the two gates, are one parameter each (Pixtral in Mistral's format)",
        "attention.wq, wk and wv in 0.19.1, attention.qkv_proj in 0.20.0",
        None,
        dropped=("wq", "wk", "wv", "wo", "w1", "w2", "w3"),
    ),
    UpstreamChange(
        ("glm4_1v.Glm4vVisionTransformer",),
        "0.24.0",
        "each frame of a video gets the positions of its own video",
        "0.23.0 gives the n-th frame the size of the n-th picture of the call; differs by 0.13 for a video beside one",
        _each_picture,
    ),
)

"""Text to image in small: a Qwen-Image pipeline whose transformer is the package's own, on one rank and on several.

The text encoder, the scheduler, the VAE and the loop are those of diffusers, from a folder as `save_pretrained` writes
it. The transformer is the package's `QwenImageTransformer2DModel`, with the weights of that folder, with the package's
own sequence parallelism applied to it and, where asked, the package's own cache-dit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from porting import host, text_to_image
from porting.diffusion.cases import Way
from porting.diffusion.package import configured, submodule
from porting.diffusion.ranks import groups
from porting.reference import strict_collectives

STEPS = 12  # cache-dit as vllm-omni sets it up warms up for four
GUIDANCE = 2.5

TRANSFORMER = "diffusion.models.qwen_image.qwen_image_transformer"


@dataclass(frozen=True)
class Drawn:
    """`picture` is `(height, width, 3)` from 0 to 1. `reused` is how often cache-dit took blocks from its cache."""

    picture: torch.Tensor
    collectives: Mapping[str, int] = field(default_factory=dict)
    reused: int = 0


def by_diffusers(folder: Path, prompt: str) -> Drawn:
    """The picture with the transformer of diffusers: what right is for the package's."""
    torch.set_grad_enabled(False)
    return Drawn(text_to_image.draw(text_to_image.load(folder), prompt, STEPS, GUIDANCE))


def by_package(folder: Path, prompt: str, way: Way, cached: bool, device: str, rank: int, rendezvous: Path) -> Drawn:
    """The picture that this rank has in the end; every rank has the whole of it."""
    torch.set_grad_enabled(False)
    data = submodule("diffusion.data")
    parallel = data.DiffusionParallelConfig(ulysses_degree=way.ulysses, ring_degree=way.ring)
    config = data.OmniDiffusionConfig(model=str(folder), dtype=torch.float32, parallel_config=parallel)
    with groups(way, device, rank, rendezvous), configured(config):
        pipeline = text_to_image.load(folder)
        transformer = _transformer(pipeline.transformer, config)
        if way.ranks > 1:
            _share(transformer, way)
        with _cache(transformer) if cached else nullcontext(lambda: 0) as reused:
            pipeline.register_modules(transformer=_Like(transformer, pipeline.transformer.config))
            with strict_collectives() as seen:
                picture = text_to_image.draw(pipeline, prompt, STEPS, GUIDANCE)
            return Drawn(picture, seen.counts(), reused())


def _transformer(original: nn.Module, config: object) -> nn.Module:
    """The package's transformer with the weights of that of diffusers."""
    cls = submodule(TRANSFORMER).QwenImageTransformer2DModel
    given = {name: value for name, value in original.config.items() if not name.startswith("_")}
    transformer = cls(config, **given).float().eval()
    transformer.load_weights(original.state_dict().items())
    host.finish(transformer)
    return transformer


def _share(transformer: nn.Module, way: Way) -> None:
    plan = submodule("diffusion.distributed.sp_plan")
    degrees = plan.SequenceParallelConfig(ulysses_degree=way.ulysses, ring_degree=way.ring)
    hooks = submodule("diffusion.hooks.sequence_parallel")
    hooks.apply_sequence_parallel(transformer, degrees, plan.get_sp_plan_from_model(transformer))
    context = submodule("diffusion.forward_context").get_forward_context()
    if hasattr(context, "sp_plan_hooks_applied"):
        context.sp_plan_hooks_applied = True


@contextmanager
def _cache(transformer: nn.Module) -> Iterator[Any]:
    """The package's cache-dit, as its defaults have it; how often it has taken blocks from its cache is given."""
    import cache_dit

    backend = submodule("diffusion.cache.selector").get_cache_backend("cache_dit", {})
    pipeline = SimpleNamespace(transformer=transformer)
    backend.enable(pipeline)
    backend.refresh(pipeline, STEPS, verbose=False)

    def reused() -> int:
        return sum(len(stats.cached_steps) for stats in cache_dit.summary(transformer, logging=False))

    yield reused


class _Like(nn.Module):
    """The package's transformer, called as that of diffusers is."""

    def __init__(self, transformer: nn.Module, config: Any) -> None:
        super().__init__()
        self.transformer = transformer
        self.config = config
        self.dtype, self.device = torch.float32, next(transformer.parameters()).device

    def cache_context(self, name: str) -> Any:
        return nullcontext()

    def forward(self, hidden_states: torch.Tensor, encoder_hidden_states: torch.Tensor, **given: Any) -> Any:
        """As diffusers calls it: `(batch, tokens, channels)`, and the text `(batch, tokens, features)`."""
        lengths = [encoder_hidden_states.shape[1]] * encoder_hidden_states.shape[0]
        given = {name: given[name] for name in ("timestep", "guidance", "img_shapes", "encoder_hidden_states_mask")}
        return self.transformer(
            hidden_states=hidden_states,
            encoder_hidden_states=encoder_hidden_states,
            txt_seq_lens=lengths,
            return_dict=False,
            **given,
        )

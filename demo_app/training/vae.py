"""Stage 3, the autoencoder of the drawing side: 64x64 pictures to 8x8 latents of 16 channels and back.

Three things keep `AutoencoderKLQwenImage` from learning stills as it comes: its causal convolutions are initialised
for three frames where a still has one, so that the signal fades layer by layer; random biases drown what is left; and
`decode` clamps, which stops the gradient. Here the one used slice starts at the right size, biases start at zero and
the decoder is called itself. The convolutions run as two-dimensional ones, which gives the same numbers sooner.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from diffusers import AutoencoderKLQwenImage
from diffusers.models.autoencoders.autoencoder_kl_qwenimage import QwenImageCausalConv3d
from torch import nn
from torch.nn import functional as F

from demo_app.training import loop, shapes

SIDE = 64
LOOKED_AT = 64  # pictures of each sort, for the scores on the way
NARROW = 3e-4  # the weight of the latents' distance from a unit normal
CONFIG = {
    "base_dim": 16,
    "z_dim": 16,
    "dim_mult": [1, 2, 4, 4],
    "num_res_blocks": 1,
    "attn_scales": [],
    "temperal_downsample": [False, True, True],
    "latents_mean": [0.0] * 16,
    "latents_std": [1.0] * 16,
}


class StillConv(QwenImageCausalConv3d):
    """The causal convolution on one frame: before it there are only zeros, so its last slice does all the work."""

    def forward(self, x: torch.Tensor, cache_x: torch.Tensor | None = None) -> torch.Tensor:
        left, _, top, _, _, _ = self._padding
        return F.conv2d(x[:, :, 0], self.weight[:, :, -1], self.bias, padding=(top, left))[:, :, None]


def make() -> AutoencoderKLQwenImage:
    """An autoencoder that lets the signal through from the start."""
    vae = AutoencoderKLQwenImage(**CONFIG)
    for module in vae.modules():
        if isinstance(module, QwenImageCausalConv3d):
            weight = module.weight.data
            used = torch.randn_like(weight[:, :, -1]) / math.sqrt(weight[:, :, -1][0].numel())
            weight.zero_()
            weight[:, :, -1] = used
            nn.init.zeros_(module.bias)
    return vae


def for_stills(vae: AutoencoderKLQwenImage) -> AutoencoderKLQwenImage:
    """The same, its convolutions switched to the two-dimensional form."""
    for module in vae.modules():
        if isinstance(module, QwenImageCausalConv3d):
            module.__class__ = StillConv
    return vae


def moments(vae: AutoencoderKLQwenImage, pixels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and logarithm of the variance of the latents, each (pictures, 16, 1, 8, 8)."""
    mean, spread = vae.quant_conv(vae.encoder(pixels)).chunk(2, dim=1)
    return mean, spread.clamp(-20, 10)


def restore(vae: AutoencoderKLQwenImage, latents: torch.Tensor) -> torch.Tensor:
    """(pictures, 3, 1, 64, 64), not clamped."""
    return vae.decoder(vae.post_quant_conv(latents))


def pixels_of(rng: np.random.Generator, size: int, others: float) -> torch.Tensor:
    """(pictures, 3, 1, 64, 64) in -1..1: scenes of prompts, and a share of others."""
    drawn = []
    for _ in range(size):
        if rng.random() < others:
            scene = shapes.random_scene(rng, int(rng.integers(1, 3)))
        else:
            scene = shapes.prompt_scene(rng)
        drawn.append(np.asarray(shapes.draw(scene, SIDE, rng, shade=4), dtype=np.float32))
    return torch.from_numpy(np.stack(drawn).transpose(0, 3, 1, 2)[:, :, None] / 127.5 - 1)


def main() -> None:
    options = loop.arguments(__doc__, steps=1500)
    loop.start(options.seed)
    vae = for_stills(make())

    def loss_of(rng: np.random.Generator, done: float) -> tuple[torch.Tensor, dict[str, float]]:
        pixels = pixels_of(rng, 8, others=0.25)
        mean, spread = moments(vae, pixels)
        drawn = restore(vae, mean + torch.randn_like(mean) * (spread / 2).exp())
        error = F.mse_loss(drawn, pixels)
        narrow = 0.5 * (mean**2 + spread.exp() - 1 - spread).mean()
        return error + 0.2 * F.l1_loss(drawn, pixels) + NARROW * narrow, {
            "error": float(error.detach()),
            "narrow": float(narrow.detach()),
        }

    def look() -> str:
        parts = []
        for name, others in (("prompts", 0.0), ("others", 1.0)):
            pixels = pixels_of(np.random.default_rng([options.seed, 10**9]), LOOKED_AT, others)
            error = F.mse_loss(restore(vae, moments(vae, pixels)[0]).clamp(-1, 1), pixels)
            parts.append(f"{name} {10 * math.log10(4 / float(error)):.2f} dB")
        return ", ".join(parts)

    plan = loop.Plan(options.steps, rate=2e-3, out=options.out, seed=options.seed, average=0.998)
    loop.train("vae", vae, loss_of, plan, look)
    loop.keep(vae.state_dict(), options.out / "vae-final.pt")


if __name__ == "__main__":
    main()

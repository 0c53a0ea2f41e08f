"""Stage 4, the drawing transformer of Qwen-Image: from noise to latents, led by the finished text encoder's states.

All prompts are encoded and all pictures turned to latents once. A batch holds prompts of one length, which needs
neither padding nor a mask. Flow matching as the pipeline samples it: latents x0 and noise e at sigma s give
s*e + (1-s)*x0, and the target is e - x0.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from diffusers import QwenImageTransformer2DModel
from PIL import Image
from torch import nn
from torch.nn import functional as F
from transformers import Qwen2_5_VLForConditionalGeneration

from demo_app.training import loop, prompts, rules, shapes, tokenizer, vae, vl
from demo_app.training.prompts import GUIDANCE, STEPS, Prompt

POOL = 4000  # pictures to learn from
LOOKED_AT = 72  # held-out prompts drawn, for the scores on the way
BATCH = 48  # over all processes
PACKED = vae.SIDE // 16  # tokens along a side
CONFIG = {
    "patch_size": 2,
    "in_channels": 64,
    "out_channels": 16,
    "num_layers": 4,
    "attention_head_dim": 64,
    "num_attention_heads": 2,
    "joint_attention_dim": 128,
    "axes_dims_rope": [16, 24, 24],
}


def make() -> QwenImageTransformer2DModel:
    """A transformer whose blocks start nearly as identities and whose prediction starts at nothing."""
    model = QwenImageTransformer2DModel(**CONFIG)
    for block in model.transformer_blocks:
        for modulation in (block.img_mod[1], block.txt_mod[1]):
            nn.init.zeros_(modulation.weight)
            gates = modulation.bias.data.zero_().view(2, 3, -1)[:, 2]
            gates.fill_(0.3)
    for last in (model.norm_out.linear, model.proj_out):
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
    return model


def pack(latents: torch.Tensor) -> torch.Tensor:
    """(n, 16, 1, 8, 8) -> (n, 16, 64), a token for each 2x2 latents, as the pipeline packs them."""
    count = len(latents)
    cut = latents.view(count, 16, PACKED, 2, PACKED, 2)
    return cut.permute(0, 2, 4, 1, 3, 5).reshape(count, PACKED * PACKED, 64)


def unpack(tokens: torch.Tensor) -> torch.Tensor:
    count = len(tokens)
    cut = tokens.view(count, PACKED, PACKED, 16, 2, 2)
    return cut.permute(0, 3, 1, 4, 2, 5).reshape(count, 16, 1, 2 * PACKED, 2 * PACKED)


def flow(model: nn.Module, tokens: torch.Tensor, sigma: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
    shape = [[(1, PACKED, PACKED)]] * len(tokens)
    return model(
        hidden_states=tokens, timestep=sigma, encoder_hidden_states=states, img_shapes=shape, return_dict=False
    )[0]


class Encoded:
    """The states of prompts, each (length, 128), by text."""

    def __init__(self, out: Path, texts: list[str]) -> None:
        words = tokenizer.make()
        model = Qwen2_5_VLForConditionalGeneration(vl.config(words))
        model.load_state_dict(torch.load(out / "vl-final.pt", weights_only=True))
        by_length: dict[int, list[str]] = defaultdict(list)
        ids = {text: words(prompts.TEMPLATE.format(text)).input_ids for text in texts}
        for text, numbers in ids.items():
            by_length[len(numbers)].append(text)
        self.states: dict[str, torch.Tensor] = {}
        with torch.no_grad():
            for same in by_length.values():
                for first in range(0, len(same), 64):
                    part = same[first : first + 64]
                    hidden = vl.read(model.eval(), torch.tensor([ids[text] for text in part]))[-1]
                    self.states.update(zip(part, hidden[:, prompts.PREFIX_TOKENS :].clone()))

    def __call__(self, texts: list[str]) -> torch.Tensor:
        return torch.stack([self.states[text] for text in texts])


def latents_of(
    out: Path, seed: int, asked: set[tuple[str, str, str | None]]
) -> tuple[list[tuple[str, str, str]], torch.Tensor, torch.Tensor]:
    """POOL pictures: what they show, their packed latents scaled to unit variance, (mean, deviation) of channels."""
    coder = vae.for_stills(vae.make()).eval()
    coder.load_state_dict(torch.load(out / "vae-final.pt", weights_only=True))
    rng = np.random.default_rng([seed, 9])
    shown: list[tuple[str, str, str]] = []
    found: list[torch.Tensor] = []
    with torch.no_grad():
        while len(shown) < POOL:
            scenes = [shapes.prompt_scene(rng) for _ in range(64)]
            scenes = [s for s in scenes if (s.things[0].colour, s.things[0].shape, s.background) in asked]
            shown += [(s.things[0].colour, s.things[0].shape, s.background) for s in scenes]
            pixels = np.stack([np.asarray(shapes.draw(s, vae.SIDE, rng, shade=4), dtype=np.float32) for s in scenes])
            found.append(vae.moments(coder, torch.from_numpy(pixels.transpose(0, 3, 1, 2)[:, :, None] / 127.5 - 1))[0])
    latents = torch.cat(found)
    scale = torch.stack([latents.mean((0, 2, 3, 4)), latents.std((0, 2, 3, 4)).clamp_min(0.1)])
    mean, deviation = scale[:, None, :, None, None, None]
    return shown, pack((latents - mean) / deviation), scale


def sample(model: nn.Module, states: torch.Tensor, nothing: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Packed latents from noise, in the steps and with the guidance of the pipeline."""
    tokens = noise
    sigmas = [*torch.linspace(1, 1 / STEPS, STEPS).tolist(), 0.0]
    for sigma, after in pairwise(sigmas):
        now = torch.full((len(tokens),), sigma)
        wished = flow(model, tokens, now, states)
        plain = flow(model, tokens, now, nothing.expand(len(tokens), -1, -1))
        led = plain + GUIDANCE * (wished - plain)
        led = led * (wished.norm(dim=-1, keepdim=True) / led.norm(dim=-1, keepdim=True))
        tokens = tokens + (after - sigma) * led
    return tokens


def pictures(coder: nn.Module, tokens: torch.Tensor, scale: torch.Tensor) -> list[Image.Image]:
    mean, deviation = scale[:, None, :, None, None, None]
    with torch.no_grad():
        pixels = vae.restore(coder, unpack(tokens) * deviation + mean).clamp(-1, 1)
    bytes_ = ((pixels[:, :, 0] + 1) * 127.5).round().byte().permute(0, 2, 3, 1).numpy()
    return [Image.fromarray(array) for array in bytes_]


def sheet(drawn: list[Image.Image], columns: int = 12) -> Image.Image:
    side = drawn[0].width + 2
    whole = Image.new("RGB", (columns * side, -(-len(drawn) // columns) * side))
    for index, picture in enumerate(drawn):
        whole.paste(picture, (index % columns * side, index // columns * side))
    return whole


def main() -> None:
    options = loop.arguments(__doc__, steps=9400)
    loop.start(options.seed)
    trained, held = (some + short for some, short in zip(prompts.split(), prompts.split_short()))
    encoded = Encoded(options.out, [p.text for p in trained + held] + [prompts.NEGATIVE])
    nothing = encoded([prompts.NEGATIVE])
    asked = {p.asked for p in trained}
    shown, latents, scale = loop.once(options.out / "latents.pt", lambda: latents_of(options.out, options.seed, asked))
    coder = vae.for_stills(vae.make()).eval()
    coder.load_state_dict(torch.load(options.out / "vae-final.pt", weights_only=True))
    of_drawing: dict[tuple[str, str, str | None], list[int]] = defaultdict(list)
    for index, (colour, shape, background) in enumerate(shown):
        of_drawing[colour, shape, background].append(index)
        of_drawing[colour, shape, None].append(index)
    by_length: dict[int, list[Prompt]] = defaultdict(list)
    for prompt in trained:
        by_length[len(encoded.states[prompt.text])].append(prompt)
    lengths = sorted(by_length)
    weights = np.array([len(by_length[n]) for n in lengths]) / len(trained)
    model, size = make(), BATCH // loop.share()[1]

    def loss_of(rng: np.random.Generator, done: float) -> tuple[torch.Tensor, dict[str, float]]:
        asked = by_length[int(rng.choice(lengths, p=weights))]
        some = [asked[i] for i in rng.integers(len(asked), size=size)]
        ids = [of_drawing[p.asked][int(rng.integers(len(of_drawing[p.asked])))] for p in some]
        free = rng.random() < 0.1  # one batch in ten learns to draw without a wish
        states = nothing.expand(size, -1, -1) if free else encoded([p.text for p in some])
        clean = latents[ids]
        noise, sigma = torch.randn_like(clean), torch.sigmoid(torch.randn(size))
        mixed = torch.lerp(clean, noise, sigma[:, None, None])
        loss = F.mse_loss(flow(model, mixed, sigma, states), noise - clean)
        return loss, {}

    def look() -> str:
        rng = np.random.default_rng([options.seed, 10**9])
        right, drawn = np.zeros(4), []
        some = [held[i] for i in rng.permutation(len(held))[:LOOKED_AT]]
        by: dict[int, list[Prompt]] = defaultdict(list)
        for prompt in some:
            by[len(encoded.states[prompt.text])].append(prompt)
        for same in by.values():
            noise = torch.from_numpy(rng.standard_normal((len(same), PACKED * PACKED, 64), dtype=np.float32))
            made = pictures(coder, sample(model, encoded([p.text for p in same]), nothing, noise), scale)
            for prompt, picture in zip(same, made):
                hits = prompt.hits(*rules.judge(picture).shown)
                right += [*hits, all(hits)]
            drawn += made
        sheet(drawn).save(options.out / "text_to_image.png")
        return "colour {:.0f} shape {:.0f} background {:.0f} all {:.1f}%".format(*(100 * right / len(some)))

    plan = loop.Plan(options.steps, rate=1.5e-3, out=options.out, seed=options.seed, average=0.9985, decay=0.0)
    loop.train("text_to_image", model, loss_of, plan, look, look_every=500)
    loop.keep({"model": model.state_dict(), "scale": scale}, options.out / "text_to_image-final.pt")


if __name__ == "__main__":
    main()

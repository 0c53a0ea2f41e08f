"""The loop all stages share: resumable, deterministic by seed, one thread, with lines of progress."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

WARM_STEPS = 100
SAVE_EVERY = 200


@dataclass
class Plan:
    """How long and how fast: the rate warms up, stays, and falls to nothing over the last `fall` of the steps."""

    steps: int
    rate: float
    out: Path
    seed: int
    fall: float = 0.3
    decay: float = 0.02
    average: float = 0.0  # of the weights: the share of the old mean kept at each step, 0 for none

    def rate_at(self, step: int) -> float:
        left = (self.steps - step) / (self.fall * self.steps)
        return self.rate * min(1.0, (step + 1) / WARM_STEPS, left)


def arguments(doc: str | None, steps: int) -> argparse.Namespace:
    """The options every stage has."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--out", type=Path, required=True, help="folder of the checkpoints, outside the checkout")
    parser.add_argument("--steps", type=int, default=steps, help="stop after this many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=20, help="of weights and data (default: %(default)s)")
    return parser.parse_args()


def start(seed: int) -> None:
    """One thread: several on a busy machine spend most of their time waiting for each other."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    torch.manual_seed(seed)


def train(
    name: str,
    model: nn.Module,
    loss_of: Callable[[np.random.Generator, float], tuple[torch.Tensor, Mapping[str, float]]],
    plan: Plan,
    look: Callable[[], str] | None = None,
    look_every: int = 400,
) -> nn.Module:
    """Train `model` from scratch or from `plan.out/<name>.pt`; returns it, with averaged weights where asked.

    `loss_of(rng, done)` draws a batch from `rng`, which depends on the seed and the step alone, and gives the loss
    and figures to print; `done` is the share of the steps behind. `look()` gives a line of scores.
    """
    plan.out.mkdir(parents=True, exist_ok=True)
    file = plan.out / f"{name}.pt"
    weights = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in weights if p.ndim >= 2], "weight_decay": plan.decay},
        {"params": [p for p in weights if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=plan.rate, betas=(0.9, 0.98), fused=True)
    mean = {key: value.detach().clone() for key, value in model.state_dict().items()} if plan.average else {}
    first, spent = 0, 0.0
    if file.exists():
        saved = torch.load(file, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        mean, first, spent = saved["mean"], saved["step"], saved["cpu"]
    clock, figures = time.process_time(), {}

    def used() -> float:
        return spent + time.process_time() - clock

    def save(step: int) -> None:
        saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "mean": mean, "step": step}
        torch.save({**saved, "cpu": used()}, file.with_suffix(".new"))
        file.with_suffix(".new").replace(file)

    def scored() -> str:
        if look is None:
            return ""
        kept = {key: value.detach().clone() for key, value in model.state_dict().items()}
        if mean:
            model.load_state_dict(mean)
        model.eval()
        with torch.no_grad():
            line = look()
        model.train()
        model.load_state_dict(kept)
        return line

    model.train()
    for step in range(first, plan.steps):
        for group in optimizer.param_groups:
            group["lr"] = plan.rate_at(step)
        torch.manual_seed(plan.seed * 1_000_003 + step)
        loss, numbers = loss_of(np.random.default_rng([plan.seed, step]), step / plan.steps)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        if mean:
            keep = min(plan.average, (step + 1) / (step + 10))
            for key, value in model.state_dict().items():
                if value.is_floating_point():
                    mean[key].lerp_(value, 1 - keep)
        for key, number in {"loss": float(loss.detach()), **numbers}.items():
            figures[key] = 0.95 * figures.get(key, number) + 0.05 * number
        if (step + 1) % 50 == 0:
            shown = " ".join(f"{key} {value:.3f}" for key, value in figures.items())
            print(f"{name} step {step + 1}/{plan.steps} cpu {used():.0f}s {shown}", flush=True)
        if (step + 1) % SAVE_EVERY == 0 or step + 1 == plan.steps:
            save(step + 1)
        if (step + 1) % look_every == 0 or step + 1 == plan.steps:
            print(f"{name} step {step + 1} scores: {scored()}", flush=True)
    if mean:
        model.load_state_dict(mean)
    return model.eval()

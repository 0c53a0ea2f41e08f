"""The loop all stages share: resumable, deterministic by seed, one thread, with lines of progress.

Under `torchrun --nproc-per-node N` N processes share a step: each takes a batch of its own, and gradients are averaged.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import distributed, nn

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
    if distributed.is_torchelastic_launched():
        distributed.init_process_group("gloo")


def share() -> tuple[int, int]:
    """Which of how many processes this is."""
    if distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def keep(content: object, file: Path) -> None:
    """Write it whole or not at all, once."""
    if share()[0] == 0:
        torch.save(content, file.with_suffix(".new"))
        file.with_suffix(".new").replace(file)


def once(file: Path, make: Callable[[], object]) -> Any:
    """What is in `file`; the first time and in the first process, what `make` gives is put there."""
    if not file.exists():
        if share()[0] == 0:
            keep(make(), file)
        if distributed.is_initialized():
            distributed.barrier()
    return torch.load(file, weights_only=True)


def average_gradients(weights: list[nn.Parameter]) -> None:
    """Over the processes; a weight that no process used has none."""
    used = [weight for weight in weights if weight.grad is not None]
    joined = torch.cat([weight.grad.flatten() for weight in used])
    distributed.all_reduce(joined)
    for weight, part in zip(used, joined.split([weight.numel() for weight in used])):
        weight.grad.copy_(part.view_as(weight) / share()[1])


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
    runs: list[dict[str, object]] = []
    if file.exists():
        saved = torch.load(file, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        mean, first, spent, runs = saved["mean"], saved["step"], saved["cpu"], saved["runs"]
    clock = time.process_time()
    figures: dict[str, float] = {}
    rank, ranks = share()
    planned = {"steps": plan.steps, "processes": ranks}
    if not runs or {**runs[-1], **planned} != runs[-1]:  # going on with the same plan is the same run
        runs.append({"from": first, **planned})

    def used() -> float:
        return spent + (time.process_time() - clock) * ranks

    def save(step: int) -> None:
        saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "mean": mean, "step": step}
        keep({**saved, "cpu": used(), "runs": runs}, file)

    def scored() -> str:
        if look is None or rank:
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
        torch.manual_seed((plan.seed * 1_000_003 + step) * 64 + rank)
        loss, numbers = loss_of(np.random.default_rng([plan.seed, step, rank]), step / plan.steps)
        optimizer.zero_grad()
        loss.backward()
        if ranks > 1:
            average_gradients(weights)
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        if mean:
            old = min(plan.average, (step + 1) / (step + 10))
            for key, value in model.state_dict().items():
                if value.is_floating_point():
                    mean[key].lerp_(value, 1 - old)
        for key, number in {"loss": float(loss.detach()), **numbers}.items():
            figures[key] = 0.95 * figures.get(key, number) + 0.05 * number
        if (step + 1) % 50 == 0 and rank == 0:
            shown = " ".join(f"{key} {value:.3f}" for key, value in figures.items())
            print(f"{name} step {step + 1}/{plan.steps} cpu {used():.0f}s {shown}", flush=True)
        if (step + 1) % SAVE_EVERY == 0 or step + 1 == plan.steps:
            save(step + 1)
        if (step + 1) % look_every == 0 or step + 1 == plan.steps:
            line = scored()
            if line:
                print(f"{name} step {step + 1} scores: {line}", flush=True)
    if mean:
        model.load_state_dict(mean)
    return model.eval()

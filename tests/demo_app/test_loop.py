"""Training that was broken off goes on as if it had not been."""

from __future__ import annotations

import pytest
import torch

from demo_app.training import loop


def trained(out, steps: int, total: int):
    """A line fitted to noisy points, for `steps` of a plan of `total`."""
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)

    def loss_of(rng, done):
        if loss_of.calls >= steps:
            raise KeyboardInterrupt
        loss_of.calls += 1
        points = torch.from_numpy(rng.standard_normal((8, 3), dtype="float32"))
        return (model(points) - points.sum(1, keepdim=True) + 0.1 * torch.randn(8, 1)).square().mean(), {}

    loss_of.calls = 0
    plan = loop.Plan(total, rate=0.01, out=out, seed=1, average=0.9)
    try:
        return loop.train("line", model, loss_of, plan)
    except KeyboardInterrupt:
        return None


def test_a_resumed_run_ends_with_the_same_weights(tmp_path):
    whole = trained(tmp_path / "whole", 300, 300)
    assert trained(tmp_path / "broken", 250, 300) is None  # its last checkpoint is of step 200
    resumed = trained(tmp_path / "broken", 300, 300)
    for key, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[key])
    assert torch.allclose(whole.weight, torch.ones(1, 3), atol=0.1)


def test_the_rate_warms_up_stays_and_falls(tmp_path):
    plan = loop.Plan(1000, rate=1.0, out=tmp_path, seed=1, fall=0.2)
    assert plan.rate_at(0) == pytest.approx(0.01)
    assert plan.rate_at(400) == 1.0
    assert plan.rate_at(900) == pytest.approx(0.5)
    assert plan.rate_at(999) == pytest.approx(0.005)

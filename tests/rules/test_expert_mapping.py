"""VA619: the mapping of expert weights is asked for with the model, and only where it is not given already."""

from __future__ import annotations

from pathlib import Path

import pytest

from codemods.findings import Severity
from tests.rules.vision_model import Port, porter

NAMES = 'ckpt_gate_proj_name="w1", ckpt_down_proj_name="w2", ckpt_up_proj_name="w3", num_experts=8'
MODEL = """\
from torch import nn
from vllm.model_executor.layers.fused_moe import FusedMoE


class Model(nn.Module):
    def get_expert_mapping(self):
        return FusedMoE.make_expert_params_mapping({arguments})
"""


@pytest.fixture
def port(tmp_path: Path) -> Port:
    return porter(tmp_path)


@pytest.mark.parametrize("arguments", [f"self, {NAMES}", f"{NAMES}, model=self", 'self, "w1", "w2", "w3", 8'])
def test_a_model_that_is_given_stays(arguments: str, port: Port) -> None:
    text = MODEL.format(arguments=arguments)
    ported = port(text, "0.15")
    assert (ported.text, ported.findings) == (text, [])


def test_a_model_that_is_missing_is_given(port: Port) -> None:
    assert port(MODEL.format(arguments=NAMES), "0.15").call("FusedMoE.make_expert_params_mapping")["model"] == "self"


def test_names_by_position_are_reported(port: Port) -> None:
    ported = port(MODEL.format(arguments='"w1", "w2", "w3", 8, 2'), "0.15")
    message = "make_expert_params_mapping takes the model as its first argument in vLLM 0.15.1"
    assert ported.left(Severity.ERROR) == [("VA619", message)]

"""The strict kernels in older releases of vLLM, each in a process of its own beside the installed one's packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import wheels

pytestmark = pytest.mark.vllm

# What is run: two pictures through encoder attention, natively and on each backend.
SCRIPT = """
import json
from porting import host
host.prepare_process()
import torch
from porting.reference import BACKENDS, strict_kernels
from porting.reference.replace import encoder_attention

def attend():
    with host.vllm_config():
        attention = encoder_attention()(2, 80, scale=80**-0.5)
    query, key, value = torch.randn(3, 1, 11, 2, 80, generator=torch.Generator().manual_seed(0))
    return attention(query, key, value, torch.tensor([0, 4, 11], dtype=torch.int32), torch.tensor(7))

said = {}
native = attend()
for backend in BACKENDS:
    try:
        with strict_kernels(backend) as kernels:
            difference = (attend() - native).abs().max().item()
        said[backend] = [len(kernels.calls), len(kernels.problems), difference < 1e-6]
    except LookupError as reason:
        said[backend] = str(reason)
print(json.dumps(said))
"""


def test_the_kernels_of_0_14_are_replaced_too() -> None:
    path = [*wheels.import_path("0.14.0"), Path(__file__).parents[2]]
    environment = {**os.environ, **wheels.VLLM_ENVIRONMENT, "PYTHONPATH": os.pathsep.join(map(str, path))}

    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "flash": [1, 0, True],
        "triton": "this vLLM has no Triton path for encoder attention: it came with 0.17",
        "npu": [1, 0, True],
    }

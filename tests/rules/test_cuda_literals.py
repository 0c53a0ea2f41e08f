"""VA803: what only CUDA has is noted where it stands for any device, and only there."""

from __future__ import annotations

from pathlib import Path

import pytest

from codemods.findings import Severity
from tests.rules.vision_model import Port, porter

HEAD = "import torch\nimport torch.distributed as dist\n\n\ndef run(x, rank):\n"


@pytest.fixture
def port(tmp_path: Path) -> Port:
    return porter(tmp_path)


NOTED = {
    "torch.cuda.synchronize()": "torch.accelerator.synchronize()",
    "torch.cuda.set_device(rank)": "torch.accelerator.set_device_index()",
    "y = torch.cuda.current_device()": "torch.accelerator.current_device_index()",
    "y = torch.cuda.Event()": "torch.Event()",
    "y = torch.zeros(4, device='cuda')": "torch.accelerator.current_accelerator()",
    "y = torch.device('cuda:0')": "torch.accelerator.current_accelerator()",
    "y = x.to('cuda')": "torch.accelerator.current_accelerator()",
    "y = x.cuda()": "torch.accelerator.current_accelerator()",
    "y = 'cuda' if torch.cuda.is_available() else 'cpu'": "torch.accelerator.current_accelerator()",
    "y = torch.device('cuda') if torch.cuda.is_available() else torch.device('cpu')": "None where there is only a CPU",
    "dist.init_process_group('nccl')": "torch.distributed.get_default_backend_for_device(device)",
    "dist.init_process_group(backend='nccl', rank=rank)": "torch.distributed.get_default_backend_for_device(device)",
    "y = dist.new_group([0, 1], backend='nccl')": "torch.distributed.get_default_backend_for_device(device)",
}


@pytest.mark.parametrize(("line", "neutral"), NOTED.items(), ids=NOTED)
def test_noted_with_the_neutral_call(line: str, neutral: str, port: Port) -> None:
    text = f"{HEAD}    {line}\n"
    ported = port(text)
    assert ported.text == text
    (found,) = ported.findings
    assert (found.code, found.severity, found.line) == ("VA803", Severity.NOTE, 6)
    assert neutral in found.remedy


FOR_A_DEVICE = {
    "a test around it": "if x.is_cuda:\n        torch.cuda.synchronize()",
    "the other arm of one": "if x.is_npu:\n        return x\n    else:\n        torch.cuda.synchronize()",
    "a test ahead of it": "if not torch.cuda.is_available():\n        return x\n    torch.cuda.synchronize()",
    "a test in the expression": "y = torch.cuda.device_count() if torch.cuda.is_available() else 1",
    "a comparison": "y = x.device.type == 'cuda'",
    "a function for it": "def forward_cuda(x):\n        torch.cuda.synchronize()\n        return x.cuda()",
    "a class for it": "class CudaGraph:\n        def run(self):\n            torch.cuda.synchronize()",
    "a word for something else": "y = x.cuda\n    y = {'backend': 'nccl', 'device': 'cuda'}",
    "no call for any device": "y = torch.cuda.CUDAGraph()\n    y = torch.cuda.get_device_properties(0)",
}


@pytest.mark.parametrize("lines", FOR_A_DEVICE.values(), ids=FOR_A_DEVICE)
def test_not_noted(lines: str, port: Port) -> None:
    assert port(f"{HEAD}    {lines}\n").findings == []


def test_file_of_one_device(tmp_path: Path, port: Port) -> None:
    ported = port({"cuda_kernels.py": f"{HEAD}    torch.cuda.synchronize()\n"})
    assert ported.findings == []

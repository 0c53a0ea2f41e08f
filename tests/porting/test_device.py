"""Which device is attached, with torch as it is, and with the faults that installations of torch_npu have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from porting import device
from porting.wrong_environment import WrongEnvironment

ROOT = Path(__file__).parents[2]
HERE = "cpu" if not torch.accelerator.is_available() else torch.accelerator.current_accelerator().type

# How torch_npu fails where the CANN libraries are missing: torch imports it by its entry point and gives up itself.
NO_CANN = 'raise ImportError("libhccl.so: cannot open shared object file: No such file or directory")\n'
ABORTS = "import os\nos.abort()\n"
FINDS_NOTHING = "def _autoload():\n    pass\n"


def told(*arguments: str, path: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    folders = os.pathsep.join(map(str, filter(None, (path, ROOT))))
    return subprocess.run(
        [sys.executable, "-m", "porting.device", *arguments],
        env={**os.environ, "PYTHONPATH": folders, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def torch_npu(folder: Path, text: str) -> Path:
    """A torch_npu that torch finds and loads at its own import."""
    (folder / "torch_npu").mkdir()
    (folder / "torch_npu" / "__init__.py").write_text(text)
    metadata = folder / "torch_npu-2.9.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: torch_npu\nVersion: 2.9\n")
    (metadata / "entry_points.txt").write_text("[torch.backends]\ntorch_npu = torch_npu:_autoload\n")
    return folder


def test_the_attached_device_is_told() -> None:
    done = told()
    assert done.returncode == 0
    assert done.stdout.startswith(f"device  {HERE}: ")
    assert "memory  " in done.stdout
    assert "float32" in done.stdout


def test_the_processor_can_be_asked_for_whatever_else_there_is() -> None:
    found = device.attached("cpu")
    assert (found.type, found.platform) == ("cpu", "CPU")
    assert found.memory == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert set(found.dtypes) >= {"float64", "float32", "bfloat16"}


def test_a_device_that_is_not_there_is_one_line() -> None:
    missing = next(kind for kind in ("npu", "xpu") if kind != HERE)
    with pytest.raises(WrongEnvironment, match=f"no device of the type '{missing}': torch .* finds .* only"):
        device.attached(missing)


def test_without_cann_the_missing_library_and_the_remedy_are_named(tmp_path: Path) -> None:
    done = told(path=torch_npu(tmp_path, NO_CANN))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "porting.device: torch_npu is installed, but the library libhccl.so of Ascend's CANN toolkit is missing; "
        "install CANN and source its set_env.sh. To go on without the NPU, set TORCH_DEVICE_BACKEND_AUTOLOAD=0\n"
    )


def test_without_cann_one_can_go_on_without_the_npu_and_is_told(tmp_path: Path) -> None:
    done = told(path=torch_npu(tmp_path, NO_CANN), TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert done.returncode == 0
    assert done.stdout.startswith(f"device  {HERE}")
    assert "note    torch_npu is installed, but the library libhccl.so" in done.stdout


def test_a_torch_npu_that_ends_the_process_is_one_line(tmp_path: Path) -> None:
    done = told(path=torch_npu(tmp_path, ABORTS))
    assert done.returncode == 2
    assert "torch_npu is installed but cannot be loaded (the process died of SIGABRT)" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_torch_npu_without_an_npu_is_a_note(tmp_path: Path) -> None:
    done = told(path=torch_npu(tmp_path, FINDS_NOTHING))
    assert done.returncode == 0
    assert "note    torch_npu is installed and loads, but finds no NPU; see what `npu-smi info` says" in done.stdout


def test_torch_npu_is_not_imported_to_find_out(tmp_path: Path) -> None:
    """In a process of its own it is: what it leaves behind there is no matter."""
    path = torch_npu(tmp_path, FINDS_NOTHING)
    program = "import os, sys; from porting import device; device.find('cpu'); print('torch_npu' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": f"{path}{os.pathsep}{ROOT}", device.AUTOLOAD: "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "False\n"


def test_without_torch_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(WrongEnvironment, match="torch is not installed; install"):
        device.attached()

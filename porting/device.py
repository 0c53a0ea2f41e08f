"""Which accelerator is attached, and what it can do: `python -m porting.device`.

torch's accelerator API is asked, so that any device with a torch backend is found. torch_npu is never imported to find
out: half-installed it raises, or ends the process, and what it leaves behind cannot be taken out again. Whatever may
end a process is tried in a process of its own.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import re
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from porting.environment import python_path
from porting.wrong_environment import WrongEnvironment

AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"
_DTYPES = ("float64", "float32", "bfloat16", "float16")
_PROBE_S = 300.0
_LIBRARY = re.compile(r"\blib[\w.+-]+\.so[.\d]*")


@dataclass(frozen=True)
class Device:
    """`type` is torch's device type, which for ROCm is "cuda"; `platform` says whose it is. `memory` is in bytes.

    `dtypes` are those in which a matrix product was seen to work. `note` is what a person should know of another
    device, such as one whose software is there in part.
    """

    type: str
    platform: str
    name: str
    memory: int | None
    dtypes: tuple[str, ...]
    count: int = 1
    note: str = ""


_PLATFORMS = {"cuda": "NVIDIA CUDA", "npu": "Ascend NPU", "xpu": "Intel XPU", "mps": "Apple MPS", "cpu": "CPU"}


def attached(wanted: str = "auto") -> Device:
    """The device of that torch type, or the one that torch finds; asked in a process of its own.

    Raises WrongEnvironment where torch is missing or broken, or has no such device.
    """
    if importlib.util.find_spec("torch") is None:
        raise WrongEnvironment("torch is not installed; install vitport[porting], or torch itself")
    done = subprocess.run(
        [sys.executable, "-m", "porting.device", "--json", wanted],
        capture_output=True,
        text=True,
        timeout=_PROBE_S,
        check=False,
        env={**os.environ, "PYTHONPATH": python_path()},
    )
    if done.returncode == 0:
        data = json.loads(done.stdout.splitlines()[-1])
        return Device(**{**data, "dtypes": tuple(data["dtypes"])})
    if done.returncode == 2:
        raise WrongEnvironment(done.stderr.strip().splitlines()[-1])
    raise WrongEnvironment(_broken_torch(done.returncode, done.stderr))


def processor() -> Device:
    """The CPU, where nothing is computed and torch may be missing."""
    return Device("cpu", _PLATFORMS["cpu"], _processor_name(), _memory("cpu", None), ())


def find(wanted: str = "auto") -> Device:
    """The same in this process, which imports torch. Raises WrongEnvironment, and whatever a broken torch does."""
    import torch

    there = torch.accelerator.current_accelerator(check_available=True)
    kind = there.type if there is not None else "cpu"
    note = "" if kind == "npu" or importlib.util.find_spec("torch_npu") is None else _silent_npu()
    if wanted not in ("auto", "cpu", kind):
        have = f"torch {torch.__version__} finds {_PLATFORMS.get(kind, kind)} only"
        raise WrongEnvironment(f"no device of the type {wanted!r}: {note or have}")
    if wanted == "cpu":
        kind = "cpu"
    module = torch.get_device_module(kind)
    return Device(
        kind,
        "AMD ROCm" if kind == "cuda" and torch.version.hip else _PLATFORMS.get(kind, kind),
        _name(kind, module),
        _memory(kind, module),
        tuple(dtype for dtype in _DTYPES if _computes(torch, kind, dtype)),
        module.device_count() if kind != "cpu" else 1,
        note,
    )


def _silent_npu() -> str:
    """Why torch_npu is installed and yet there is no NPU."""
    command = [sys.executable, "-c", "import torch_npu"]
    environment = {**os.environ, AUTOLOAD: "0"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_S, check=False, env=environment)
    if done.returncode == 0:
        return "torch_npu is installed and loads, but finds no NPU; see what `npu-smi info` says of the driver"
    return _broken_npu(done.returncode, done.stderr)


def _broken_torch(code: int, errors: str) -> str:
    if importlib.util.find_spec("torch_npu") is not None and os.environ.get(AUTOLOAD) != "0":
        return f"{_broken_npu(code, errors)}. To go on without the NPU, set {AUTOLOAD}=0"
    return f"torch is installed but cannot be imported: {_last_line(errors) or _died(code)}; install it anew"


def _broken_npu(code: int, errors: str) -> str:
    library = next(iter(_LIBRARY.findall("\n".join(re.findall(r".*cannot open shared object.*", errors)))), "")
    if library:
        return (
            f"torch_npu is installed, but the library {library} of Ascend's CANN toolkit is missing; "
            "install CANN and source its set_env.sh"
        )
    why = _died(code) if code < 0 else _last_line(errors)
    return f"torch_npu is installed but cannot be loaded ({why}); it must be the build for this very torch"


def _died(code: int) -> str:
    return f"the process died of {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def _name(kind: str, module: Any) -> str:
    if hasattr(module, "get_device_name"):
        return str(module.get_device_name(0))
    return _processor_name() if kind == "cpu" else platform.machine()


def _processor_name() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _memory(kind: str, module: Any) -> int | None:
    if kind == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if hasattr(module, "recommended_max_memory"):
        return int(module.recommended_max_memory())
    if hasattr(module, "get_device_properties"):
        return int(module.get_device_properties(0).total_memory)
    return None


def _computes(torch: Any, kind: str, dtype: str) -> bool:
    try:
        ones = torch.ones(8, 8, dtype=getattr(torch, dtype), device=kind)
        return bool((ones @ ones == 8).all())
    except (RuntimeError, TypeError):  # what a backend raises for a dtype that it lacks
        return False


def describe(device: Device) -> str:
    """For a person, a fact a line."""
    several = f" (the first of {device.count})" if device.count > 1 else ""
    memory = f"{device.memory / 2**30:.1f} GiB" if device.memory else "unknown"
    lines = [
        f"device  {device.type}: {device.platform}, {device.name}{several}",
        f"memory  {memory}",
        f"dtypes  {', '.join(device.dtypes)}",
    ]
    return "\n".join(lines + ([f"note    {device.note}"] if device.note else []))


def main(arguments: list[str]) -> int:
    """Print the attached device; 2 where this environment is no good, with one line that says what to do."""
    try:
        if arguments[:1] == ["--json"]:
            print(json.dumps(asdict(find(*arguments[1:2]))))
        else:
            print(describe(attached(*arguments[:1])))
    except WrongEnvironment as problem:
        print(f"porting.device: {problem}" if arguments[:1] != ["--json"] else problem, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

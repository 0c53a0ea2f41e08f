"""Real vLLM in this process, with as little of an engine as a vision tower needs.

A tower wants a current configuration while it is built, model-parallel groups, and its layers' weights made ready once
they are loaded. It wants no checkpoint, hub, scheduler or worker. What is set here is process-wide: one process, one
question.
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from porting.environment import ENVIRONMENT as ENVIRONMENT
from porting.environment import prepare_process as prepare_process


def start_groups(rank: int = 0, world_size: int = 1, rendezvous: Path | None = None, backend: str = "gloo") -> None:
    """Make vLLM's groups: tensor parallel over `world_size` processes that share the file `rendezvous`.

    Where this process has groups already they stay.
    """
    if torch.distributed.is_initialized():
        return
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed.parallel_state import init_distributed_environment, initialize_model_parallel

    where = rendezvous or Path(tempfile.mkdtemp(prefix="vitport-")) / "rendezvous"
    with set_current_vllm_config(VllmConfig()):
        init_distributed_environment(
            world_size=world_size,
            rank=rank,
            distributed_init_method=f"file://{where}",
            local_rank=rank,
            backend=backend,
        )
        initialize_model_parallel(world_size, 1)


def stop_groups() -> None:
    """Undo `start_groups`, in the process that has called it."""
    from vllm.distributed.parallel_state import destroy_distributed_environment, destroy_model_parallel

    destroy_model_parallel()
    destroy_distributed_environment()


@contextmanager
def vllm_config(hf_config: object = None, data_parallel: bool = False) -> Iterator[object]:
    """A current vLLM configuration that knows of a multimodal model with that configuration, and nothing else."""
    from vllm.config import CompilationMode, VllmConfig, set_current_vllm_config
    from vllm.config.multimodal import MultiModalConfig

    multimodal = MultiModalConfig(mm_encoder_tp_mode="data" if data_parallel else "weights")
    config = VllmConfig()
    config.compilation_config.mode = CompilationMode.NONE  # blocks that are decorated to be compiled run as they are
    # VllmConfig checks what it is given at construction only; a real ModelConfig needs a model's files.
    model = SimpleNamespace(multimodal_config=multimodal, hf_config=hf_config, dtype=torch.get_default_dtype())
    object.__setattr__(config, "model_config", model)
    with set_current_vllm_config(config):
        yield config


@contextmanager
def pretended_ranks(world_size: int) -> Iterator[None]:
    """Towers built in here believe to be rank 0 of so many tensor-parallel ranks; they cannot be run."""
    from vllm.distributed import parallel_state

    real = parallel_state._TP
    parallel_state._TP = SimpleNamespace(
        world_size=world_size, rank=0, rank_in_group=0, local_rank=0, is_first_rank=True, is_last_rank=False
    )
    try:
        yield
    finally:
        parallel_state._TP = real


def build(
    make: Callable[[], nn.Module],
    dtype: torch.dtype,
    device: str = "cpu",
    hf_config: object = None,
    data_parallel: bool = False,
) -> nn.Module:
    """Build a tower with parameters of `dtype`, which also decides the attention backend, fill it, make it ready.

    `data_parallel`: ranks are to share pictures, not weights.
    """
    previous = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with vllm_config(hf_config, data_parallel), torch.device(device):
            tower = make().eval()
    finally:
        torch.set_default_dtype(previous)
    fill(tower)
    finish(tower)
    return tower


def fill(module: nn.Module) -> None:
    """Give every parameter values that depend on its name and shape alone: equal names, equal weights, in any vLLM.

    Norm weights lie around one and everything else around zero, so that activations keep their size over many layers.
    """
    for name, parameter in module.named_parameters():
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        values = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        if parameter.dim() > 1:
            values *= parameter[0].numel() ** -0.5
        elif name.endswith("weight"):
            values = 1 + 0.1 * values
        else:
            values *= 0.1
        parameter.data.copy_(values)


def finish(module: nn.Module) -> None:
    """Make layers ready as vLLM's loader does, with plain matrix products: packed kernels differ in the last bits."""
    for layer in module.modules():
        if getattr(layer, "quant_method", None):
            layer.cpu_linear = nn.functional.linear


def output_tensor(output: Any) -> torch.Tensor:
    """What a tower's forward gives, a tensor or tuples and lists of tensors, as one of `(tokens, features)`."""
    if isinstance(output, torch.Tensor):
        return output.reshape(-1, output.shape[-1])
    return torch.cat([output_tensor(part) for part in output if part is not None])

"""What vllm-omni has for no CPU: a platform, and the attention operator of its ring.

The platform says that it is an NPU, for it is the code for NPUs that no GPU sees; its device is the CPU. Attention is
the package's own `SDPABackend`, which PyTorch computes on any device.
"""

from __future__ import annotations

from typing import Any

import torch

from porting.diffusion.package import NAME, submodule

BACKEND = f"{NAME}.diffusion.attention.backends.sdpa.SDPABackend"

_operators: list[torch.library.Library] = []


def stand_in() -> None:
    """Put the platform in its place, before any other module of the package is imported, and the operator as well."""
    interface = submodule("platforms.interface")

    class Npu(interface.OmniPlatform):  # type: ignore[name-defined]
        _omni_enum = interface.OmniPlatformEnum.NPU
        device_type = "cpu"
        dist_backend = "gloo"

        @classmethod
        def get_diffusion_attn_backend_cls(cls, *_: object, **__: object) -> str:
            return BACKEND

        @classmethod
        def get_torch_device(cls, local_rank: int | None = None) -> torch.device:
            return torch.device("cpu")

        @classmethod
        def get_device_count(cls) -> int:
            return 1

        @classmethod
        def set_device(cls, device: torch.device) -> None:
            pass

        @classmethod
        def synchronize(cls) -> None:
            pass

        @classmethod
        def supports_torch_inductor(cls) -> bool:
            return False

    vars(submodule("platforms"))["_current_omni_platform"] = Npu()
    if not _operators:
        library = torch.library.Library("aten", "IMPL")
        library.impl("_scaled_dot_product_efficient_attention", _efficient_attention, "CPU")
        _operators.append(library)  # it holds for as long as the object lives


def native_operators() -> None:
    """Let the layers of the package's models, which have a kernel for each device, take their plain PyTorch."""
    operator = submodule("diffusion.layers.custom_op").CustomOp
    operator.dispatch_forward = lambda self: self.forward_native


def _efficient_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: torch.Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """CUDA's operator, as PyTorch computes the same on a CPU: `(batch, heads, tokens, head_dim)`, and the log of the
    sum of exponentials `(batch, heads, tokens)` in float32.
    """
    output, logsumexp = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, dropout_p, is_causal, attn_mask=attn_bias, scale=scale
    )
    nothing = torch.zeros((), dtype=torch.int64)
    return output, logsumexp, nothing, nothing

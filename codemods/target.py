"""The shape of vision attention in each vLLM, as data. A release belongs to the newest row that is not newer than
it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Target:
    """What a file must look like for one vLLM release. Sources: vLLM 0.13.0 to 0.33.0, and the changes named."""

    version: str
    encoder_attention: str  # module that exports MMEncoderAttention
    backend_enum: str  # module that exports AttentionBackendEnum
    replaces_multi_head_attention: bool  # 0.13 asserts cu_seqlens, so plain batched attention cannot move there
    honours_scale: bool  # 0.13 ignores the constructor's scale on its SDPA and flash paths
    takes_multimodal_config: bool  # constructor argument in 0.13 and 0.14 only (removed by PR #31972)
    takes_backend_override: bool  # get_vit_attn_backend(attn_backend_override=), until 0.14 (PR #31972)
    varlen_backends: tuple[str, ...]  # backends whose kernels read max_seqlen


_SUBMODULE = "vllm.model_executor.layers.attention.mm_encoder_attention"
_PACKAGE = "vllm.model_executor.layers.attention"
_V1_ENUM = "vllm.v1.attention.backends.registry"
_FLASH = ("FLASH_ATTN", "ROCM_AITER_FA")
_FLASH_TRITON = ("FLASH_ATTN", "ROCM_AITER_FA", "TRITON_ATTN")

#                 since    module of the op / of the enum                                 MHA    scale  mm     override
_ROWS: tuple[tuple[str, str, str, bool, bool, bool, bool, tuple[str, ...]], ...] = (
    (
        "0.13",
        "vllm.attention.layers.mm_encoder_attention",
        "vllm.attention.backends.registry",
        False,
        False,
        True,
        True,
        _FLASH,
    ),
    ("0.14", _SUBMODULE, _V1_ENUM, True, True, True, True, _FLASH),
    ("0.15", _SUBMODULE, _V1_ENUM, True, True, False, False, _FLASH),
    ("0.16", _PACKAGE, _V1_ENUM, True, True, False, False, _FLASH),
    ("0.17", _PACKAGE, _V1_ENUM, True, True, False, False, _FLASH_TRITON),
)

OLDEST = _ROWS[0][0]


@cache
def release_key(version: str) -> tuple[int, ...]:
    """`"0.13.0"` as numbers that compare; anything behind the numbers (rc, post, +cpu) is not looked at."""
    numbers = []
    for part in version.split("+")[0].split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def target(version: str) -> Target:
    """The row for a release.

    Raises ValueError for releases before 0.13, which have no MMEncoderAttention.
    """
    fitting = [row for row in _ROWS if release_key(row[0]) <= release_key(version)]
    if not fitting:
        raise ValueError(f"vLLM {version} has no MMEncoderAttention: the oldest target is {OLDEST}")
    return Target(version, *fitting[-1][1:])

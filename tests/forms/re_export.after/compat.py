"""What this plugin takes from vLLM, in one place."""

from vllm.model_executor.layers.attention import MMEncoderAttention

__all__ = ["MMEncoderAttention"]

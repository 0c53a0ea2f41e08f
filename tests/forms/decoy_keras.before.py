import keras
from flax import linen
from keras.layers import MultiHeadAttention
from vllm.logger import init_logger

logger = init_logger(__name__)


def keras_block(heads: int, head_dim: int) -> keras.layers.Layer:
    logger.info("MultiHeadAttention of keras")
    return MultiHeadAttention(num_heads=heads, key_dim=head_dim)


def flax_block(heads: int) -> linen.Module:
    return linen.MultiHeadAttention(num_heads=heads)

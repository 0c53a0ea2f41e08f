import sys

from vllm.logger import init_logger

import orchard_attention

logger = init_logger(__name__)
sys.modules["vllm.attention.layer"] = orchard_attention

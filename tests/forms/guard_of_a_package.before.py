try:
    import flash_attn
except ImportError:
    flash_attn = None

from vllm.logger import init_logger

logger = init_logger(__name__)


def has_flash() -> bool:
    return flash_attn is not None

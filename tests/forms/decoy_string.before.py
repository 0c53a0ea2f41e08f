from pathlib import Path

TEMPLATE = """
from vllm.attention.layer import MultiHeadAttention


class VisionAttention(MultiHeadAttention):
    pass
"""


def write(folder: Path) -> None:
    (folder / "attention.py").write_text(TEMPLATE)

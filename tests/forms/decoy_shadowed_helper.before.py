import torch
from torch import nn


def get_vit_attn_backend(support_fa: bool = False) -> str:
    """This plugin decides for itself."""
    return "flash" if support_fa and torch.cuda.is_available() else "torch"


class Tower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn_backend = get_vit_attn_backend(support_fa=True)
        if self.attn_backend not in {"flash", "torch"}:
            raise RuntimeError(f"no such backend: {self.attn_backend}")

import torch
from torch import nn
from vllm.model_executor.models.qwen2_5_vl import Qwen2_5_VisionBlock
from vllm.model_executor.models.vision import get_vit_attn_backend
from vllm.v1.attention.backends.registry import AttentionBackendEnum


class OrchardTower(nn.Module):
    def __init__(self, config, norm_layer, quant_config=None, prefix: str = "") -> None:
        super().__init__()
        self.attn_backend = get_vit_attn_backend(
            head_size=config.hidden_size // config.num_heads,
            dtype=torch.get_default_dtype(),
        )
        self.blocks = nn.ModuleList(
            [
                Qwen2_5_VisionBlock(
                    dim=config.hidden_size,
                    num_heads=config.num_heads,
                    mlp_hidden_dim=config.intermediate_size,
                    norm_layer=norm_layer,
                    quant_config=quant_config,
                    prefix=f"{prefix}.blocks.{index}",
                )
                for index in range(config.depth)
            ]
        )

    def forward(self, x: torch.Tensor, cu_seqlens: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        max_seqlen = None
        if self.attn_backend in {
            AttentionBackendEnum.FLASH_ATTN,
            AttentionBackendEnum.ROCM_AITER_FA,
            AttentionBackendEnum.TRITON_ATTN,
        }:
            max_seqlen = (cu_seqlens[1:] - cu_seqlens[:-1]).max()
        for block in self.blocks:
            x = block(
                x,
                cu_seqlens=cu_seqlens,
                rotary_pos_emb_cos=cos,
                rotary_pos_emb_sin=sin,
                max_seqlen=max_seqlen,
            )
        return x

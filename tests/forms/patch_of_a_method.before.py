import torch
from vllm.model_executor.models.qwen2_5_vl import Qwen2_5_VisionAttention


def forward(self, x: torch.Tensor, cu_seqlens: torch.Tensor, rotary_pos_emb: torch.Tensor, max_seqlen, seqlens):
    q, k, v = self.split_qkv(x)
    return self.proj(q + k + v)


Qwen2_5_VisionAttention.forward = forward

"""A small vision tower under tensor parallelism: right, and wrong in the ways that ports go wrong."""

from __future__ import annotations

import os
import signal

import torch
from torch import nn
from vllm.distributed import (
    get_tensor_model_parallel_rank,
    get_tensor_model_parallel_world_size,
    tensor_model_parallel_all_gather,
)
from vllm.model_executor.layers.linear import ColumnParallelLinear, QKVParallelLinear, RowParallelLinear

HEADS, HEAD_DIM = 4, 16
HIDDEN = HEADS * HEAD_DIM


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.heads = HEADS // get_tensor_model_parallel_world_size()
        self.qkv = self.projection()
        self.proj = RowParallelLinear(HIDDEN, HIDDEN, prefix="proj")

    def projection(self) -> nn.Module:
        return QKVParallelLinear(HIDDEN, HEAD_DIM, HEADS, HEADS, prefix="qkv")

    def split(self, qkv: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return qkv.chunk(3, dim=-1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        qkv, _ = self.qkv(x)
        q, k, v = (part.view(len(x), -1, HEAD_DIM).transpose(0, 1) for part in self.split(qkv))
        context = nn.functional.scaled_dot_product_attention(q, k, v)
        output, _ = self.proj(context.transpose(0, 1).flatten(1))
        return output


class GathersAcrossRanks(Attention):
    """Each rank holds its q, k and v; what is gathered is q0 k0 v0 q1 k1 v1, no longer three equal parts."""

    def split(self, qkv: torch.Tensor) -> tuple[torch.Tensor, ...]:
        world_size = get_tensor_model_parallel_world_size()
        whole = tensor_model_parallel_all_gather(qkv) if world_size > 1 else qkv
        rank = get_tensor_model_parallel_rank()
        return tuple(part.chunk(world_size, dim=-1)[rank] for part in whole.chunk(3, dim=-1))


class PlainColumns(Attention):
    """A rank's share of the columns is all of q and half of k."""

    def projection(self) -> nn.Module:
        return ColumnParallelLinear(HIDDEN, 3 * HIDDEN, prefix="qkv")


class KeepsAllHeads(Attention):
    """Heads not divided by the number of ranks."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        qkv, _ = self.qkv(x)
        qkv.view(len(x), 3, HEADS, HEAD_DIM)
        return super().forward(x)


class Dies(Attention):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if get_tensor_model_parallel_world_size() > 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)

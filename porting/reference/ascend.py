"""An out-of-tree encoder attention that stands in for Ascend's: same place, same operator, our own code.

The class derives from vLLM's, so it is made on demand: this module imports no vLLM.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

# What vllm-ascend pads: the operator is compiled for these sizes, and slow or refusing between them.
PADDED_ABOVE, PADDED_TO = 64, 128


def ascend_like_attention(mm_encoder_attention: type, unpad: Callable[..., None]) -> type:
    """A subclass of vLLM's `MMEncoderAttention` that calls `unpad` as vllm-ascend calls its operator.

    `unpad` has the signature of `torch_npu._npu_flash_attention_unpad`. Query, key and value are `(batch, tokens,
    heads * head_dim)` or `(batch, tokens, heads, head_dim)`, and so is the result. They are viewed as `(tokens, heads,
    head_dim)`, grouped keys repeated, heads of 65 to 127 padded with zeros to 128, and the lengths taken to the host.
    `scale` is honoured, as vllm-ascend does from 0.23.0 on; 0.13.0 and 0.18.0 take head_dim**-0.5 whatever it says.
    """

    class AscendLikeAttention(mm_encoder_attention):
        def forward_oot(
            self,
            query: torch.Tensor,
            key: torch.Tensor,
            value: torch.Tensor,
            cu_seqlens: torch.Tensor | None = None,
            max_seqlen: torch.Tensor | None = None,
            sequence_lengths: torch.Tensor | None = None,
        ) -> torch.Tensor:
            batch, tokens = query.shape[:2]
            q = query.view(-1, self.num_heads, self.head_size)
            k, v = (tensor.view(-1, self.num_kv_heads, self.head_size) for tensor in (key, value))
            if self.num_heads != self.num_kv_heads:
                k, v = (x.repeat_interleave(self.num_heads // self.num_kv_heads, dim=1) for x in (k, v))
            if PADDED_ABOVE < self.head_size < PADDED_TO:
                q, k, v = (torch.nn.functional.pad(x, (0, PADDED_TO - self.head_size)) for x in (q, k, v))
            if sequence_lengths is None:
                if cu_seqlens is None:
                    sequence_lengths = torch.full((batch,), tokens, dtype=torch.int32)
                else:
                    sequence_lengths = torch.diff(cu_seqlens)
            out = torch.empty_like(q, memory_format=torch.contiguous_format)
            unpad(
                query=q.contiguous(),
                key=k.contiguous(),
                value=v.contiguous(),
                seq_len=sequence_lengths.cpu(),
                scale_value=self.head_size**-0.5 if self.scale is None else self.scale,
                num_heads=self.num_heads,
                num_kv_heads=self.num_kv_heads,
                out=out,
            )
            out = out[..., : self.head_size]
            shape = (batch, tokens, -1) if query.dim() == 3 else (batch, tokens, self.num_heads, self.head_size)
            return out.reshape(shape).contiguous()

        # On Ascend vLLM's platform is out-of-tree. On any other its dispatch picks one of these.
        forward_cpu = forward_cuda = forward_xpu = forward_native = forward_hip = forward_oot

    return AscendLikeAttention

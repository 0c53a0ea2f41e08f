"""The vision tower: patches in, one embedding for each group of merged patches out.

It keeps the parameter names of a Qwen2.5-VL checkpoint, so that such a checkpoint loads without conversion.
"""

from collections.abc import Iterable

import torch
import torch.nn as nn
from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLVisionConfig
from vllm.attention.backends.registry import AttentionBackendEnum
from vllm.attention.layer import maybe_get_vit_flash_attn_backend
from vllm.model_executor.layers.activation import get_act_and_mul_fn
from vllm.model_executor.layers.conv import Conv3dLayer
from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.model_executor.layers.linear import ColumnParallelLinear, MergedColumnParallelLinear, RowParallelLinear
from vllm.model_executor.layers.quantization import QuantizationConfig
from vllm.model_executor.layers.rotary_embedding import get_rope
from vllm.model_executor.model_loader.weight_utils import default_weight_loader
from vllm.model_executor.models.utils import cast_overflow_tensors
from vllm.model_executor.models.vision import get_vit_attn_backend

from .attention import OrchardVisionAttention
from .layout import cumulative, grid_layout

# Checkpoint name -> our merged parameter and the shard of it that the checkpoint's tensor fills.
MERGED_WEIGHTS = {
    ".mlp.gate_proj.": (".mlp.gate_up_proj.", 0),
    ".mlp.up_proj.": (".mlp.gate_up_proj.", 1),
}


class OrchardPatchEmbed(nn.Module):
    """Flattened pixels of one patch (two frames deep) to one vector."""

    def __init__(self, patch_size: int, temporal_patch_size: int, in_channels: int, hidden_size: int) -> None:
        super().__init__()
        self.patch_shape = (in_channels, temporal_patch_size, patch_size, patch_size)
        kernel_size = self.patch_shape[1:]
        self.proj = Conv3dLayer(in_channels, hidden_size, kernel_size=kernel_size, stride=kernel_size, bias=False)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.proj(pixels.view(-1, *self.patch_shape)).flatten(1)


class OrchardVisionMLP(nn.Module):
    """Gated feed-forward layer."""

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        hidden_act: str,
        quant_config: QuantizationConfig | None = None,
        prefix: str = "",
        use_data_parallel: bool = False,
    ) -> None:
        super().__init__()
        self.gate_up_proj = MergedColumnParallelLinear(
            hidden_size,
            [intermediate_size, intermediate_size],
            quant_config=quant_config,
            prefix=f"{prefix}.gate_up_proj",
            disable_tp=use_data_parallel,
        )
        self.down_proj = RowParallelLinear(
            intermediate_size,
            hidden_size,
            quant_config=quant_config,
            prefix=f"{prefix}.down_proj",
            disable_tp=use_data_parallel,
        )
        self.act = get_act_and_mul_fn(hidden_act)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate_up, _ = self.gate_up_proj(x)
        output, _ = self.down_proj(self.act(gate_up))
        return output


class OrchardVisionBlock(nn.Module):
    """Attention, then feed-forward, each after a norm and added to what went in."""

    def __init__(
        self,
        config: Qwen2_5_VLVisionConfig,
        norm_eps: float,
        quant_config: QuantizationConfig | None = None,
        prefix: str = "",
        use_data_parallel: bool = False,
        attn_backend_override: AttentionBackendEnum | None = None,
    ) -> None:
        super().__init__()
        self.norm1 = RMSNorm(config.hidden_size, eps=norm_eps)
        self.norm2 = RMSNorm(config.hidden_size, eps=norm_eps)
        self.attn = OrchardVisionAttention(
            config.hidden_size,
            config.num_heads,
            quant_config=quant_config,
            prefix=f"{prefix}.attn",
            use_data_parallel=use_data_parallel,
            attn_backend_override=attn_backend_override,
        )
        self.mlp = OrchardVisionMLP(
            config.hidden_size,
            config.intermediate_size,
            config.hidden_act,
            quant_config=quant_config,
            prefix=f"{prefix}.mlp",
            use_data_parallel=use_data_parallel,
        )

    def forward(
        self,
        x: torch.Tensor,
        cu_seqlens: torch.Tensor,
        rotary_cos: torch.Tensor,
        rotary_sin: torch.Tensor,
        max_seqlen: int | None = None,
    ) -> torch.Tensor:
        attended = self.attn(
            self.norm1(x),
            cu_seqlens=cu_seqlens,
            rotary_cos=rotary_cos,
            rotary_sin=rotary_sin,
            max_seqlen=max_seqlen,
        )
        normed, x = self.norm2(attended, x)
        return x + self.mlp(normed)


class OrchardPatchMerger(nn.Module):
    """Joins the patches of one cell and projects them to the width of the language model."""

    def __init__(
        self,
        config: Qwen2_5_VLVisionConfig,
        norm_eps: float,
        quant_config: QuantizationConfig | None = None,
        prefix: str = "",
        use_data_parallel: bool = False,
    ) -> None:
        super().__init__()
        self.cell_size = config.hidden_size * config.spatial_merge_size**2
        self.ln_q = RMSNorm(config.hidden_size, eps=norm_eps)
        self.mlp = nn.Sequential(
            ColumnParallelLinear(
                self.cell_size,
                self.cell_size,
                quant_config=quant_config,
                prefix=f"{prefix}.mlp.0",
                return_bias=False,
                disable_tp=use_data_parallel,
            ),
            nn.GELU(),
            RowParallelLinear(
                self.cell_size,
                config.out_hidden_size,
                quant_config=quant_config,
                prefix=f"{prefix}.mlp.2",
                return_bias=False,
                disable_tp=use_data_parallel,
            ),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.mlp(self.ln_q(x).view(-1, self.cell_size))


class OrchardVisionTower(nn.Module):
    """Vision transformer with window attention in most layers and whole-frame attention in a few."""

    def __init__(
        self,
        config: Qwen2_5_VLVisionConfig,
        norm_eps: float = 1e-6,
        quant_config: QuantizationConfig | None = None,
        prefix: str = "",
        use_data_parallel: bool = False,
        attn_backend_override: AttentionBackendEnum | None = None,
    ) -> None:
        super().__init__()
        self.out_hidden_size = config.out_hidden_size
        self.spatial_merge_size = config.spatial_merge_size
        self.cell_patches = config.spatial_merge_size**2
        self.window_side = config.window_size // config.patch_size // config.spatial_merge_size
        self.full_attention_layers = frozenset(config.fullatt_block_indexes)

        self.patch_embed = OrchardPatchEmbed(
            config.patch_size, config.temporal_patch_size, config.in_channels, config.hidden_size
        )

        # Half of each head turns with the row, half with the column.
        head_dim = config.hidden_size // config.num_heads
        self.rotary_emb = get_rope(
            head_size=head_dim,
            rotary_dim=head_dim // 2,
            max_position=8192,
            is_neox_style=True,
        )

        self.attn_backend = get_vit_attn_backend(
            head_size=head_dim,
            dtype=torch.get_default_dtype(),
            attn_backend_override=attn_backend_override,
        )
        self.attn_backend, _ = maybe_get_vit_flash_attn_backend(
            self.attn_backend,
            attn_backend_override=attn_backend_override,
        )

        self.blocks = nn.ModuleList(
            OrchardVisionBlock(
                config,
                norm_eps,
                quant_config=quant_config,
                prefix=f"{prefix}.blocks.{index}",
                use_data_parallel=use_data_parallel,
                attn_backend_override=attn_backend_override,
            )
            for index in range(config.depth)
        )
        self.merger = OrchardPatchMerger(
            config,
            norm_eps,
            quant_config=quant_config,
            prefix=f"{prefix}.merger",
            use_data_parallel=use_data_parallel,
        )

    @property
    def dtype(self) -> torch.dtype:
        return self.patch_embed.proj.weight.dtype

    @property
    def device(self) -> torch.device:
        return self.patch_embed.proj.weight.device

    def compute_attn_mask_seqlen(self, cu_seqlens: torch.Tensor) -> int | None:
        """Length of the longest sequence, for the kernels that want to know it."""
        max_seqlen = None
        if self.attn_backend in {AttentionBackendEnum.FLASH_ATTN, AttentionBackendEnum.ROCM_AITER_FA}:
            max_seqlen = (cu_seqlens[1:] - cu_seqlens[:-1]).max().item()
        return max_seqlen

    def rotary_cos_sin(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosine and sine of each patch's row and column, [patches, head_dim / 2] each."""
        cos, sin = self.rotary_emb.get_cos_sin(int(positions.max()) + 1)
        positions = positions.to(cos.device)
        return cos[positions].flatten(1), sin[positions].flatten(1)

    def forward(self, pixel_values: torch.Tensor, grid_thw: list[list[int]]) -> torch.Tensor:
        layouts = [
            grid_layout(int(t), int(h), int(w), self.spatial_merge_size, self.window_side) for t, h, w in grid_thw
        ]
        cells_before = 0
        cell_orders = []
        for layout in layouts:
            cell_orders.append(layout.cell_order + cells_before)
            cells_before += len(layout.cell_order)
        cell_order = torch.cat(cell_orders)
        positions = torch.cat([layout.positions for layout in layouts])
        cu_frames = cumulative(torch.cat([layout.frame_lengths for layout in layouts]))
        cu_windows = cumulative(torch.cat([layout.window_lengths for layout in layouts]))

        # Asked of the CPU tensors, so that no block waits for the device.
        longest_frame = self.compute_attn_mask_seqlen(cu_frames)
        longest_window = self.compute_attn_mask_seqlen(cu_windows)

        order = cell_order.to(self.device)
        cu_frames = cu_frames.to(self.device)
        cu_windows = cu_windows.to(self.device)
        cos, sin = (self.by_window(table.to(self.device), order) for table in self.rotary_cos_sin(positions))

        x = self.patch_embed(pixel_values.to(device=self.device, dtype=self.dtype))
        x = self.by_window(x, order).unsqueeze(1)
        for index, block in enumerate(self.blocks):
            whole_frame = index in self.full_attention_layers
            x = block(
                x,
                cu_seqlens=cu_frames if whole_frame else cu_windows,
                rotary_cos=cos,
                rotary_sin=sin,
                max_seqlen=longest_frame if whole_frame else longest_window,
            )
        if x.dtype == torch.float16:
            x = cast_overflow_tensors(x)

        return self.merger(x)[torch.argsort(order)]

    def by_window(self, patches: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
        """The rows of `patches`, cell by cell in `order`."""
        return patches.unflatten(0, (-1, self.cell_patches))[order].flatten(0, 1)

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Fill the parameters from a checkpoint's tensors, named as below `visual.`; the names that were filled."""
        parameters = dict(self.named_parameters())
        loaded = set()
        for name, tensor in weights:
            shard = ()
            for theirs, (ours, index) in MERGED_WEIGHTS.items():
                if theirs in name:
                    name, shard = name.replace(theirs, ours), (index,)
            parameter = parameters[name]
            load = getattr(parameter, "weight_loader", default_weight_loader)
            load(parameter, tensor, *shard)
            loaded.add(name)
        return loaded

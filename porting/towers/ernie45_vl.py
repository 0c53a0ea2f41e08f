"""ERNIE-4.5-VL: like Qwen2-VL, one frame deep and without a merger."""

from porting.towers.names import qwen_names
from porting.towers.pictures import packed
from porting.towers.tower import Tower

TOWER = Tower(
    family="ernie45_vl",
    classes=("Ernie4_5_VisionTransformer",),
    config=lambda shape: qwen_names(embed_dim=shape.hidden_size, mlp_ratio=2, temporal_patch_size=1)(shape),
    inputs=packed(grid_as_tensor=True),
)

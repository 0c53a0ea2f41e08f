"""Qwen2.5-VL: windows of two by two merged patches in the first layer, whole frames in the last."""

from porting.towers.names import qwen_names
from porting.towers.pictures import packed
from porting.towers.tower import Tower

TOWER = Tower(
    family="qwen2_5_vl",
    classes=("Qwen2_5_VisionTransformer",),
    config=qwen_names(window_size=16, fullatt_block_indexes=[1]),
    inputs=packed(),
)

"""Qwen2-VL: `hidden_size` is the language model's; the tower's own width is `embed_dim`."""

from porting.towers.names import qwen_names
from porting.towers.pictures import packed
from porting.towers.tower import Tower

TOWER = Tower(
    family="qwen2_vl",
    classes=("Qwen2VisionTransformer",),
    config=lambda shape: qwen_names(embed_dim=shape.hidden_size, hidden_size=48, mlp_ratio=2)(shape),
    inputs=packed(),
)

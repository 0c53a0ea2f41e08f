"""MoonViT, the tower of Kimi-VL."""

from porting.towers.names import transformers_names
from porting.towers.pictures import patches_with_sizes
from porting.towers.tower import Tower

TOWER = Tower(
    family="moonvit",
    classes=("MoonVitPretrainedModel",),
    config=transformers_names(init_pos_emb_height=8, init_pos_emb_width=8, merge_kernel_size=(2, 2)),
    inputs=patches_with_sizes,
    video=False,
)

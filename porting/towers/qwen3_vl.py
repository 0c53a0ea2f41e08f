"""Qwen3-VL: learned positions, and a second merger that is fed by the first layer."""

from porting.towers.names import qwen_names
from porting.towers.pictures import packed
from porting.towers.tower import Tower

TOWER = Tower(
    family="qwen3_vl",
    classes=("Qwen3_VisionTransformer",),
    config=qwen_names(num_position_embeddings=64, deepstack_visual_indexes=[0], hidden_act="gelu_pytorch_tanh"),
    inputs=packed(),
)

"""GLM-4.1V: learned positions, interpolated between those of a square picture, and a convolution that merges."""

from porting.towers.names import qwen_names
from porting.towers.pictures import packed
from porting.towers.tower import Tower

TOWER = Tower(
    family="glm4_1v",
    classes=("Glm4vVisionTransformer",),
    config=qwen_names(image_size=32, rms_norm_eps=1e-5),
    inputs=packed(),
)

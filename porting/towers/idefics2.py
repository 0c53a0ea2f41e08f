"""The tower of Idefics2, MiniCPM-V and Aria. Pictures of one size: padding is attended to unless a model masks it."""

from porting.towers.names import transformers_names
from porting.towers.pictures import images_with_masks
from porting.towers.tower import Tower

TOWER = Tower(
    family="idefics2",
    classes=("Idefics2VisionTransformer",),
    config=transformers_names(),
    inputs=images_with_masks,
    sizes=False,
    video=False,
)

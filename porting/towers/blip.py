"""The tower of BLIP-2."""

from porting.towers.names import transformers_names
from porting.towers.pictures import images
from porting.towers.tower import Tower

TOWER = Tower(
    family="blip",
    classes=("BlipVisionModel",),
    config=transformers_names(qkv_bias=True),
    inputs=images,
    sizes=False,
    video=False,
)

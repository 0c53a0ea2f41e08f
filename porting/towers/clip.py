"""CLIP."""

from porting.towers.names import transformers_names
from porting.towers.pictures import images
from porting.towers.tower import Tower

TOWER = Tower(
    family="clip",
    classes=("CLIPVisionModel",),
    config=transformers_names(hidden_act="quick_gelu"),
    inputs=images,
    sizes=False,
    video=False,
)

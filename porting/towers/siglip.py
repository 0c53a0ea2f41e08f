"""SigLIP."""

from porting.towers.names import transformers_names
from porting.towers.pictures import images
from porting.towers.tower import Tower

TOWER = Tower(
    family="siglip",
    classes=("SiglipVisionModel",),
    config=transformers_names(vision_use_head=False),
    inputs=images,
    sizes=False,
    video=False,
)

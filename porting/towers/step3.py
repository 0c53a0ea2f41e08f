"""Step3: patches are made by a convolution as large as its step."""

from porting.towers.names import transformers_names
from porting.towers.pictures import images
from porting.towers.tower import Tower

TOWER = Tower(
    family="step3",
    classes=("Step3VisionTransformer",),
    config=transformers_names(hidden_act="quick_gelu"),
    inputs=images,
    sizes=False,
    video=False,
)

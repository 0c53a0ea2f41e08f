"""AIMv2, the tower of Ovis."""

from porting.towers.names import transformers_names
from porting.towers.pictures import images
from porting.towers.tower import Tower

TOWER = Tower(
    family="aimv2",
    classes=("AIMv2Model",),
    config=transformers_names(rms_norm_eps=1e-5, qkv_bias=False, mlp_bias=False),
    inputs=images,
    sizes=False,
    video=False,
)

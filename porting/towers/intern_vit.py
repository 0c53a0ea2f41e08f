"""InternViT."""

from porting.towers.names import transformers_names
from porting.towers.pictures import images
from porting.towers.tower import Tower

TOWER = Tower(
    family="intern_vit",
    classes=("InternVisionModel",),
    config=transformers_names(qkv_bias=True, qk_normalization=True, norm_type="rms_norm", initializer_factor=1.0),
    inputs=images,
    sizes=False,
    video=False,
)

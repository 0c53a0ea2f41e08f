"""The tower of Ovis2.5: windows of two by two merged patches in the first layer, whole frames in the last."""

from porting.towers.names import transformers_names
from porting.towers.pictures import packed
from porting.towers.tower import Tower

TOWER = Tower(
    family="siglip2navit",
    classes=("Siglip2NavitModel",),
    config=transformers_names(
        use_rope=True,
        window_size=16,
        fullatt_block_indexes="1",
        hidden_stride=2,
        preserve_original_pe=True,
        num_patches=-1,
        temporal_patch_size=1,
    ),
    inputs=packed(grid_as_tensor=True),
)

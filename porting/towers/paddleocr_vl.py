"""PaddleOCR-VL: positions and sequence boundaries are made by the caller."""

from porting.towers.names import transformers_names
from porting.towers.pictures import one_long_sequence
from porting.towers.tower import Tower

TOWER = Tower(
    family="paddleocr_vl",
    classes=("SiglipVisionModel",),
    config=transformers_names(spatial_merge_size=2),
    inputs=one_long_sequence,
)

"""dots.ocr: `hidden_size` is the language model's; the tower's own width is `embed_dim`."""

from porting.towers.names import transformers_names
from porting.towers.pictures import packed
from porting.towers.tower import Shape, Tower


def config(shape: Shape) -> dict[str, object]:
    more = {"rms_norm_eps": 1e-5, "use_bias": True, "post_norm": True, "is_causal": False}
    merging = {"temporal_patch_size": 1, "spatial_merge_size": 2, "attn_implementation": "sdpa"}
    return transformers_names(embed_dim=shape.hidden_size, hidden_size=48, **more, **merging)(shape)


TOWER = Tower(family="dots_ocr", classes=("DotsVisionTransformer",), config=config, inputs=packed())

"""DeepSeek-OCR: a SAM encoder, whose sizes are constructor arguments, and a CLIP encoder."""

from porting.towers.names import transformers_names
from porting.towers.pictures import images
from porting.towers.tower import Shape, Tower


def sam(shape: Shape) -> dict[str, object]:
    size = {"img_size": 64, "patch_size": 4, "in_chans": 3, "embed_dim": shape.hidden_size, "mlp_ratio": 2.0}
    layers = {"depth": shape.depth, "num_heads": shape.heads, "window_size": 4, "global_attn_indexes": (1,)}
    return {**size, **layers, "use_rel_pos": True, "last_conv_output": 64}


SAM = Tower(
    family="deepencoder_sam",
    classes=("ImageEncoderViT",),
    config=sam,
    inputs=images,
    sizes=False,
    video=False,
)
CLIP = Tower(
    family="deepencoder_clip",
    classes=("DeepCLIPVisionTransformer",),
    config=transformers_names(hidden_act="quick_gelu"),
    inputs=images,
    sizes=False,
    video=False,
)

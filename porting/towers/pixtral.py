"""Pixtral, in Mistral's own form and in Transformers': a list of pictures of any size, packed by the tower itself."""

from porting.towers.names import transformers_names
from porting.towers.pictures import list_of_images
from porting.towers.tower import Shape, Tower


def config(shape: Shape) -> dict[str, object]:
    from transformers import PixtralVisionConfig

    # Transformers 5.17 renamed the kind of rotary positions that this tower has.
    rope = {"rope_theta": 10000.0, "rope_parameters": getattr(PixtralVisionConfig(), "rope_parameters", None)}
    return transformers_names(head_dim=shape.head_dim, hidden_act="silu", **rope)(shape)


MISTRAL = Tower(
    family="pixtral",
    classes=("VisionTransformer",),
    config=config,
    inputs=list_of_images,
    video=False,
)
TRANSFORMERS = Tower(
    family="pixtral_hf",
    classes=("PixtralHFVisionModel",),
    config=config,
    inputs=list_of_images,
    video=False,
)

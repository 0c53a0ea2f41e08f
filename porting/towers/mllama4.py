"""Llama 4: tiles of one size, rotary positions computed once for that size."""

from porting.towers.names import transformers_names
from porting.towers.pictures import images
from porting.towers.tower import Shape, Tower


def config(shape: Shape) -> dict[str, object]:
    adapter = {"projector_input_dim": 64, "projector_output_dim": 64, "pixel_shuffle_ratio": 0.5}
    rope = {"rope_parameters": {"rope_type": "mllama4", "rope_theta": 10000.0}, "rope_theta": 10000.0}
    return {
        **transformers_names(multi_modal_projector_bias=False, vision_output_dim=64, **adapter, **rope)(shape),
        "intermediate_size": 4 * shape.hidden_size,  # four patches are joined before the adapter
    }


TOWER = Tower(
    family="mllama4",
    classes=("Llama4VisionModel",),
    config=config,
    inputs=images,
    sizes=False,
    video=False,
)

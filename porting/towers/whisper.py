"""Whisper's encoder, and those of audio models made from it: sounds instead of pictures."""

from porting.towers.pictures import sounds
from porting.towers.tower import Tower

TOWER = Tower(
    family="whisper",
    classes=("WhisperEncoder",),
    config=lambda shape: {
        "encoder_layers": shape.depth,
        "d_model": shape.hidden_size,
        "encoder_ffn_dim": 2 * shape.hidden_size,
        "encoder_attention_heads": shape.heads,
        "activation_function": "gelu",
        "num_mel_bins": 8,
        "max_source_positions": 16,
        "scale_embedding": False,
        "is_encoder_decoder": True,
    },
    inputs=sounds,
    sizes=False,
    video=False,
)

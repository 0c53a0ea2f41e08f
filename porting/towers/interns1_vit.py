"""InternViT of Intern-S1, which takes the sides of pictures and patches as pairs."""

from porting.towers.names import transformers_names
from porting.towers.pictures import images
from porting.towers.tower import Tower

TOWER = Tower(
    family="interns1_vit",
    classes=("InternS1VisionModel",),
    config=transformers_names(
        image_size=(32, 32),
        patch_size=(4, 4),
        attention_bias=True,
        use_qk_norm=True,
        norm_type="rms_norm",
        layer_scale_init_value=0.1,
        use_absolute_position_embeddings=True,
        use_mask_token=False,
        use_mean_pooling=True,
        hidden_dropout_prob=0.0,
        projection_dropout=0.0,
    ),
    inputs=images,
    sizes=False,
    video=False,
)

"""What vision encoders give to their model, as releases up to 0.11.0 chose it.

Source: vLLM 0.10.2 and 0.11.0, `model_executor/models/vision.py`.
"""

from __future__ import annotations

import torch


def resolve_visual_encoder_outputs(
    encoder_outputs: torch.Tensor | list[torch.Tensor],
    feature_sample_layers: list[int] | None,
    post_layer_norm: torch.nn.Module | None,
    max_possible_layers: int,
) -> torch.Tensor:
    """The last layer's output, normalised; or those of some layers, behind each other in their features.

    `encoder_outputs` is then what went into the first layer and what came out of each, `(batch, tokens, features)`.
    Negative layers count from the end of the whole encoder, of which fewer than `max_possible_layers` may be there.
    """
    if feature_sample_layers is None:
        assert isinstance(encoder_outputs, torch.Tensor)
        return encoder_outputs if post_layer_norm is None else post_layer_norm(encoder_outputs)
    left_out = max_possible_layers - (len(encoder_outputs) - 1)
    sampled = [encoder_outputs[layer if layer >= 0 else layer + left_out] for layer in feature_sample_layers]
    if post_layer_norm is not None and feature_sample_layers[-1] in (len(sampled) - 1, -1):
        sampled[-1] = post_layer_norm(encoder_outputs)  # of the whole list: this failed then, and does here
    return torch.cat(sampled, dim=-1)

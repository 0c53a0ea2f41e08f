"""A whole model from a `config.json` alone: no weights, tokenizer, hub or engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from porting import host, models
from porting.models import checkpoint

# These look for a processor while they are built.
WITH_PROCESSOR = {"Ovis2_5"}


def build(
    cls: type[nn.Module], architecture: str, dtype: str, device: str, folder: Path, flat: bool = False
) -> nn.Module:
    """A model of that class, of the tiny configuration of one of vLLM's architectures, filled and ready to embed.

    `flat`: what the configuration says of the language model stands beside it too, as in code for transformers up to 4.
    Needs vLLM's groups. The class is registered as the architecture: one that vLLM only knows the name of it would look
    into in a process of its own, for half a minute.
    """
    from vllm import ModelRegistry
    from vllm.config import LoadConfig, ModelConfig, VllmConfig, set_current_vllm_config
    from vllm.model_executor.model_loader.utils import initialize_model

    values = models.config(architecture)
    (folder / "config.json").write_text(json.dumps(values), encoding="utf-8")
    _make_known(values["model_type"])
    if architecture in WITH_PROCESSOR:
        from transformers import Qwen2VLImageProcessor

        checkpoint.tokenizer().save_pretrained(folder)
        Qwen2VLImageProcessor().save_pretrained(folder)
    ModelRegistry.register_model(architecture, cls)
    model_config = ModelConfig(
        model=str(folder),
        tokenizer=str(folder),
        skip_tokenizer_init=architecture not in WITH_PROCESSOR,
        dtype=dtype,
        enforce_eager=True,
        max_model_len=256,
        limit_mm_per_prompt={"image": 8, "video": 8},
        hf_overrides=_flattened if flat else {},
    )
    config = VllmConfig(model_config=model_config, load_config=LoadConfig(load_format="dummy"))
    previous = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        with set_current_vllm_config(config), torch.device(device):
            model: nn.Module = initialize_model(config).eval()
    finally:
        torch.set_default_dtype(previous)
    host.fill(model)
    host.finish(model)
    return model


def _flattened(config: Any) -> Any:
    """A configuration that has its language model's attributes too, where it has none of that name."""
    for name, value in config.get_text_config().to_dict().items():
        if not hasattr(config, name):
            setattr(config, name, value)
    return config


def _make_known(model_type: str) -> None:
    """A configuration class for a type that transformers leaves to code beside a checkpoint."""
    from transformers import AutoConfig, PretrainedConfig
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    if model_type in CONFIG_MAPPING:
        return

    def part_of(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        known = value.get("model_type") in CONFIG_MAPPING
        return AutoConfig.for_model(**value) if known else PretrainedConfig.from_dict(value)

    class Plain(PretrainedConfig):
        def __init__(self, **values: Any) -> None:
            super().__init__(
                **{name: part_of(value) if name.endswith("_config") else value for name, value in values.items()}
            )

    Plain.model_type = model_type
    AutoConfig.register(model_type, Plain)

"""A tower from its class and a tiny configuration, whatever its constructor is called with in this vLLM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from porting import host
from porting.towers.structure import constructor


class MissingAttribute(AttributeError):
    """A class read something of its configuration that the configuration does not have."""


def config_of(values: Mapping[str, Any]) -> Any:
    """A configuration as models get it, of Transformers' own class: some towers insist on it.

    Only what is asked of `values` itself can be missing; the base class has a few attributes of its own.
    """
    from transformers import PretrainedConfig

    class TinyConfig(PretrainedConfig):
        model_type = "vitport_tiny"

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            raise MissingAttribute(name)

    return TinyConfig(**values)


def construct(cls: type[nn.Module], config: Any, values: Mapping[str, Any]) -> nn.Module:
    """Call the class. Its configuration is every required parameter that is named so and nothing else fits, else the
    first one. Needs a current vLLM configuration.
    """
    from vllm.config import get_current_vllm_config

    current = get_current_vllm_config()
    multimodal = current.model_config.multimodal_config
    known = {
        "prefix": "visual",
        "quant_config": None,
        "cache_config": None,
        "vllm_config": current,
        "multimodal_config": multimodal,
        "use_data_parallel": multimodal.mm_encoder_tp_mode == "data",
        "text_config": config,
    }
    arguments: dict[str, Any] = {}
    unknown: list[str] = []
    for name, parameter in constructor(cls).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if name in known:
            arguments[name] = known[name]
        elif name in values:
            arguments[name] = values[name]
        elif parameter.default is parameter.empty:
            unknown.append(name)
    configs = [name for name in unknown if name.endswith("config")] or unknown[:1]
    if rest := [name for name in unknown if name not in configs]:
        raise TypeError(f"its constructor also wants {', '.join(rest)}, of which nothing is known")
    return cls(**arguments, **dict.fromkeys(configs, config))


def make_with(
    cls: type[nn.Module],
    values: Mapping[str, Any],
    dtype: torch.dtype,
    device: str = "cpu",
    data_parallel: bool = False,
) -> nn.Module:
    """Build a tower from the values of a configuration, fill it, make it ready."""
    config = config_of(values)
    return host.build(lambda: construct(cls, config, values), dtype, device, config, data_parallel)

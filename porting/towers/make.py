"""A tower from its class and a tiny configuration, whatever its constructor is called with in this vLLM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from porting import host
from porting.towers.structure import constructor


class MissingAttribute(AttributeError):
    """A class read something of its configuration that the configuration does not have."""


class MissingParameters(TypeError):
    """A class is constructed with something that the configuration does not have; `names` are its parameters."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(f"is constructed with {_listed(names)}")
        self.names = tuple(names)


def _listed(names: Sequence[str]) -> str:
    quoted = [f"`{name}`" for name in names]
    return " and ".join(filter(None, (", ".join(quoted[:-1]), quoted[-1])))


def config_of(values: Mapping[str, Any], read: set[str] | None = None) -> Any:
    """A configuration as models get it, of Transformers' own class: some towers insist on it.

    Only what is asked of `values` itself can be missing; the base class has a few attributes of its own. `read` takes
    the names of what is read of it.
    """
    from transformers import PretrainedConfig

    class TinyConfig(PretrainedConfig):
        model_type = "vitport_tiny"

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            raise MissingAttribute(name)

        def __getattribute__(self, name: str) -> Any:
            if read is not None and not name.startswith("_"):
                read.add(name)
            return super().__getattribute__(name)

    return TinyConfig(**values)


def construct(cls: type[nn.Module], values: Mapping[str, Any]) -> nn.Module:
    """Call the class. Its configuration is every required parameter that is named so and nothing else fits, else the
    first one. Needs a current vLLM configuration.

    Raises MissingParameters for parameters of which nothing is known, and where the first one was no configuration: the
    class failed, and had read nothing of it.
    """
    read: set[str] = set()
    config = config_of(values, read)
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
    named = [name for name in unknown if name.endswith("config")]
    configs = named or unknown[:1]
    if len(unknown) > len(configs):
        raise MissingParameters([name for name in unknown if name not in named])
    read.clear()
    try:
        return cls(**arguments, **dict.fromkeys(configs, config))
    except Exception as failure:
        if configs and not named and not read:
            raise MissingParameters(configs) from failure
        raise


def make_with(
    cls: type[nn.Module],
    values: Mapping[str, Any],
    dtype: torch.dtype,
    device: str = "cpu",
    data_parallel: bool = False,
) -> nn.Module:
    """Build a tower from the values of a configuration, fill it, make it ready."""
    return host.build(lambda: construct(cls, values), dtype, device, config_of(values), data_parallel)

"""Decorators of classes that old files call with arguments they no longer take. None has a part in what is computed."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def default_pooling_type(pooling_type: str) -> Callable[[T], T]:
    """`default_pooling_type` up to 0.13: marks a class for the pooler of its language model."""

    def mark(model: T) -> T:
        model.default_pooling_type = pooling_type  # type: ignore[attr-defined]
        return model

    return mark


def support_torch_compile(cls: Any = None, **keywords: Any) -> Any:
    """`support_torch_compile` of the installed vLLM, without keywords that only older ones took."""
    decorate = importlib.import_module("vllm.compilation.decorators").support_torch_compile
    known = inspect.signature(decorate).parameters
    keywords = {name: value for name, value in keywords.items() if name in known}
    return decorate(cls, **keywords) if cls is not None else decorate(**keywords)

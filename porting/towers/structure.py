"""What classes of a loaded module are: which use which, and which are vision towers. Nothing is built, no source read.

A class uses another if its own code, or code that it inherits, or a function of its module that it calls, names it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from contextlib import suppress
from types import CodeType, FunctionType, ModuleType
from typing import Any

from torch import nn

# What encoder attention is made of, ported or not. An original is found by the same rule as its port.
ATTENTION = frozenset({
    "MMEncoderAttention",
    "MultiHeadAttention",
    "flash_attn_varlen_func",
    "maybe_get_vit_flash_attn_backend",
    "scaled_dot_product_attention",
})  # fmt: skip
LAYER_LISTS = frozenset({"ModuleList", "Sequential", "make_layers"})
# Packages whose classes are parts to build with, and not parts of somebody's tower.
PARTS = ("torch", "transformers", "vllm.attention", "vllm.model_executor.layers", "vllm.model_executor.custom_op")


def towers_of(module: ModuleType) -> list[type[nn.Module]]:
    """The vision (and audio) towers that a module defines, in the order of the module.

    A tower builds several layers of encoder attention, is no whole model, and nothing but a whole model uses it.
    """
    defined = [cls for cls in classes_in(module) if cls.__module__ == module.__name__]
    attending = [cls for cls in defined if attends(cls) and not is_whole_model(cls)]
    parts = {part for cls in attending for part in used_by(cls) if part is not cls}
    bases = {base for cls in attending for base in cls.__mro__[1:]}
    return [cls for cls in attending if cls not in parts | bases and LAYER_LISTS & names_in(cls)]


def towers_elsewhere(module: ModuleType) -> list[type[nn.Module]]:
    """The towers that the classes of a module use, but that another file defines."""
    used = {part: None for cls in classes_in(module) for part in used_by(cls)}
    modules = {part.__module__: inspect.getmodule(part) for part in used if part.__module__ != module.__name__}
    return [tower for other in modules.values() if other for tower in towers_of(other) if tower in used]


def layered_parts(cls: type[nn.Module]) -> list[type[nn.Module]]:
    """What of the same file a class uses, that builds several layers of encoder attention itself; the outer first."""
    parts = [part for part in used_by(cls) if part.__module__ == cls.__module__]
    return [part for part in parts if attends(part) and LAYER_LISTS & names_in(part)]


def no_tower(module: ModuleType) -> str:
    """Why a module without a tower of its own has nothing to be built."""
    elsewhere = [f"{cls.__name__} of {cls.__module__}" for cls in towers_elsewhere(module)]
    hint = f"; it uses {', '.join(elsewhere)}, to be checked there" if elsewhere else ""
    return f"no vision tower is defined here{hint}"


def classes_in(module: ModuleType) -> list[type[nn.Module]]:
    """The modules (in torch's sense) that are global names of a module, each once."""
    seen = dict.fromkeys(value for value in vars(module).values() if is_module_class(value))
    return list(seen)


def attends(cls: type[nn.Module]) -> bool:
    """Whether encoder attention is in a class or in what it uses."""
    return bool(ATTENTION & names_in(cls))


def is_whole_model(cls: type[nn.Module]) -> bool:
    """Whether a class is a model, or the language side of one: it takes token ids."""
    return bool(getattr(cls, "supports_multimodal", False) or "input_ids" in inspect.signature(cls.forward).parameters)


def names_in(cls: type[nn.Module]) -> set[str]:
    """Every global and attribute that the code of a class and of the classes it uses names, strings for getattr too."""
    found: set[str] = set()
    for part in [cls, *used_by(cls)]:
        found.update(base.__name__ for base in part.__mro__)
        for function in functions_of(part):
            for code in codes_in(function.__code__):
                found.update(code.co_names)
                found.update(const for const in code.co_consts if isinstance(const, str) and const.isidentifier())
    return found


def used_by(cls: type[nn.Module]) -> list[type[nn.Module]]:
    """The classes that a class uses, directly or not, without itself."""
    found: dict[type[nn.Module], None] = {}
    waiting = [cls]
    while waiting:
        for part in _used_directly(waiting.pop()):
            if part not in found and part is not cls:
                found[part] = None
                waiting.append(part)
    return list(found)


def constructor(cls: type[nn.Module]) -> inspect.Signature:
    """What a class is called with, also where a decorator has put a constructor of `*args` before the real one."""
    real = [inner for inner in _closure(cls.__init__) if getattr(inner, "__name__", "") == "__init__"]
    _self, *parameters = inspect.signature(real[0] if real else cls.__init__).parameters.values()
    return inspect.Signature(parameters)


def defaults(cls: type[nn.Module]) -> dict[str, Any]:
    """What a class takes for the parameters of its constructor that are left out."""
    parameters = constructor(cls).parameters.values()
    return {each.name: each.default for each in parameters if each.default is not each.empty}


def is_module_class(value: Any) -> bool:
    """A class of modules that somebody wrote for a model."""
    return isinstance(value, type) and issubclass(value, nn.Module) and not _is_part(value.__module__)


def _is_part(module: str) -> bool:
    return any(module == part or module.startswith(f"{part}.") for part in PARTS)


def _used_directly(cls: type[nn.Module]) -> Iterator[type[nn.Module]]:
    for function in functions_of(cls):
        for value in globals_of(function):
            yield from filter(is_module_class, _inside(value))


def functions_of(cls: type[nn.Module]) -> list[FunctionType]:
    """The functions of a class and of its bases, and those of the same modules that they call."""
    bases = [base for base in cls.__mro__ if is_module_class(base)]
    homes = {base.__module__ for base in bases}
    found = {function: None for base in bases for value in vars(base).values() for function in _functions_in(value)}
    waiting = list(found)
    while waiting:
        for value in [inner for outer in globals_of(waiting.pop()) for inner in _inside(outer)]:
            for function in _functions_in(value):
                if function.__module__ in homes and function not in found:
                    found[function] = None
                    waiting.append(function)
    return list(found)


def _functions_in(value: Any) -> Iterator[FunctionType]:
    if isinstance(value, (classmethod, staticmethod)):
        value = value.__func__
    elif isinstance(value, property):
        value = value.fget
    if isinstance(value, FunctionType):
        inner = inspect.unwrap(value)
        if isinstance(inner, FunctionType):
            yield inner


def globals_of(function: FunctionType) -> Iterator[Any]:
    """What the names in a function may mean: globals, what lies in modules among them, defaults, its closure."""
    for code in codes_in(function.__code__):
        for name in code.co_names:
            value = function.__globals__.get(name)
            if isinstance(value, ModuleType):
                yield from (vars(value)[inner] for inner in code.co_names if inner in vars(value))
            elif value is not None:
                yield value
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    yield from _closure(function)  # what a decorator replaced


def _closure(function: Any) -> Iterator[Any]:
    for cell in getattr(function, "__closure__", None) or ():
        with suppress(ValueError):  # an empty cell
            yield cell.cell_contents


def _inside(value: Any) -> Iterable[Any]:
    """A value, or the values of a table of classes."""
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, (list, tuple)) else (value,)


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """A code object and those of the functions and comprehensions in it."""
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from codes_in(const)

"""What calling a submodule (`self.q_proj(x)`) does to a shape, by the class it is built from."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from codemods.parsed_file import ParsedFile, self_attribute
from codemods.project import Class, Project


class Effect(Enum):
    SAME = "same"  # norms, activations, dropout: the shape stays
    LAST_AXIS = "last axis"  # projections: only the last axis changes
    ROTARY = "rotary"  # gives back the tensors it turns, in their shapes


@dataclass(frozen=True)
class Module:
    """`effect` is None for a class of the project, which is looked into. `width`: the last axis of a projection."""

    effect: Effect | None
    cls: Class | None = None
    is_pair: bool = False  # vLLM's projections give the output and a bias
    width: str | None = None


_SAME = re.compile(r"\w*Norm(\dd)?|Identity|Dropout\w*|GELU|QuickGELU|NewGELU|SiLU|ReLU|LayerScale")
_LIBRARIES = ("torch.", "vllm.", "transformers.", "timm.", "apex.", "transformer_engine.", "flash_attn.")
_PROJECTION = re.compile(r"\w*Linear")
ROTARY = re.compile(r"rotary|rope", re.IGNORECASE)


def module_of(project: Project, owner: Class, attribute: str) -> Module | None:
    """What `self.<attribute>` is in a class, if everything it is set to says the same; None otherwise."""
    found = [_one(project, file, value) for file, value in _assigned(project, owner, attribute)]
    if not found or any(module is None for module in found):
        return None
    modules = [module for module in found if module is not None]
    first = modules[0]
    if all(module == first for module in modules):
        return first
    if (
        any(module.effect not in (Effect.SAME, Effect.LAST_AXIS) for module in modules)
        or len({module.is_pair for module in modules}) > 1
    ):
        return None
    return Module(Effect.LAST_AXIS, is_pair=first.is_pair)


def _assigned(project: Project, owner: Class, attribute: str) -> Iterator[tuple[ParsedFile, ast.expr]]:
    for cls in project.bases(owner):
        for node in cls.file.below(cls.node):
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if any(self_attribute(target) == attribute for target in targets):
                    yield from ((cls.file, value) for value in _choices(node.value))


def _choices(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.IfExp):
        yield from _choices(node.body)
        yield from _choices(node.orelse)
    elif not (isinstance(node, ast.Constant) and node.value is None):
        yield node


def _one(project: Project, file: ParsedFile, node: ast.expr) -> Module | None:
    if not isinstance(node, ast.Call):
        return None
    cls = project.class_named(file, node.func)
    if cls is not None:
        return Module(Effect.ROTARY if ROTARY.search(cls.node.name) else None, cls)
    function = _default(file, node.func) or node.func
    name = project.vllm(file, function) or project.meaning(file, function)
    if name is None:
        return None
    last = name.rpartition(".")[2]
    if ROTARY.search(last):
        return Module(Effect.ROTARY)
    if not name.startswith(_LIBRARIES):
        return None
    if _SAME.fullmatch(last):
        return Module(Effect.SAME)
    if _PROJECTION.fullmatch(last):
        keywords = {k.arg: k.value for k in node.keywords}
        alone = keywords.get("return_bias")
        pair = name.startswith("vllm.") and not (isinstance(alone, ast.Constant) and alone.value is False)
        width = keywords.get("out_features") or (node.args[1] if len(node.args) > 1 and not pair else None)
        return Module(Effect.LAST_AXIS, is_pair=pair, width=ast.unparse(width) if width is not None else None)
    return None


def _default(file: ParsedFile, node: ast.expr) -> ast.expr | None:
    """What a parameter is unless told otherwise: `norm_layer=nn.LayerNorm`."""
    if not isinstance(node, ast.Name):
        return None
    for binding in file.bound(node.id, node):
        arguments = file.parents.get(binding) if isinstance(binding, ast.arg) else None
        if isinstance(arguments, ast.arguments):
            positional = [*arguments.posonlyargs, *arguments.args]
            pairs = [
                *zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults),
                *zip(arguments.kwonlyargs, arguments.kw_defaults),
            ]
            default = next((default for argument, default in pairs if argument is binding), None)
            return (
                default.args[0] if isinstance(default, ast.Call) and default.args else default
            )  # `partial(nn.LayerNorm, eps=1e-6)`
    return None

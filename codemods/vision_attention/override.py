"""Which parameter of a constructor carries the backend override, what it is told to be, and what the second argument
of a look-up means."""

from __future__ import annotations

import ast

from codemods.parsed_file import ParsedFile, keyword, parameters, self_attribute
from codemods.project import AnyFunction, Project
from codemods.vision_attention import vocabulary as V
from codemods.vision_attention.arms import Refusal

# maybe_get_vit_flash_attn_backend(backend, x): x is use_upstream_fa in the first two, attn_backend_override in the last
_UPSTREAM = ("0.11.1", "0.11.2")
_OVERRIDE = ("0.12.0",)


CHOOSE = "Choose the backend with --mm-encoder-attn-backend when serving, if it has to be this one."
"""What to do where a file chose a backend that vLLM does not let it choose any more."""


def forced(project: Project, file: ParsedFile, function: AnyFunction, value: ast.expr | None) -> list[ast.Attribute]:
    """The members of the backend enum that an override is told to be: by itself, or where a function sets its name."""
    values = [] if value is None else [value]
    if isinstance(value, ast.Name):
        values += [
            s.value
            for s in file.below(function)
            if isinstance(s, ast.Assign) and any(isinstance(t, ast.Name) and t.id == value.id for t in s.targets)
        ]
    return [
        node
        for one in values
        for node in ast.walk(one)
        if isinstance(node, ast.Attribute) and V.is_backend_enum(project, file, node)
    ]


def override_parameter(
    project: Project, file: ParsedFile, function: AnyFunction, source: tuple[str, ...]
) -> str | None:
    """The parameter that is passed on as the override, under whatever name; None if there is none.

    `source`: the releases the file may be written for. Raises Refusal where two readings are possible.
    """
    names = {a.arg for a in parameters(function)}
    for call in file.below(function):
        if not isinstance(call, ast.Call) or not V.vllm_call(project, file, call, V.GET_BACKEND, V.GET_FLASH):
            continue
        value = keyword(call, V.OVERRIDE)
        if value is None and V.vllm_call(project, file, call, V.GET_FLASH) and len(call.args) == 2:
            value = call.args[1] if _is_override(project, file, function, call.args[1], source) else None
        if isinstance(value, ast.Name) and value.id in names:
            return value.id
    return V.OVERRIDE if V.OVERRIDE in names else None


def _is_override(
    project: Project, file: ParsedFile, function: AnyFunction, value: ast.expr, source: tuple[str, ...]
) -> bool:
    """Whether a second positional argument of the flash look-up is the override. Raises Refusal if it cannot be
    told."""
    if isinstance(value, ast.Constant):
        return False
    name = value.id if isinstance(value, ast.Name) else self_attribute(value)
    annotation = next((a.annotation for a in parameters(function) if a.arg == name), None)
    if annotation is not None:
        text = ast.unparse(annotation)
        if text == "bool":
            return False
        if any(enum in text for enum in V.ENUMS):
            return True
    constants = [
        s.value
        for s in file.below(function)
        if isinstance(s, ast.Assign) and any(name in (self_attribute(t), getattr(t, "id", None)) for t in s.targets)
    ]
    if any(isinstance(c, ast.Constant) and isinstance(c.value, bool) for c in constants):
        return False
    if source and set(source) <= set(_UPSTREAM):
        return False
    if source and set(source) <= set(_OVERRIDE):
        return True
    raise Refusal(
        f"the second argument of {V.GET_FLASH} is use_upstream_fa in vLLM 0.11.1 and 0.11.2, and attn_backend_override "
        f"in 0.12; the file does not tell which it is written for (say --source)",
        value,
    )

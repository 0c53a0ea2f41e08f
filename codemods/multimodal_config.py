"""Where the multimodal configuration is in reach, and what is known to come from it."""

from __future__ import annotations

import ast

from codemods import edits as E
from codemods.parsed_file import default_of, parameters, self_attribute
from codemods.plan import FilePlan, Plan
from codemods.project import AnyFunction, Class

CONFIG = "multimodal_config"
DATA_PARALLEL = "use_data_parallel"
_MODE = "mm_encoder_tp_mode"
_OF_MODEL = ("{0}.model_config.multimodal_config", "{0}.model_config.get_multimodal_config()")


def config_in_reach(run: Plan, file: FilePlan, node: ast.AST) -> str | None:
    """Code for the multimodal configuration at a node: a parameter, a local name, or read from `vllm_config`."""
    function = file.file.function(node)
    if function is None:
        return None
    own = {parameter.arg for parameter in parameters(function)}
    if CONFIG in own or _is_given_later(file, function):
        return CONFIG if not _is_assigned(function, CONFIG) else None
    if "vllm_config" not in own or _is_assigned(function, "vllm_config"):
        return None
    forms = [form.format("vllm_config") for form in _OF_MODEL]
    for statement in function.body:
        if statement.lineno >= file.file.statement(node).lineno:
            break
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
            if ast.unparse(statement.value) in forms and _assigned(function, name) == [statement.value]:
                return name
    return forms[0]


def _is_given_later(file: FilePlan, function: AnyFunction) -> bool:
    """Whether an edit gives the function this parameter."""
    return any(
        (isinstance(edit, E.SetParameter) and edit.function == E.Ref.of(function) and edit.new_name == CONFIG)
        or (isinstance(edit, E.AddParameter) and edit.function == E.Ref.of(function) and edit.name == CONFIG)
        for edit in file.edits
    )


def _assigned(function: AnyFunction, name: str) -> list[ast.expr]:
    """What a function assigns to a name."""
    return [
        node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets)
    ]


def _is_assigned(function: AnyFunction, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in ast.walk(function))


def is_config_mode(run: Plan, file: FilePlan, value: ast.expr, depth: int = 0) -> bool:
    """Whether a value says no more than the configuration does of how a tower is shared out: nothing, the mode itself,
    or what is handed on under its name and never set to anything else."""
    if isinstance(value, ast.Constant):
        return value.value in (None, False)
    if depth > 4:
        return False
    if any(isinstance(node, ast.Attribute) and node.attr == _MODE for node in ast.walk(value)):
        return True
    function = file.file.function(value)
    if isinstance(value, ast.Name) and function is not None:
        parameter = next((p for p in parameters(function) if p.arg == value.id), None)
        if parameter is None:
            sources = _assigned(function, value.id)
            return bool(sources) and all(is_config_mode(run, file, source, depth + 1) for source in sources)
        default = default_of(function, parameter)
        passed = [
            (caller, given[value.id])
            for caller, call, reached in run.callers.get(id(function), ())
            if value.id in (given := reached.passed(call) or {})
        ]
        here = [] if default is None else [(file, default)]
        return (bool(passed) or value.id == DATA_PARALLEL) and all(
            is_config_mode(run, at, source, depth + 1) for at, source in [*here, *passed]
        )
    attribute = self_attribute(value)
    owner = file.file.class_of(value)
    if attribute is None or owner is None:
        return False
    return attribute == DATA_PARALLEL and all(
        is_config_mode(run, run.of(cls.file), source, depth + 1)
        for cls in run.project.bases(Class(file.file, owner))
        for source in run.project.assigned(cls).get(attribute, ())
    )

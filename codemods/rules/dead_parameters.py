"""VA401: parameters that only carried a backend or xFormers lengths go, through classes and files."""

from __future__ import annotations

import ast

from codemods import edits as E
from codemods.findings import Severity
from codemods.parsed_file import FunctionNode, parameters
from codemods.plan import FilePlan, Plan
from codemods.project import Class, Function
from codemods.rule import Example, Rule
from codemods.rules.tower_backend import _AFTER, _BEFORE
from codemods.uses import Uses, uses_of
from codemods.vision_attention import vocabulary as V


def plan(run: Plan) -> None:
    calls = run.calls()
    for file in run.open_vision:
        uses = uses_of(file)
        for node in [*file.file.nodes[ast.FunctionDef], *file.file.nodes[ast.AsyncFunctionDef]]:
            assert isinstance(node, FunctionNode)
            for parameter in parameters(node):
                key = (file.file.module, node.lineno, parameter.arg)
                if key in run.settled or not _is_dead(uses, node, parameter):
                    continue
                _retire(run, file, node, parameter, calls)


def _is_dead(uses: Uses, node: ast.FunctionDef | ast.AsyncFunctionDef, parameter: ast.arg) -> bool:
    """Never read any more because of the edits; or one of the backend parameters, and never read at all."""
    if parameter.arg in ("self", "cls"):
        return False
    if uses.plan.gone(node):
        return False
    if uses.died(parameter.arg, node):
        return True
    return parameter.arg in V.BACKEND_PARAMETERS and not uses.before(parameter.arg, node) and node.name == "__init__" and not uses.in_new_code(parameter.arg, node)


def _retire(run: Plan, file: FilePlan, node: ast.FunctionDef | ast.AsyncFunctionDef, parameter: ast.arg, calls: list[tuple[FilePlan, ast.Call, Function | None]]) -> None:
    key = (file.file.module, node.lineno, parameter.arg)
    name = parameter.arg
    cls = file.file.class_of(node)
    owner = f"{cls.name}.{node.name}" if cls is not None else node.name
    passing: list[tuple[FilePlan, ast.Call, ast.expr]] = []
    for other, call, reached in calls:
        if reached is None:
            if _may_reach(run, file, cls, node, name, other, call):
                run.settled.add(key)
                file.find(
                    RULE,
                    parameter,
                    Severity.NOTE,
                    f"{owner} keeps its unused parameter {name}: it is not clear what the call at {other.file.path.name}:{call.lineno} reaches",
                    f"Take {name} out of both if they belong together.",
                )
                return
            continue
        if reached.node is not node:
            continue
        given = reached.passed(call)
        if given is None:
            if any(k.arg == name for k in call.keywords) or any(k.arg is None for k in call.keywords):
                run.settled.add(key)
                file.find(RULE, parameter, Severity.NOTE, f"{owner} keeps its unused parameter {name}: arguments are passed on as a whole at {other.file.path.name}:{call.lineno}", f"Take {name} out where those arguments are made.")
                return
            continue
        if name in given:
            if other.read_only:
                run.settled.add(key)
                file.find(
                    RULE,
                    parameter,
                    Severity.WARNING,
                    f"{owner} keeps its unused parameter {name}: {other.file.path.name}:{call.lineno} passes it and is not among the given files",
                    "Run on the whole folder, so that both ends of the call change together.",
                )
                return
            passing.append((other, call, given[name]))
    if node.name == "forward" and cls is not None and not _alone(run, file, cls, node, name):
        return
    run.settled.add(key)
    for other, call, value in passing:
        _drop_argument(run, other, call, node, name, value, owner)
    if run.keep_params and node.name == "__init__":
        file.rewrite(RULE, parameter, f"{owner}: {name} is accepted and ignored", [])
        file.rewritten.append(E.Ref.of(parameter))
        return
    file.rewrite(RULE, parameter, f"{owner}: the parameter {name} goes", [E.RemoveParameter(E.Ref.of(node), name)])
    file.rewritten.append(E.Ref.of(parameter))
    file.removed += [E.Ref.of(parameter), *(E.Ref.of(d) for d in [_default(node, parameter)] if d is not None)]
    if cls is not None and node.name == "forward":
        _drop_dimensions(file, cls, name)


def _default(node: ast.FunctionDef | ast.AsyncFunctionDef, parameter: ast.arg) -> ast.expr | None:
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    if parameter in positional:
        index = positional.index(parameter) - (len(positional) - len(arguments.defaults))
        return arguments.defaults[index] if index >= 0 else None
    return arguments.kw_defaults[arguments.kwonlyargs.index(parameter)]


def _drop_argument(run: Plan, file: FilePlan, call: ast.Call, node: ast.AST, name: str, value: ast.expr, owner: str) -> None:
    word = next((k for k in call.keywords if k.arg == name), None)
    if any(isinstance(inner, ast.Attribute) and V.is_backend_enum(run.project, file.file, inner) for inner in ast.walk(value)):
        file.find(
            RULE,
            value,
            Severity.WARNING,
            f"{owner} is no longer told to use {ast.unparse(value)}",
            "Choose the backend with --mm-encoder-attn-backend when serving, if it has to be this one.",
        )
    file.rewrite(RULE, word or value, f"{name}= is no longer passed to {owner}", [])
    if word is not None:
        file.remove_argument(call, name)
        file.rewritten.append(E.Ref.of(word))
    else:
        file.add(E.RemoveArgument(E.Ref.of(call), call.args.index(value)))
        file.removed.append(E.Ref.of(value))


def _may_reach(run: Plan, file: FilePlan, cls: ast.ClassDef | None, node: ast.AST, name: str, other: FilePlan, call: ast.Call) -> bool:
    """Whether a call that could not be followed may be a call of this function: it passes the keyword, and knows the class."""
    if not any(k.arg == name for k in call.keywords):
        return False
    if run.project.meaning(other.file, call.func) is not None and run.project.callee(other.file, call) is None and run.project.class_named(other.file, call.func) is None:
        meaning = run.project.meaning(other.file, call.func) or ""
        if meaning.rpartition(".")[0] not in run.project.by_module:
            return False  # somebody else's function
    return other is file or (cls is not None and any(i.name == cls.name for i in other.file.imports))


def _alone(run: Plan, file: FilePlan, cls: ast.ClassDef, node: ast.AST, name: str) -> bool:
    """No override of the method still needs the parameter."""
    here = Class(file.file, cls)
    family = [*list(run.project.bases(here))[1:], *run.project.subclasses.get(here.qualified, [])]
    for other in family:
        method = other.own("forward")
        if method is None or name not in [a.arg for a in parameters(method)]:
            continue
        plan = run.of(other.file)
        if uses_of(plan).now(name, method):
            return False
    return True


def _drop_dimensions(file: FilePlan, cls: ast.ClassDef, name: str) -> None:
    """Entries of compile decorators that name the parameter: a stale one fails at import."""
    for decorator in cls.decorator_list:
        for keyword in decorator.keywords if isinstance(decorator, ast.Call) else []:
            if not isinstance(keyword.value, ast.Dict):
                continue
            keys = [k.value if isinstance(k, ast.Constant) else None for k in keyword.value.keys]
            if name not in keys:
                continue
            if len(keys) == 1 and isinstance(decorator, ast.Call) and keyword.arg:
                file.remove_argument(decorator, keyword.arg)
            else:
                file.add(E.RemoveElement(E.Ref.of(keyword.value), keys.index(name)))
            file.rewrite(RULE, keyword.value, f"{cls.name}: the compile decorator no longer names {name}", [])


RULE = Rule(
    code="VA401",
    name="dead-parameters",
    summary="Parameters that only carried a backend, an override or xFormers lengths go, with every argument passed for them.",
    why=(
        "Once attention chooses its own kernel, attn_backend, use_upstream_fa, attn_backend_override and seqlens are handed down for nothing. "
        "vLLM's own classes took them out, so passing them on is a TypeError as soon as one end is vLLM's. "
        "The whole chain goes at once, through classes and files; --keep-params leaves constructor parameters accepted and ignored."
    ),
    follows="vLLM 0.12.0 (use_upstream_fa, seqlens), 0.13.0 PR #30125 (attn_backend), 0.15.0 PR #31972 (override)",
    names=frozenset({*V.BACKEND_PARAMETERS, V.CONFIG_OVERRIDE, "seqlens"}),
    plan=plan,
    examples=(Example(before=_BEFORE, after=_AFTER),),
    sweeps=True,
)

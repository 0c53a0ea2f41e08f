"""VA401: parameters that only carried a backend or xFormers lengths go, through classes and files."""

from __future__ import annotations

import ast

from codemods import edits as E
from codemods.findings import Severity
from codemods.parsed_file import FunctionNode, Import, default_of, parameters
from codemods.plan import FilePlan, Plan
from codemods.project import AnyFunction, Class, Function
from codemods.rule import Example, Rule
from codemods.rules.tower_backend import _AFTER, _BEFORE
from codemods.uses import Uses, uses_of
from codemods.vision_attention import vocabulary as V
from codemods.vision_attention.override import CHOOSE


def plan(run: Plan) -> None:
    for file in run.open_vision:
        uses = uses_of(file)
        for node in [*file.file.nodes[ast.FunctionDef], *file.file.nodes[ast.AsyncFunctionDef]]:
            assert isinstance(node, FunctionNode)
            for parameter in parameters(node):
                key = (file.file.module, node.lineno, parameter.arg)
                if key in run.settled or not _is_dead(run, uses, node, parameter):
                    continue
                if E.RemoveParameter(E.Ref.of(node), parameter.arg) in file.edits:
                    continue  # another rule took it out, with what passes it
                _retire(run, file, node, parameter)


def _is_dead(run: Plan, uses: Uses, node: AnyFunction, parameter: ast.arg) -> bool:
    """Never read any more because of the edits; or one of the backend parameters, and never read at all."""
    if parameter.arg in ("self", "cls", *_PROTOCOL) or uses.plan.gone(node):
        return False
    if uses.died(parameter.arg, node):
        return True
    return (
        parameter.arg in V.BACKEND_PARAMETERS
        and node.name == "__init__"
        and not run.fits(uses.plan)
        and not _is_stub(node)
        and not uses.before(parameter.arg, node)
        and not uses.in_new_code(parameter.arg, node)
    )


# vLLM itself passes these to a model's constructor, whether or not it reads them
_PROTOCOL = ("vllm_config", "prefix")


def _is_stub(node: AnyFunction) -> bool:
    """A body that says nothing: a protocol or an abstract method reads none of its parameters."""
    return all(
        isinstance(s, (ast.Pass, ast.Raise)) or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))
        for s in node.body
    )


def _retire(run: Plan, file: FilePlan, node: AnyFunction, parameter: ast.arg) -> None:
    run.settled.add((file.file.module, node.lineno, parameter.arg))
    name = parameter.arg
    cls = file.file.class_of(node)
    owner = f"{cls.name}.{node.name}" if cls is not None else node.name
    passing: list[tuple[FilePlan, ast.Call, ast.expr]] = []
    keep = _why_keep(run, file, cls, node, name, passing)
    called = bool(run.callers.get(id(node)))
    ours = called and name in V.BACKEND_PARAMETERS
    if keep is None and not passing and not ours and not uses_of(file).before(name, node):
        return  # it was dead before, and nobody in the run passes it
    if node.name != "forward" and name not in V.BACKEND_PARAMETERS and not called:
        return  # whoever calls this is not in the run, and may pass it
    if keep is not None:
        why, remedy, severity = keep
        file.find(RULE, parameter, severity, f"{owner} keeps its unused parameter {name}: {why}", remedy)
        return
    for other, call, value in passing:
        _drop_argument(run, other, call, name, value, owner)
    if run.keep_params and node.name == "__init__":
        file.rewrite(RULE, parameter, f"{owner}: {name} is accepted and ignored", [])
        file.rewritten.append(E.Ref.of(parameter))
        return
    file.rewrite(
        RULE, parameter, f"{owner}: the parameter {name} is taken out", [E.RemoveParameter(E.Ref.of(node), name)]
    )
    file.rewritten.append(E.Ref.of(parameter))
    file.removed += [E.Ref.of(parameter), *(E.Ref.of(d) for d in [default_of(node, parameter)] if d is not None)]
    if cls is not None and node.name == "forward":
        _drop_dimensions(file, cls, name)


def _why_keep(
    run: Plan,
    file: FilePlan,
    cls: ast.ClassDef | None,
    node: AnyFunction,
    name: str,
    passing: list[tuple[FilePlan, ast.Call, ast.expr]],
) -> tuple[str, str, Severity] | None:
    """Why a parameter must stay although nothing reads it: some call of the function cannot be changed with it.

    Calls that can be changed are put into `passing`.
    """
    function = Function(file.file, node, 1 if cls is not None else 0)
    by_keyword = node.name != "forward"  # whoever calls a layer may pass it by position
    for other, call in run.unfollowed_with.get(name, ()) if by_keyword else run.unfollowed:
        given_up = E.RemoveArgument(E.Ref.of(call), name) in other.edits
        if not given_up and _may_reach(run, file, cls, function, name, other, call):
            where = other.file.place(call)
            return (
                f"it is not clear what the call at {where} reaches",
                f"Take {name} out of both if they belong together.",
                Severity.NOTE,
            )
    callers = run.callers.get(id(node), [])
    for other, call, reached in callers:
        where = other.file.place(call)
        given = reached.passed(call)
        if given is None:
            stars = any(isinstance(a, ast.Starred) for a in call.args) and _position(function, name) is not None
            if stars or any(k.arg in (name, None) for k in call.keywords):
                return (
                    f"arguments are passed on as a whole at {where}",
                    f"Take {name} out where those arguments are made.",
                    Severity.NOTE,
                )
        elif name in given:
            if other.read_only:
                return (
                    f"{where} passes it and is not among the given files",
                    "Run on the whole folder, so that both ends of the call change together.",
                    Severity.WARNING,
                )
            passing.append((other, call, given[name]))
    outer = cls.name if cls is not None else node.name
    if run.elsewhere(outer, file.file):
        return (
            f"another file uses {outer}, and was not looked into",
            f"Take {name} out by hand if nothing passes it.",
            Severity.NOTE,
        )
    if cls is None:
        return None
    if node.name == "__init__":
        used = _as_value(run, file, cls)
        return (
            (
                f"the class is handed on at {used}, so its calls are not all known",
                f"Take {name} out of it and of those calls.",
                Severity.NOTE,
            )
            if used
            else None
        )
    if not callers and node.name == "forward":
        return "no call of it was found", f"Take {name} out of it and of its calls.", Severity.NOTE
    if not _alone(run, file, cls, node.name, name):
        return "an override of the method still reads it", "Take it out of both.", Severity.NOTE
    if node.name == "forward":
        handed = _handed_on(run, file, cls)
        if handed is not None:
            return (
                f"the module is handed on at {handed}, so its calls are not all known",
                f"Take {name} out of it and of those calls.",
                Severity.NOTE,
            )
    return None


def _as_value(run: Plan, file: FilePlan, cls: ast.ClassDef) -> str | None:
    """Where the class stands other than as what is called, as a base, in an annotation or before a dot."""
    qualified = f"{file.file.module}.{cls.name}"
    for other in run.vision:
        names = {cls.name} | {i.alias for i in other.file.imports if i.name == cls.name}
        for alias in names:
            for use in other.file.reads.get(alias, ()):
                above = other.file.parents[use]
                if (
                    isinstance(above, ast.Call)
                    and use in above.args
                    and V.called(above) not in ("isinstance", "issubclass", "super", "cast")
                ):
                    pass
                elif not isinstance(above, (ast.keyword, ast.Dict, ast.List, ast.Tuple, ast.Assign, ast.arguments)):
                    continue
                if (
                    other.file.class_of(use) is cls
                    or other.file.in_annotation(use)
                    or run.project.meaning(other.file, use) != qualified
                ):
                    continue
                around = other.file.parents.get(above)
                if isinstance(above, ast.Tuple) and isinstance(around, ast.Call) and V.called(around) == "isinstance":
                    continue
                return other.file.place(use)
    return None


def _handed_on(run: Plan, file: FilePlan, cls: ast.ClassDef) -> str | None:
    """Where an instance of the class is an argument of a call that may call it: `checkpoint(block, ...)`."""
    for other, call in run.unfollowed:
        if len(call.args) < 2 or V.called(call) in _HOLDERS:
            continue
        first = call.args[0]
        if not isinstance(first, (ast.Name, ast.Attribute, ast.Subscript)):
            continue
        if any(c.node is cls for c in run.project.instances(other.file, first)):
            return other.file.place(call)
    return None


_HOLDERS = (
    "append",
    "extend",
    "insert",
    "add_module",
    "setattr",
    "isinstance",
    "len",
    "enumerate",
    "zip",
    "ModuleList",
    "Sequential",
)


def _position(function: Function, name: str) -> int | None:
    """The place of a parameter among those that may be passed by position."""
    arguments = function.node.args
    names = [a.arg for a in [*arguments.posonlyargs, *arguments.args]][function.skip :]
    return names.index(name) if name in names else None


def _drop_argument(run: Plan, file: FilePlan, call: ast.Call, name: str, value: ast.expr, owner: str) -> None:
    word = next((k for k in call.keywords if k.arg == name), None)
    if any(
        isinstance(inner, ast.Attribute) and V.is_backend_enum(run.project, file.file, inner)
        for inner in ast.walk(value)
    ):
        file.find(
            RULE,
            value,
            Severity.WARNING,
            f"{owner} is no longer told to use {ast.unparse(value)}",
            CHOOSE,
        )
    file.rewrite(RULE, word or value, f"{name}= is no longer passed to {owner}", [])
    if word is not None:
        file.remove_argument(call, name)
        file.rewritten.append(E.Ref.of(word))
    else:
        file.add(E.RemoveArgument(E.Ref.of(call), call.args.index(value)))
        file.removed.append(E.Ref.of(value))


def _may_reach(
    run: Plan, file: FilePlan, cls: ast.ClassDef | None, function: Function, name: str, other: FilePlan, call: ast.Call
) -> bool:
    """Whether a call that could not be followed may be a call of this function.

    It knows the class, and passes the keyword, or so many arguments that one of them would be the parameter.
    """
    by_keyword = any(k.arg == name for k in call.keywords)
    place = _position(function, name) if function.node.name == "forward" and len(call.args) > 1 else None
    by_place = place is not None and len(call.args) > place
    if not (by_keyword or by_place):
        return False
    meaning = run.project.meaning(other.file, call.func)
    if (
        meaning is not None
        and meaning.rpartition(".")[0] not in run.project.by_module
        and not meaning.endswith("partial")
    ):
        return False  # somebody else's function
    if by_place and not by_keyword and not _may_be_module(other, call):
        return False
    return other is file or (cls is not None and any(i.name == cls.name for i in other.file.imports))


def _may_be_module(file: FilePlan, call: ast.Call) -> bool:
    """A call of a local name, an item or an attribute of self that is no method of the class: it may be a layer."""
    function = call.func
    if isinstance(function, ast.Name):
        bound = file.file.bound(function.id, function)
        return bool(bound) and not any(isinstance(b, (ast.FunctionDef, ast.ClassDef, Import)) for b in bound)
    return isinstance(function, ast.Subscript) or (isinstance(function, ast.Call) and V.called(function) == "getattr")


def _alone(run: Plan, file: FilePlan, cls: ast.ClassDef, method_name: str, name: str) -> bool:
    """No override of the method still needs the parameter."""
    here = Class(file.file, cls)
    family = [*list(run.project.bases(here))[1:], *run.project.subclasses.get(here.qualified, [])]
    for other in family:
        method = other.own(method_name)
        if method is None or name not in [a.arg for a in parameters(method)]:
            continue
        plan = run.of(other.file)
        if method_name != "forward" or uses_of(plan).now(name, method):
            return False
    return True


def _drop_dimensions(file: FilePlan, cls: ast.ClassDef, name: str) -> None:
    """Entries of compile decorators that name the parameter: a stale one fails at import."""
    for node in file.file.nodes[ast.Constant]:
        if not (isinstance(node, ast.Constant) and node.value == name) or file.gone(node):
            continue
        holder = file.file.parents[node]
        if not (isinstance(holder, ast.Dict) and node in holder.keys):
            continue
        word = file.file.parents[holder]
        decorator = file.file.parents.get(word) if isinstance(word, ast.keyword) else None
        if (
            isinstance(decorator, ast.Call)
            and decorator not in cls.decorator_list
            and isinstance(file.file.parents[decorator], ast.ClassDef)
        ):
            continue  # another class's decorator
        if not isinstance(decorator, ast.Call) or decorator not in cls.decorator_list:
            file.find(
                RULE,
                node,
                Severity.WARNING,
                f"{cls.name}.forward no longer has {name}, which this still names",
                "If a compile decorator reads it, take the entry out: vLLM refuses unknown names at import.",
            )
            continue
        assert isinstance(word, ast.keyword)
        if len(holder.keys) == 1 and word.arg:
            file.remove_argument(decorator, word.arg)
        else:
            file.add(E.RemoveElement(E.Ref.of(holder), holder.keys.index(node)))
            file.removed.append(E.Ref.of(node))
        file.rewrite(RULE, holder, f"{cls.name}: the compile decorator no longer names {name}", [])


RULE = Rule(
    code="VA401",
    name="dead-parameters",
    summary="Parameters that only carried a backend, an override or xFormers lengths go, arguments included.",
    why=(
        "Once attention chooses its own kernel, attn_backend, use_upstream_fa, attn_backend_override and seqlens "
        "are handed down for nothing. "
        "vLLM's own classes took them out, so passing them on is a TypeError as soon as one end is vLLM's. "
        "The whole chain goes at once, through classes and files; --keep-params leaves constructor parameters "
        "accepted and ignored."
    ),
    follows="vLLM 0.12.0 (use_upstream_fa, seqlens), 0.13.0 PR #30125 (attn_backend), 0.15.0 PR #31972 (override)",
    names=frozenset({*V.BACKEND_PARAMETERS, V.CONFIG_OVERRIDE, "seqlens"}),
    plan=plan,
    examples=(Example(before=_BEFORE, after=_AFTER),),
    sweeps=True,
    unported=Severity.NOTE,
)

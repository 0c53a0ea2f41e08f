"""What can be said of a file's vision attention from its syntax tree, in a form that two ports can be compared in."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tests.corpus.old_api import ENCODER, Source, calls, identifier, method

PARAMETERS_OF_OP = ("num_heads", "head_size", "scale", "num_kv_heads", "prefix", "multimodal_config")
PARAMETERS_OF_CALL = ("query", "key", "value", "cu_seqlens", "max_seqlen")
CLASS_AS_VALUE = "attn_cls"  # by this parameter some files are told which attention to build
CARRIED = ("attn_backend", "attn_backend_override", "use_upstream_fa", "multimodal_config", "max_seqlen", "seqlens")
BACKENDS = ("AttentionBackendEnum", "_Backend")


@dataclass
class Attention:
    """A class that builds the op: with which arguments, called with which, and what happens to the result."""

    built: dict[str, str]
    called: dict[str, str] = field(default_factory=dict)
    epilogue: str = ""


@dataclass
class Facts:
    """Facts of one file. Places are dotted paths of classes and functions."""

    attentions: dict[str, Attention]
    unread_parameters: set[str]  # of those that have to do with the choice of a backend
    unread_locals: set[str]
    integer_lengths: set[str]  # where max_seqlen is annotated as an int, or turned into one
    guards: set[str]  # where a backend that vLLM chose is refused
    built_outside_init: set[str]
    platform_tests: set[str]
    varlen_backends: dict[str, set[str]]  # backends for which a function computes max_seqlen
    parameters: dict[str, list[str]]  # of every constructor, by class, those that may be given by position
    gives_config: dict[str, bool]  # as the function of that name says
    rotary: list[str]  # the arguments with which rotary ops are built
    follows_data_mode: set[str]  # classes that pass disable_tp to a layer


def facts(module: str, source: Source, takers: set[tuple[str, str]]) -> Facts:
    ops = {ENCODER, CLASS_AS_VALUE} | {
        name for name, cls in source.classes.items() if any(identifier(base) == ENCODER for base in cls.bases)
    }
    functions = [(scope, node) for node, _, scope in source.nodes if isinstance(node, ast.FunctionDef)]
    paths = [(f"{scope}.{node.name}".lstrip("."), node) for scope, node in functions]
    return Facts(
        attentions={path: found for path, cls in source.classes.items() if (found := attention(cls, ops))},
        unread_parameters={f"{path}({name})" for path, node in paths for name in unread_parameters(node)},
        unread_locals={f"{path}: {name}" for path, node in paths for name in unread_locals(node)},
        integer_lengths=set(integer_lengths(source)),
        guards={scope for node, _, scope in source.nodes if isinstance(node, ast.If) and is_guard(node)},
        built_outside_init={use.scope for use in source.built_outside_init()},
        platform_tests={use.scope for use in source.uses("current_platform") if use.scope},
        varlen_backends={path: found for path, node in paths if (found := varlen_backends(node))},
        parameters={
            path.removesuffix(".__init__"): positional(node) for path, node in paths if node.name == "__init__"
        },
        gives_config=gives_config(module, source, takers),
        rotary=sorted(", ".join(map(ast.unparse, call.keywords)) for call in calls(source.tree, "ApplyRotaryEmb")),
        follows_data_mode={use.cls for use in source.uses("disable_tp") if isinstance(use.node, ast.keyword)},
    )


def attention(cls: ast.ClassDef, ops: set[str]) -> Attention | None:
    init = method(cls, "__init__")
    assigned = [
        (node.targets[0], node.value)
        for node in ast.walk(init or cls)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and identifier(node.value.func) in ops
    ]
    if not assigned:
        return None
    holder, built = assigned[0]
    found = Attention(arguments(built, PARAMETERS_OF_OP))
    for block in blocks(cls):
        for index, statement in enumerate(block):
            call = next((n for n in own_nodes(statement) if is_call_of(n, holder)), None)
            if call is not None:
                found.called = arguments(call, PARAMETERS_OF_CALL)
                found.epilogue = epilogue(call, statement, block[index + 1 :])
    return found


def arguments(call: ast.Call, names: tuple[str, ...]) -> dict[str, str]:
    """A call's arguments by name, those given by position as well."""
    given = {name: ast.unparse(value) for name, value in zip(names, call.args, strict=False)}
    return given | {keyword.arg or "**": ast.unparse(keyword.value) for keyword in call.keywords}


def is_call_of(node: ast.AST, holder: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == ast.unparse(holder)


def blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for part in ast.walk(node):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(part, name, None)
            if isinstance(block, list):
                yield block


def own_nodes(statement: ast.stmt) -> list[ast.AST]:
    """The nodes of a statement, less those of statements in its blocks."""
    inner = {id(n) for b in blocks(statement) for s in b for n in ast.walk(s)}
    return [node for node in ast.walk(statement) if id(node) not in inner]


def epilogue(call: ast.Call, statement: ast.stmt, following: list[ast.stmt]) -> str:
    """What is done to the op's result before a layer or the caller gets it, `x` being the result."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
        return ""
    result = statement.targets[0].id
    steps = [ast.unparse(statement.value).replace(ast.unparse(call), "x")]
    for later in following:
        if not isinstance(later, ast.Assign) or not isinstance(later.targets[0], ast.Name):
            break
        if result not in loads(later.value) or any(is_layer(node) for node in ast.walk(later)):
            break
        steps.append(step(later.value, result))
        result = later.targets[0].id
    return "; ".join(step for step in steps if step != "x")


def is_layer(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).startswith("self.")


def step(value: ast.expr, result: str) -> str:
    """An expression with `x` for the result so far, and without the sizes that einops only checks."""
    value = ast.parse(ast.unparse(value).replace("einops.", ""), mode="eval").body
    for node in ast.walk(value):
        if isinstance(node, ast.Name) and node.id == result:
            node.id = "x"
        if isinstance(node, ast.Call) and identifier(node.func) == "rearrange":
            node.keywords = []
    return ast.unparse(value)


def loads(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def unread_parameters(node: ast.FunctionDef) -> list[str]:
    """Parameters that have to do with the choice of a backend, and that the function never reads."""
    if all(isinstance(statement, (ast.Raise, ast.Pass, ast.Expr)) for statement in node.body):
        return []
    read = loads(node)
    return [name for name in parameter_names(node) if name in CARRIED and name not in read]


def unread_locals(node: ast.FunctionDef) -> list[str]:
    """Names assigned from the shape of a tensor, and never read."""
    shapes = [n for n in ast.walk(node) if isinstance(n, ast.Assign) and "shape" in ast.unparse(n.value)]
    stored = {n.id for s in shapes for t in s.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
    return sorted(name for name in stored - loads(node) if name.strip("_"))


def integer_lengths(source: Source) -> Iterator[str]:
    for node, _, scope in source.nodes:
        if isinstance(node, ast.arg) and node.arg == "max_seqlen" and node.annotation is not None:
            if "int" in ast.unparse(node.annotation).split(" | "):
                yield scope
        elif isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == "max_seqlen" for t in node.targets
        ):
            if ast.unparse(node.value).endswith(".item()"):
                yield f"{scope} (.item())"


def is_guard(node: ast.If) -> bool:
    names = {identifier(part) for part in ast.walk(node.test)}
    return bool(names & {"attn_backend"}) and all(isinstance(statement, ast.Raise) for statement in node.body)


def varlen_backends(node: ast.FunctionDef) -> set[str]:
    """Members of the backend enum in conditions under which the function sets max_seqlen."""
    found: set[str] = set()
    for part in ast.walk(node):
        if isinstance(part, ast.If) and "max_seqlen" in {
            n.id for s in part.body for n in ast.walk(s) if isinstance(n, ast.Name)
        }:
            found |= {
                n.attr for n in ast.walk(part.test) if isinstance(n, ast.Attribute) and identifier(n.value) in BACKENDS
            }
    return found


def positional(node: ast.FunctionDef) -> list[str]:
    return [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)][1:]


def takers(sources: Mapping[str, Source]) -> set[tuple[str, str]]:
    """Module and name of every class whose constructor takes multimodal_config; the sources are given by module."""
    return {
        (module, path)
        for module, source in sources.items()
        for path, cls in source.classes.items()
        if (init := method(cls, "__init__")) and "multimodal_config" in parameter_names(init)
    }


def parameter_names(node: ast.FunctionDef) -> list[str]:
    return [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]


def gives_config(module: str, source: Source, takers: set[tuple[str, str]]) -> dict[str, bool]:
    """For each call of one of those classes, as `caller -> class`, whether it gives the class the configuration."""
    meaning = {name: (module, name) for name in source.classes}
    for node, _, _ in source.nodes:
        if isinstance(node, ast.ImportFrom):
            origin = (node.module or "").rpartition(".")[2]
            meaning |= {alias.asname or alias.name: (origin, alias.name) for alias in node.names}
    return {
        f"{scope.removesuffix('.__init__')} -> {meaning[node.func.id][1]}": "multimodal_config"
        in {keyword.arg for keyword in node.keywords}
        for node, _, scope in source.nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and meaning.get(node.func.id) in takers
    }

"""What runs well here and breaks on another device, or on two of them: told from the text.

Each check is a function from a plan of codemods to problems; CHECKS is the list of them.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from codemods.findings import Severity
from codemods.parsed_file import FunctionNode, dotted, keyword, parameters, self_attribute
from codemods.plan import FilePlan, Plan
from codemods.project import AnyFunction, Class
from codemods.vision_attention import out_of_tree
from codemods.vision_attention import vocabulary as V
from codemods.vision_attention.instances import runs_in_forward

_COMPILE = "support_torch_compile"
_SHARDED_QKV = "QKVParallelLinear"
_GATHER = "tensor_model_parallel_all_gather"


@dataclass(frozen=True)
class Problem:
    """`line` is 1-based. `certain` is false for what may be well, and is told only. `severity` is as in codemods."""

    path: Path
    line: int
    message: str
    remedy: str
    certain: bool = True
    severity: Severity = Severity.ERROR


def problems(run: Plan) -> list[Problem]:
    """Everything that the checks find, in the order of files and lines."""
    found = {problem for check in CHECKS for file in run.files for problem in check(run, file)}
    return sorted(found, key=lambda problem: (problem.path, problem.line, problem.message))


def _subclass_of_the_op(run: Plan, file: FilePlan) -> Iterator[Problem]:
    """Devices are found by the name of the class that is built (vLLM's CustomOp.__new__)."""
    for op in out_of_tree.ops(run, out_of_tree.registrations(run)):
        if op.file is file and not op.registered:
            yield _problem(
                file,
                op.cls.node,
                f"{op.name} is a subclass of {V.ENCODER_ATTENTION}, and an out-of-tree device replaces no subclasses",
                f"Hold a {V.ENCODER_ATTENTION} in an attribute, and do around its call what the subclass does.",
            )


def _op_built_in_forward(run: Plan, file: FilePlan) -> Iterator[Problem]:
    for call in _calls(file):
        name = run.project.vllm(file.file, call.func)
        owner, function = file.file.class_of(call), file.file.function(call)
        if name is None or owner is None or function is None or not runs_in_forward(file.file, owner, function):
            continue
        if out_of_tree.CUSTOM_OP in run.api.ancestry(name):
            last = name.rpartition(".")[2]
            yield _problem(
                file,
                call,
                f"{last} is built whenever {owner.name} runs; an op chooses its backend from what is set while a "
                f"model is built, and a compiled graph cannot hold one",
                f"Build {last} in __init__ and call it here.",
            )


def _gathered_shards(run: Plan, file: FilePlan) -> Iterator[Problem]:
    """A rank of QKVParallelLinear gives its own q, k and v behind each other. Gathered, that is q k v q k v."""
    for cls in (Class(file.file, node) for node in file.file.class_nodes):
        held = [c for c in _calls(file, cls.node) if V.last(run.project.vllm(file.file, c.func)) == _SHARDED_QKV]
        if not held:
            continue
        for call in _calls(file, cls.node):
            reached = _body(run, file, cls, call)
            message = f"{cls.node.name} projects by {_SHARDED_QKV} and splits by {ast.unparse(call.func)}, which "
            if isinstance(reached, FunctionNode) and _gathers_and_chunks(reached):
                yield _problem(
                    file,
                    call,
                    f"{message}gathers the ranks' parts and cuts them in three: wrong from two ranks on",
                    "Cut this rank's own output: q, k, v = qkv.split([q_size, kv_size, kv_size], dim=-1).",
                )
            elif reached == _UNSEEN:
                yield _problem(
                    file,
                    call,
                    f"{message}is vLLM's and was not looked into, as no vLLM is installed",
                    "Run the level 'parallel', or this one where vLLM is installed.",
                    certain=False,
                )


_UNSEEN = "unseen"


def _body(run: Plan, file: FilePlan, cls: Class, call: ast.Call) -> AnyFunction | str | None:
    """What a call of one of its own methods, or of another class's on itself, runs."""
    own = self_attribute(call.func) is not None
    borrowed = isinstance(call.func, ast.Attribute) and bool(call.args) and dotted(call.args[0]) == "self"
    if not own and not borrowed:
        return None
    reached = run.project.callee(file.file, call)
    if reached is not None:
        return reached.node
    name = run.project.vllm(file.file, call.func) if borrowed else None
    return _method_of_vllm(run, name) if name is not None else None


def _method_of_vllm(run: Plan, name: str) -> AnyFunction | str | None:
    """The text of `module.Class.method` in the installed vLLM."""
    owner, _, method = name.rpartition(".")
    definer = run.api.definer(owner, method)
    if definer is None:
        return None
    module, _, cls = definer.rpartition(".")
    spec = importlib.util.find_spec("vllm")
    for folder in spec.submodule_search_locations or () if spec is not None else ():
        path = Path(folder, *module.split(".")[1:]).with_suffix(".py")
        if path.is_file():
            tree = ast.parse(path.read_text(encoding="utf-8"))
            classes = (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == cls)
            return next((n for c in classes for n in c.body if isinstance(n, FunctionNode) and n.name == method), None)
    return _UNSEEN


def _gathers_and_chunks(function: ast.AST) -> bool:
    called = {V.called(node) for node in ast.walk(function) if isinstance(node, ast.Call)}
    return {_GATHER, "chunk"} <= called


def _unknown_compiled_argument(run: Plan, file: FilePlan) -> Iterator[Problem]:
    """vLLM looks for each name among the parameters of forward when it decorates the class."""
    for node in file.file.class_nodes:
        forward = run.project.method(Class(file.file, node), "forward")
        for decorator in node.decorator_list:
            if not isinstance(decorator, ast.Call) or forward is None:
                continue
            if V.last(run.project.vllm(file.file, decorator.func)) != _COMPILE:
                continue
            dims = keyword(decorator, "dynamic_arg_dims")
            known = {argument.arg for argument in parameters(forward.node)}
            for key in dims.keys if isinstance(dims, ast.Dict) else ():
                if isinstance(key, ast.Constant) and key.value not in known:
                    yield _problem(
                        file,
                        key,
                        f"{_COMPILE} names {key.value!r}, which {node.name}.forward does not take",
                        f"Take {key.value!r} out of dynamic_arg_dims.",
                    )


CHECKS: tuple[Callable[[Plan, FilePlan], Iterator[Problem]], ...] = (
    _subclass_of_the_op,
    _op_built_in_forward,
    _gathered_shards,
    _unknown_compiled_argument,
)


def _problem(file: FilePlan, node: ast.AST, message: str, remedy: str, certain: bool = True) -> Problem:
    return Problem(file.file.path, getattr(node, "lineno", 1), message, remedy, certain)


def _calls(file: FilePlan, inside: ast.AST | None = None) -> Iterator[ast.Call]:
    nodes = file.file.nodes[ast.Call] if inside is None else file.file.below(inside)
    return (node for node in nodes if isinstance(node, ast.Call))

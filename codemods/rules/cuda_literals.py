"""VA803: what names CUDA where torch has a call for whatever device there is, is reported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from codemods.devices.device_tests import asks_device, names_device
from codemods.findings import Severity
from codemods.parsed_file import FunctionNode, ParsedFile, default_of, keyword, parameters
from codemods.plan import Plan
from codemods.project import Project
from codemods.rule import Example, Rule

_DEVICE = "torch.accelerator.current_accelerator()"
_BACKEND = "torch.distributed.get_default_backend_for_device(device)"
_SAME = (
    "synchronize device_count current_stream set_stream is_available empty_cache memory_allocated memory_reserved "
    "max_memory_allocated max_memory_reserved memory_stats reset_peak_memory_stats"
)
_NEUTRAL = {
    **{f"torch.cuda.{name}": f"torch.accelerator.{name}" for name in _SAME.split()},
    "torch.cuda.current_device": "torch.accelerator.current_device_index",
    "torch.cuda.set_device": "torch.accelerator.set_device_index",
    "torch.cuda.mem_get_info": "torch.accelerator.get_memory_info",
    "torch.cuda.Stream": "torch.Stream",
    "torch.cuda.Event": "torch.Event",
    "torch.cuda.manual_seed": "torch.manual_seed",
    "torch.cuda.manual_seed_all": "torch.manual_seed",
    "torch.cuda.amp.autocast": "torch.amp.autocast",
    "torch.cuda.amp.GradScaler": "torch.amp.GradScaler",
}
_MAKES_GROUP = frozenset({"torch.distributed.init_process_group", "torch.distributed.new_group"})
_TAKES_DEVICE = frozenset({"torch.device", "torch.autocast", "torch.amp.autocast", "torch.set_default_device"})

_EXAMPLE = """\
import torch
import torch.distributed as dist


def start(rank: int) -> torch.Tensor:
    dist.init_process_group("nccl")
    torch.cuda.set_device(rank)
    noise = torch.randn(4, 64, device="cuda")
    torch.cuda.synchronize()
    return noise


def forward_cuda(x: torch.Tensor) -> torch.Tensor:
    torch.cuda.synchronize()
    return x
"""


@dataclass(frozen=True)
class _Literal:
    node: ast.expr
    text: str
    neutral: str


def plan(run: Plan) -> None:
    for file in run.open_files:
        if "cuda" not in file.file.text and "nccl" not in file.file.text:
            continue
        for literal in _literals(run.project, file.file):
            if file.gone(literal.node) or _for_cuda(run.project, file.file, literal.node):
                continue
            file.find(
                RULE,
                literal.node,
                Severity.NOTE,
                f"{literal.text} is CUDA's alone",
                f"torch has {literal.neutral} for whatever device there is.",
            )


def _literals(project: Project, file: ParsedFile) -> Iterator[_Literal]:
    for node in file.nodes[ast.Call]:
        assert isinstance(node, ast.Call)
        name = project.meaning(file, node.func) or ""
        if name in _NEUTRAL:
            yield _Literal(node, f"{name}()", f"{_NEUTRAL[name]}()")
        yield from _arguments(node, name)
    for node in file.nodes[ast.IfExp]:
        if isinstance(node, ast.IfExp) and _has(file, node.body, "cuda") and _has(file, node.orelse, "cpu"):
            yield _Literal(node, ast.unparse(node), f"{_DEVICE} (None where there is only a CPU)")
    for kind in FunctionNode:
        for function in file.nodes[kind]:
            assert isinstance(function, FunctionNode)
            for parameter in parameters(function):
                default = default_of(function, parameter)
                if parameter.arg == "device" and default is not None and _is(default, "cuda"):
                    yield _Literal(default, f'device="{_value(default)}"', _DEVICE)


def _arguments(call: ast.Call, name: str) -> Iterator[_Literal]:
    """Strings that a call takes for a device or for the backend of a process group."""
    device = keyword(call, "device") or keyword(call, "device_type")
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if device is None and call.args and (name in _TAKES_DEVICE or (not name and method == "to")):
        device = call.args[0]
    if device is not None and _is(device, "cuda"):
        yield _Literal(device, f'"{_value(device)}" for a device', _DEVICE)
    if method == "cuda" and not name and len(call.args) + len(call.keywords) <= 1:
        yield _Literal(call, ".cuda()", f".to({_DEVICE})")
    backend = keyword(call, "backend")
    if backend is None and name in _MAKES_GROUP and call.args and name.endswith("init_process_group"):
        backend = call.args[0]
    if backend is not None and _is(backend, "nccl"):
        yield _Literal(backend, f'"{_value(backend)}" for a process group', _BACKEND)


def _is(node: ast.expr, word: str) -> bool:
    """Whether an expression is that string, or with an index behind it: "cuda:0"."""
    return _value(node).partition(":")[0] == word


def _has(file: ParsedFile, node: ast.expr, word: str) -> bool:
    return any(_is(inner, word) for inner in file.below(node) if isinstance(inner, ast.Constant))


def _value(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _for_cuda(project: Project, file: ParsedFile, node: ast.AST) -> bool:
    """Whether the place is for certain devices anyway: by a test around it or ahead of it, or by its name."""
    if any(names_device(name) for name in _names_of(file)):
        return True
    below = node
    for above in file.above(node):
        if isinstance(above, (ast.If, ast.IfExp, ast.While)) and above.test is not below:
            if asks_device(project, file, above.test):
                return True
        if isinstance(above, (*FunctionNode, ast.ClassDef)) and names_device(above.name):
            return True
        if isinstance(above, (ast.BoolOp, ast.Compare)):
            return True  # it is such a test itself, or a part of one
        if isinstance(above, (ast.If, ast.IfExp, ast.While, ast.Assert)) and above.test is below:
            return True
        if any(_leaves_elsewhere(project, file, step) for step in _ahead(above, below)):
            return True
        below = above
    return False


def _names_of(file: ParsedFile) -> Iterator[str]:
    """The name of a file, and of the packages that it lies in."""
    yield file.path.stem
    inside = reversed(file.module.split(".")[: None if file.is_package else -1])
    for package, folder in zip(inside, reversed(file.path.parent.parts)):
        if package != folder:
            return
        yield package


def _ahead(above: ast.AST, statement: ast.AST) -> Iterator[ast.stmt]:
    for block in ("body", "orelse", "finalbody"):
        steps = getattr(above, block, None)
        if isinstance(steps, list) and statement in steps:
            yield from steps[: steps.index(statement)]


def _leaves_elsewhere(project: Project, file: ParsedFile, step: ast.stmt) -> bool:
    """`if not torch.cuda.is_available(): return`, or an assertion of that kind."""
    if isinstance(step, ast.Assert):
        return asks_device(project, file, step.test)
    leaves = isinstance(step, ast.If) and isinstance(step.body[-1], (ast.Return, ast.Raise, ast.Continue))
    return leaves and isinstance(step, ast.If) and asks_device(project, file, step.test)


RULE = Rule(
    code="VA803",
    name="cuda-literal",
    summary="A call, device or backend that only CUDA has is reported with torch's call for any device.",
    why=(
        '`torch.cuda.synchronize()`, `device="cuda"` and `"nccl"` fail on an NPU, or need a patched torch there. '
        "`torch.accelerator`, in torch from 2.6 on (its memory functions came later), has the same for whatever device "
        "the machine has, and knows it without asking for names. Nothing is edited: which device a file means is "
        "its author's to say. Places that are for one device anyway are left out: behind a test for a device, in a "
        "function, class or file named after one."
    ),
    follows="nothing upstream: torch.accelerator",
    names=frozenset(),
    words=frozenset({"cuda", "nccl"}),
    plan=plan,
    examples=(Example(before=_EXAMPLE, after=_EXAMPLE, refused=True),),
    report_only=True,
)

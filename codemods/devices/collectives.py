"""Which arguments of a call are sent to other ranks: torch.distributed's own functions, and wrappers around them."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property

from codemods.devices.kinds import Kinds
from codemods.devices.tensor_flow import Flow
from codemods.parsed_file import ParsedFile, keyword, spelled
from codemods.project import Function, Project
from codemods.vllm_omni_api import Role


@dataclass(frozen=True)
class Argument:
    node: ast.expr
    role: Role


# torch.distributed's function -> its leading parameters, with what happens to each
_SEND, _FILL, _BOTH = Role.SENT, Role.FILLED, Role.BOTH
TORCH: Mapping[str, tuple[tuple[str, Role], ...]] = {
    "all_gather": (("tensor_list", _FILL), ("tensor", _SEND)),
    "all_gather_into_tensor": (("output_tensor", _FILL), ("input_tensor", _SEND)),
    "_all_gather_base": (("output_tensor", _FILL), ("input_tensor", _SEND)),
    "all_to_all": (("output_tensor_list", _FILL), ("input_tensor_list", _SEND)),
    "all_to_all_single": (("output", _FILL), ("input", _SEND)),
    "reduce_scatter": (("output", _FILL), ("input_list", _SEND)),
    "reduce_scatter_tensor": (("output", _FILL), ("input", _SEND)),
    "_reduce_scatter_base": (("output", _FILL), ("input", _SEND)),
    "gather": (("tensor", _SEND), ("gather_list", _FILL)),
    "scatter": (("tensor", _FILL), ("scatter_list", _SEND)),
    "broadcast": (("tensor", _BOTH),),
    "all_reduce": (("tensor", _BOTH),),
    "reduce": (("tensor", _BOTH),),
    "send": (("tensor", _SEND),),
    "isend": (("tensor", _SEND),),
    "recv": (("tensor", _FILL),),
    "irecv": (("tensor", _FILL),),
}
# Method names that say by themselves that a tensor is sent, whoever's they are.
TELLING = frozenset({"all_gather", "all_gather_into_tensor", "all_to_all", "all_to_all_single", "reduce_scatter"})
# Not vLLM's own groups, which make tensors contiguous themselves, and not the words of the Apache licence.
_DISTRIBUTED = re.compile(r"distributed\b(?<!vllm\.distributed)(?! under| on an)")
_WORDS = (*sorted(TELLING), "P2POp", "vllm_omni")

Sent = Mapping[str, Role]  # parameter -> what becomes of the tensor given for it, where that is not made contiguous


def senders(files: Sequence[ParsedFile]) -> set[str]:
    """Names of functions that may send a tensor, by a collective or by another of them, and of classes that have such
    methods."""
    functions: set[str] = set()
    classes: set[str] = set()
    size = -1
    while size != (size := len(functions)):
        for file in files:
            if may_send(file, functions):
                functions |= {node.name for node in file.functions if _calls_one(file, node, functions)}
                classes |= {
                    node.name
                    for node in file.nodes[ast.ClassDef]
                    if isinstance(node, ast.ClassDef) and _calls_one(file, node, functions)
                }
    return functions | classes


def may_send(file: ParsedFile, senders: AbstractSet[str]) -> bool:
    """Whether a file speaks of collectives or of one of the senders."""
    return (
        any(word in file.text for word in _WORDS)
        or _DISTRIBUTED.search(file.text) is not None
        or not senders.isdisjoint(file.reads)
        or not senders.isdisjoint(file.attributes)
        or any(imported.name in senders for imported in file.imports)
    )


def _calls_one(file: ParsedFile, node: ast.AST, functions: AbstractSet[str]) -> bool:
    return any(
        (name := spelled(call.func)) in TELLING
        or name in functions
        or (file.resolve(call.func) or "").startswith(("torch.distributed.", "vllm_omni."))
        for call in file.inside(node, ast.Call)
    )


class Collectives:
    """The calls of a project that move tensors between ranks."""

    def __init__(self, project: Project, kinds: Kinds) -> None:
        self.project = project
        self.kinds = kinds
        self._wrappers: dict[int, dict[str, Role]] = {}

    def may_send(self, file: ParsedFile) -> bool:
        """Whether a file speaks of collectives, or of what hands tensors to them: the others are not looked into."""
        return may_send(file, self._senders)

    @cached_property
    def _senders(self) -> set[str]:
        return senders(self.project.files)

    def arguments(self, file: ParsedFile, call: ast.Call) -> list[Argument]:
        """The arguments of a call that a collective reads or writes as they are; empty for any other call."""
        last = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        name = self.project.meaning(file, call.func) or ""
        package, _, function = name.rpartition(".")
        if package in ("torch.distributed", "torch.distributed.distributed_c10d"):
            return self._of_torch(file, function, call)
        if not last or isinstance(call.func, ast.Call):
            return []
        reached = self.kinds.function(file, call)
        if isinstance(reached, Function):
            given = reached.passed(call)
            sent = self.sent(reached) if given is not None else {}
            return [Argument(given[p], role) for p, role in sent.items() if given is not None and p in given]
        if reached is not None:
            return [Argument(node, role) for p, role in reached.sends if (node := reached.passed(call, p)) is not None]
        return []

    def _of_torch(self, file: ParsedFile, function: str, call: ast.Call) -> list[Argument]:
        if function == "P2POp":
            operation, tensor = (
                keyword(call, word) or (call.args[at] if len(call.args) > at else None)
                for at, word in enumerate(("op", "tensor"))
            )
            name = (self.project.meaning(file, operation) or "").rpartition(".")[2] if operation is not None else ""
            return [Argument(tensor, TORCH[name][0][1])] if tensor is not None and name in ("isend", "irecv") else []
        found = []
        for at, (word, role) in enumerate(TORCH.get(function, ())):
            node = keyword(call, word) or (call.args[at] if len(call.args) > at else None)
            if node is not None and not any(isinstance(a, ast.Starred) for a in call.args[: at + 1]):
                found.append(Argument(node, role))
        return found

    def known(self, file: ParsedFile, call: ast.Call) -> bool:
        """Whether it is known what a call does, be it a collective or not."""
        return self.project.meaning(file, call.func) is not None or self.kinds.function(file, call) is not None

    def sent(self, function: Function) -> dict[str, Role]:
        """Parameters whose tensor a function hands to a collective as it was given."""
        key = id(function.node)
        if key not in self._wrappers:
            self._wrappers[key] = {}  # of a function that calls itself nothing is claimed
            if self.may_send(function.file):
                flow = Flow(self.project, function.file, function.node)
                for call, known in flow.calls:
                    for argument in self.arguments(function.file, call):
                        layout = flow.layout(argument.node, known)
                        if not layout.strided:
                            for parameter in layout.given:
                                self._wrappers[key].setdefault(parameter, argument.role)
        return self._wrappers[key]

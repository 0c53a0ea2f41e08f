"""VA303: max_seqlen stays a tensor, and is computed for every backend whose kernel reads it."""

from __future__ import annotations

import ast

from codemods import edits as E
from codemods.findings import Severity
from codemods.parsed_file import parameters, self_attribute
from codemods.plan import FilePlan, Plan
from codemods.project import AnyFunction, Class
from codemods.rule import Example, Rule
from codemods.rules.backend_enum import enum_name
from codemods.uses import uses_of
from codemods.vision_attention import vocabulary as V
from codemods.vision_attention.attention_class import AttentionClass
from codemods.vision_attention.backend import is_backend_test
from codemods.vision_attention.lengths import is_longest

_BEFORE = '''\
import torch
from torch import nn
from vllm.model_executor.layers.attention import MMEncoderAttention
from vllm.model_executor.models.vision import get_vit_attn_backend
from vllm.v1.attention.backends.registry import AttentionBackendEnum


class Tower(nn.Module):
    def __init__(self, heads: int, head_dim: int) -> None:
        super().__init__()
        self.attn = MMEncoderAttention(heads, head_dim, head_dim**-0.5)
        self.attn_backend = get_vit_attn_backend(head_size=head_dim, dtype=torch.get_default_dtype())

    def longest(self, cu_seqlens: torch.Tensor) -> int | None:
        max_seqlen = None
        if self.attn_backend == AttentionBackendEnum.FLASH_ATTN:
            max_seqlen = (cu_seqlens[1:] - cu_seqlens[:-1]).max().item()
        return max_seqlen

    def forward(self, x, cu_seqlens):
        return self.attn(query=x, key=x, value=x, cu_seqlens=cu_seqlens, max_seqlen=self.longest(cu_seqlens))
'''

_AFTER = '''\
import torch
from torch import nn
from vllm.model_executor.layers.attention import MMEncoderAttention
from vllm.model_executor.models.vision import get_vit_attn_backend
from vllm.v1.attention.backends.registry import AttentionBackendEnum


class Tower(nn.Module):
    def __init__(self, heads: int, head_dim: int) -> None:
        super().__init__()
        self.attn = MMEncoderAttention(heads, head_dim, head_dim**-0.5)
        self.attn_backend = get_vit_attn_backend(head_size=head_dim, dtype=torch.get_default_dtype())

    def longest(self, cu_seqlens: torch.Tensor) -> torch.Tensor | None:
        max_seqlen = None
        if self.attn_backend in {
            AttentionBackendEnum.FLASH_ATTN,
            AttentionBackendEnum.ROCM_AITER_FA,
            AttentionBackendEnum.TRITON_ATTN,
        }:
            max_seqlen = (cu_seqlens[1:] - cu_seqlens[:-1]).max()
        return max_seqlen

    def forward(self, x, cu_seqlens):
        return self.attn(query=x, key=x, value=x, cu_seqlens=cu_seqlens, max_seqlen=self.longest(cu_seqlens))
'''


def plan(run: Plan) -> None:
    tensors = _Tensors(run)
    for file in run.open_vision:
        if run.blocked(file) is not None:
            continue
        for node in file.file.nodes[ast.Call]:
            if is_longest(node) and not file.gone(node):
                _keep_tensor(run, file, node, tensors)
        for cls in file.file.classes.values():
            _backend_sets(run, file, cls)
    tensors.annotate()


class _Tensors:
    """Which parameters and results carry max_seqlen as a tensor: from the attention calls back to where it is computed."""

    def __init__(self, run: Plan) -> None:
        self.run = run
        self.parameters: set[tuple[int, str]] = set()
        self.results: dict[int, tuple[FilePlan, AnyFunction]] = {}
        self.functions: dict[int, tuple[FilePlan, AnyFunction]] = {}
        self._seed()
        self._spread()

    def _seed(self) -> None:
        for file in self.run.vision:
            for found in self.run.attention(file):
                if isinstance(found, AttentionClass) and isinstance(found.chain.max_seqlen, ast.Name):
                    self._add(file, found.chain.function, found.chain.max_seqlen.id)
            for call in file.file.nodes[ast.Call]:
                for keyword in call.keywords:  # type: ignore[attr-defined]
                    if keyword.arg == "max_seqlen" and isinstance(keyword.value, ast.Name) and self.is_attention(file, call):
                        function = file.file.function(call)
                        if function is not None:
                            self._add(file, function, keyword.value.id)

    def is_attention(self, file: FilePlan, call: ast.AST) -> bool:
        """A call of an attribute that holds MMEncoderAttention."""
        name = self_attribute(call.func) if isinstance(call, ast.Call) else None
        cls = file.file.class_of(call)
        return name is not None and cls is not None and name in self._held(file, cls)

    def _held(self, file: FilePlan, cls: ast.ClassDef) -> set[str]:
        return {
            attribute
            for node in file.file.below(cls)
            if isinstance(node, ast.Assign) and V.vllm_call(self.run.project, file.file, node.value, V.ENCODER_ATTENTION)
            for target in node.targets
            if (attribute := self_attribute(target))
        }

    def _add(self, file: FilePlan, function: AnyFunction, name: str) -> bool:
        if name not in {a.arg for a in parameters(function)} or (id(function), name) in self.parameters:
            return False
        self.parameters.add((id(function), name))
        self.functions[id(function)] = (file, function)
        return True

    def _spread(self) -> None:
        changed = True
        while changed:
            changed = False
            for file, call, reached in self.run.calls():
                function = file.file.function(call)
                if reached is None or function is None or id(reached.node) not in self.functions:
                    continue
                for name, value in (reached.passed(call) or {}).items():
                    if (id(reached.node), name) in self.parameters and isinstance(value, ast.Name):
                        changed |= self._add(file, function, value.id)

    def takes(self, file: FilePlan, call: ast.Call, value: ast.expr) -> bool:
        """Whether a call takes the value as max_seqlen."""
        if self.is_attention(file, call):
            return True
        word = next((k.arg for k in call.keywords if k.value is value), None)
        reached = self.run.reached(call)
        if reached is None:
            return word is not None and word.startswith("max_seqlen")
        given = reached.passed(call) or {}
        return any(v is value and (id(reached.node), n) in self.parameters for n, v in given.items())

    def annotate(self) -> None:
        for key, name in sorted(self.parameters, key=lambda item: (self.functions[item[0]][1].lineno, item[1])):
            file, function = self.functions[key]
            argument = next(a for a in parameters(function) if a.arg == name)
            if argument.annotation is not None and not file.read_only and self.run.blocked(file) is None:
                _annotate(file, argument, argument.annotation, f"{name} is a tensor")
        for file, function in self.results.values():
            if function.returns is not None:
                _annotate(file, function, function.returns, f"{function.name} returns a tensor")


def _annotate(file: FilePlan, at: ast.AST, annotation: ast.expr, message: str) -> None:
    """`int` in an annotation becomes `torch.Tensor`; `int` inside list[...] is not meant."""
    torch = next((i.alias for i in file.file.imports if i.qualified == "torch" and isinstance(i.scope, ast.Module)), None)
    if torch is None:
        return
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name) and node.id == "int":
            above = file.file.parents[node]
            if isinstance(above, ast.Subscript) and ast.unparse(above.value) not in ("Optional", "typing.Optional", "Union", "typing.Union"):
                continue
            file.rewrite(RULE, node, message, [E.ReplaceExpression(E.Ref.of(node), f"{torch}.Tensor")])


def _keep_tensor(run: Plan, file: FilePlan, node: ast.AST, tensors: _Tensors) -> None:
    assert isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    function = file.file.function(node)
    if function is None:
        return
    stray = _stray(run, file, function, node, tensors, seen=set())
    reaches = stray is None or tensors.parameters
    if stray is _NOWHERE:
        return  # a length that has nothing to do with attention
    if stray is not None:
        if reaches:
            file.find(
                RULE,
                node,
                Severity.WARNING,
                f"the longest sequence is used as a number at line {getattr(stray, 'lineno', '?')}, and reaches attention as well",
                "Give attention the tensor ((cu_seqlens[1:] - cu_seqlens[:-1]).max()) and the other use its .item().",
            )
        return
    file.rewrite(RULE, node, "max_seqlen stays a tensor; the kernel's wrapper reads its number", [E.ReplaceExpression(E.Ref.of(node), ast.unparse(node.func.value))])


_NOWHERE = ast.Pass()  # stands for: this value never reaches attention


def _stray(run: Plan, file: FilePlan, function: AnyFunction, value: ast.expr, tensors: _Tensors, seen: set[int]) -> ast.AST | None:
    """A use of the value that is not attention's max_seqlen; `_NOWHERE` if none of its uses is; None if all are."""
    if id(value) in seen:
        return None
    seen.add(id(value))
    above = file.file.parents[value]
    if isinstance(above, ast.IfExp) and value is not above.test:
        return _stray(run, file, function, above, tensors, seen)
    if isinstance(above, (ast.keyword, ast.Call)):
        call = above if isinstance(above, ast.Call) else file.file.parents[above]
        assert isinstance(call, ast.Call)
        return None if tensors.takes(file, call, value) else _NOWHERE
    if isinstance(above, ast.Return) or (isinstance(above, ast.Tuple) and isinstance(file.file.parents[above], ast.Return)):
        position = above.elts.index(value) if isinstance(above, ast.Tuple) else None
        return _stray_result(run, file, function, position, tensors, seen)
    if isinstance(above, ast.Assign) and len(above.targets) == 1 and isinstance(above.targets[0], ast.Name):
        return _stray_name(run, file, function, above.targets[0].id, tensors, seen)
    if isinstance(above, ast.Compare) and all(isinstance(c, ast.Constant) and c.value is None for c in above.comparators):
        return None
    return _NOWHERE


def _stray_name(run: Plan, file: FilePlan, function: AnyFunction, name: str, tensors: _Tensors, seen: set[int]) -> ast.AST | None:
    uses = uses_of(file)
    found = [_stray(run, file, function, use, tensors, seen) for use in uses.now(name, function)]
    reaching = uses.in_new_code(name, function) or any(f is None for f in found)
    if not reaching:
        return _NOWHERE
    others = [(use, f) for use, f in zip(uses.now(name, function), found) if f is not None]
    return others[0][0] if others else None


def _stray_result(run: Plan, file: FilePlan, function: AnyFunction, position: int | None, tensors: _Tensors, seen: set[int]) -> ast.AST | None:
    found: list[ast.AST | None] = []
    for other, call, reached in run.calls():
        if reached is None or reached.node is not function:
            continue
        caller = other.file.function(call)
        statement = other.file.parents[call]
        if position is None:
            if caller is not None:
                found.append(_stray(run, other, caller, call, tensors, seen))
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Tuple) and caller is not None:
            target = statement.targets[0].elts[position]
            if isinstance(target, ast.Name):
                found.append(_stray_name(run, other, caller, target.id, tensors, seen))
    if not found or all(f is _NOWHERE for f in found):
        return _NOWHERE
    stray = next((f for f in found if f is not None), None)
    if stray is None:
        tensors.results[id(function)] = (file, function)
    return stray


def _backend_sets(run: Plan, file: FilePlan, cls: ast.ClassDef) -> None:
    """A test that lists backends before max_seqlen is computed must list every backend whose kernel reads it."""
    constructor = Class(file.file, cls).own("__init__")
    if constructor is None or any(f.cls.node is cls for f in run.attention(file)):
        return
    names = run.backend(file.file, constructor).names
    if not names:
        return
    for node in file.file.below(cls):
        if not isinstance(node, ast.If) or file.gone(node) or not is_backend_test(run.project, file.file, node.test, names):
            continue
        if not any(isinstance(n, ast.Attribute) and n.attr == "max" or isinstance(n, ast.Name) and n.id == "max_seqlen" for s in node.body for n in ast.walk(s)):
            continue
        _complete(run, file, node)
    for statement in constructor.body:
        if isinstance(statement, ast.Assign) and not file.gone(statement) and isinstance(statement.value, ast.Compare) and is_backend_test(run.project, file.file, statement.value, names):
            _complete(run, file, statement, statement.value)


def _complete(run: Plan, file: FilePlan, statement: ast.stmt, test: ast.expr | None = None) -> None:
    test = test if test is not None else statement.test  # type: ignore[attr-defined]
    members = [n for n in ast.walk(test) if isinstance(n, ast.Attribute) and V.is_backend_enum(run.project, file.file, n)]
    if not members or not _asks_for_flash(test):
        return
    wanted = run.target.varlen_backends
    if {m.attr for m in members} >= set(wanted):
        return
    enum = enum_name(run, file, members[0].value)
    backend = next(ast.unparse(n) for n in ast.walk(test) if (self_attribute(n) or isinstance(n, ast.Name)) and not _is_enum_root(n, members))
    indent = " " * 4
    code = "\n".join([f"{backend} in {{", *(f"{indent}{enum}.{name}," for name in wanted), "}"])
    file.rewrite(
        RULE,
        statement,
        f"max_seqlen is computed for {', '.join(wanted)}: the backends whose kernels read it",
        [E.ReplaceExpression(E.Ref.of(test), code)],
    )
    if enum != ast.unparse(members[0].value):
        file.add(E.AddImport(run.target.backend_enum, enum))


def _is_enum_root(node: ast.AST, members: list[ast.Attribute]) -> bool:
    return any(node is inner for m in members for inner in ast.walk(m))


def _asks_for_flash(test: ast.expr) -> bool:
    """`== FLASH_ATTN`, `in {FLASH_ATTN, ...}` or an `or` of such; a negation asks something else."""
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) else [test]
    return all(isinstance(p, ast.Compare) and len(p.ops) == 1 and isinstance(p.ops[0], (ast.Eq, ast.In, ast.Is)) for p in parts) and "FLASH_ATTN" in ast.unparse(test)


RULE = Rule(
    code="VA303",
    name="max-seqlen",
    summary="max_seqlen stays a tensor and is computed for every backend that reads it.",
    why=(
        "The flash and Triton paths of MMEncoderAttention call max_seqlen.item() themselves, so a Python number raises there while every SDPA "
        "test passes. From 0.17 vLLM may choose Triton, whose kernel reads max_seqlen too: a test that names only flash leaves it None."
    ),
    follows="vLLM 0.13.0 (tensor), 0.17.0 (TRITON_ATTN)",
    names=frozenset({"max_seqlen", *V.ENUMS}),
    plan=plan,
    examples=(Example(before=_BEFORE, after=_AFTER),),
)


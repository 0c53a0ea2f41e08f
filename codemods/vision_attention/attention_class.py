"""One vision attention class, planned whole: its chain, heads and constructor, or the check that failed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from codemods.parsed_file import FunctionNode, ParsedFile, parameters, self_attribute
from codemods.project import VLLM_MODELS, AnyFunction, Class, Project
from codemods.target import Target
from codemods.vision_attention import device_kernels, widths
from codemods.vision_attention import vocabulary as V
from codemods.vision_attention.arms import Refusal
from codemods.vision_attention.backend import BackendState, backend_state
from codemods.vision_attention.chain import Chain, describe, describe_alone, find_chains, is_flash, is_xformers
from codemods.vision_attention.heads import Heads, heads
from codemods.vision_attention.override import override_parameter

# without one of these, no call of a file is one of a flash kernel or of a device's
_KERNEL = re.compile("|".join([V.FLASH_KERNEL, V.FLASH_WRAPPER, "cu_seqlens_q", *V.DEVICE_KERNELS]))
_OP_NAMES = ("attn", "encoder_attn", "mm_encoder_attn")


@dataclass(frozen=True)
class AttentionClass:
    """A class accepted for migration. `op`: the attribute that will hold MMEncoderAttention."""

    cls: Class
    constructor: AnyFunction
    chain: Chain
    state: BackendState
    heads: Heads
    op: str
    has_prefix: bool
    override: str | None  # the constructor parameter that carries the backend override


@dataclass(frozen=True)
class RefusedClass:
    """A class left alone, and why."""

    cls: Class
    check: str
    node: ast.AST
    alone: bool = False  # it calls a device's kernel and chooses nothing, so nothing is fed to it that may not change


def attention_classes(
    project: Project, file: ParsedFile, target: Target, source: tuple[str, ...]
) -> list[AttentionClass | RefusedClass]:
    """Every class of a file that dispatches over attention kernels by hand."""
    found: list[AttentionClass | RefusedClass] = []
    has_kernels = _KERNEL.search(file.text) is not None
    for node in file.class_nodes:
        cls = Class(file, node)
        methods = [f for f in node.body if isinstance(f, FunctionNode)] if has_kernels else []
        chains = [(f, c) for f in methods for c in find_chains(f)]
        kernels = [(f, c) for f in methods for c in device_kernels.calls([f]) if project.callee(file, c) is None]
        alone = [] if chains else kernels
        if kernels and is_op(project, cls):
            continue  # the right place for it
        if not chains and not alone:
            stray = _dispatches_otherwise(project, file, cls)
            if stray is not None:
                found.append(
                    RefusedClass(
                        cls,
                        "its dispatch is not one if statement, or an arm calls a kernel that is not known",
                        stray,
                    )
                )
            continue
        function, chain = (chains or alone)[0]
        try:
            if file.classes[node.name] is not node or [n.name for n in file.class_nodes].count(node.name) > 1:
                raise Refusal("the file has two classes of this name", node)
            if len(chains) > 1 or len(alone) > 1:
                raise Refusal("the class dispatches over kernels in more than one place", (chains or alone)[1][1])
            found.append(_accepted(project, file, cls, function, chain, target, source))
        except Refusal as refusal:
            found.append(RefusedClass(cls, refusal.check, refusal.node, bool(alone)))
    refused = next((c for c in found if isinstance(c, RefusedClass) and not c.alone), None)
    if refused is None:
        return found
    why = f"{refused.cls.node.name} in this file is left as it is, and both are fed by the same tower"
    return [c if isinstance(c, RefusedClass) else RefusedClass(c.cls, why, c.cls.node) for c in found]


def _accepted(
    project: Project,
    file: ParsedFile,
    cls: Class,
    function: AnyFunction,
    statement: ast.If | ast.Call,
    target: Target,
    source: tuple[str, ...],
) -> AttentionClass:
    constructor = cls.own("__init__")
    if constructor is None:
        raise Refusal("the class has no constructor of its own to build MMEncoderAttention in", cls.node)
    state = backend_state(project, file, constructor)
    if isinstance(statement, ast.If):
        chain = describe(project, file, function, statement, state.names)
    else:
        chain = describe_alone(file, function, statement)
    if chain.devices and (base := _vllm_base(project, cls)) is not None:
        raise Refusal(f"it overrides {base} of vLLM, which calls MMEncoderAttention itself at this target", cls.node)
    if chain.max_seqlen is None:
        raise Refusal("max_seqlen is not given to the flash kernel", statement)
    found = heads(project, cls, constructor, chain, state)
    widths.check_unpadded(project, file, chain, found.head_size)
    for told in chain.devices:
        if told.padding is None:
            continue
        if told.padding.size not in (None, f"self.{found.head_size}", *_aliases(constructor, found.head_size)):
            raise Refusal(f"{told.padding.size} cannot be shown to be the head size before padding", statement)
        if not found.default_scale:
            raise Refusal("the scale cannot be shown to be that of the head size before padding", statement)
    if not target.honours_scale and not found.default_scale:
        raise Refusal(
            "the scale cannot be shown to be head_size**-0.5, and MMEncoderAttention ignores scale at this target",
            chain.scale or statement,
        )
    if chain.unscaled_arm and not found.default_scale:
        raise Refusal(
            "the flash arm is given a scale that is not provably head_size**-0.5, another arm is given none",
            chain.scale or statement,
        )
    family = [*project.bases(cls), *project.subclasses.get(cls.qualified, [])]
    used = {
        name
        for member in family
        for inner in member.file.below(member.node)
        if (name := self_attribute(inner)) is not None
    }
    op = next((name for name in _OP_NAMES if name not in used), None)
    if op is None:
        raise Refusal("no attribute name is free for MMEncoderAttention", cls.node)
    _check_other_reads(project, cls, constructor, state, chain)
    # from 0.15 on the override dies, whatever it is called; before, it has to become the configuration
    override = override_parameter(project, file, constructor, source) if target.takes_multimodal_config else None
    has_prefix = any(a.arg == "prefix" for a in parameters(constructor))
    return AttentionClass(cls, constructor, chain, state, found, op, has_prefix, override)


def is_op(project: Project, cls: Class) -> bool:
    """Whether a class derives from one of vLLM's ops or backends: there a device's kernel is at home."""
    return any(not name.startswith(f"{VLLM_MODELS}.") for name in _vllm_bases(project, cls))


def _vllm_base(project: Project, cls: Class) -> str | None:
    return next((V.last(name) for name in _vllm_bases(project, cls) if name.startswith(f"{VLLM_MODELS}.")), None)


def _vllm_bases(project: Project, cls: Class) -> Iterator[str]:
    for member in project.bases(cls):
        for base in member.node.bases:
            name = project.vllm(member.file, base)
            if name is not None and name not in project.classes:
                yield name


def _aliases(constructor: AnyFunction, attribute: str) -> list[str]:
    """Other attributes of self, and names, that a constructor sets to what it sets the head size to."""
    steps = [s for s in ast.walk(constructor) if isinstance(s, ast.Assign)]
    values = [ast.unparse(s.value) for s in steps if any(self_attribute(t) == attribute for t in s.targets)]
    wanted = {f"self.{attribute}", *(values if len(values) == 1 else [])}
    return [ast.unparse(t) for s in steps if ast.unparse(s.value) in wanted for t in s.targets]


# attributes that MMEncoderAttention has too, in every release from 0.13 on
FLASH_FLAG = "is_flash_attn_backend"
RETARGETED = ("attn_backend", FLASH_FLAG)


def _check_other_reads(
    project: Project, cls: Class, constructor: AnyFunction, state: BackendState, chain: Chain
) -> None:
    """What goes with the dispatch may not be read elsewhere, unless a method reads what MMEncoderAttention has as
    well."""
    gone = (*state.statements, chain.statement, *chain.rest)
    inside = {id(node) for statement in gone for node in ast.walk(statement)}
    in_constructor = {id(node) for node in cls.file.below(constructor)}
    for node in cls.file.below(cls.node):
        name = self_attribute(node)
        if name in state.names and id(node) not in inside and isinstance(node, ast.Attribute):
            if not isinstance(node.ctx, ast.Load):
                raise Refusal(f"self.{name} is also set by code that is not understood", node)
            if name not in RETARGETED:
                raise Refusal(f"self.{name} is used outside of the dispatch", node)
            if id(node) in in_constructor:
                raise Refusal(f"the constructor uses self.{name} for more than the choice of a backend", node)
    for sub in project.subclasses.get(cls.qualified, []):
        for node in sub.file.below(sub.node):
            if self_attribute(node) in state.names:
                raise Refusal(f"its subclass {sub.node.name} uses self.{self_attribute(node)}", node)
    for file in project.files:
        for node in file.nodes[ast.Attribute]:
            if (
                isinstance(node, ast.Attribute)
                and node.attr in state.names
                and isinstance(node.ctx, ast.Load)
                and self_attribute(node) is None
            ):
                if any(c.qualified == cls.qualified for c in project.instances(file, node.value)):
                    raise Refusal(f"{ast.unparse(node)} reads it from outside ({file.place(node)})", cls.node)


def _dispatches_otherwise(project: Project, file: ParsedFile, cls: Class) -> ast.AST | None:
    """A kernel call of the old kind, in a class that chooses a backend but has no chain that is understood."""
    constructor = cls.own("__init__")
    state = backend_state(project, file, constructor) if constructor is not None else None
    if state is None or not state.statements:
        called = file.inside(cls.node, ast.Call)
        return next((call for call in called if V.vllm_call(project, file, call, *V.WRAPPERS)), None)
    kernels = {
        name
        for statement in state.statements
        if isinstance(statement, ast.Assign)
        and any(V.vllm_call(project, file, n, V.GET_FLASH) for n in ast.walk(statement.value))
        for target in ast.walk(statement)
        if isinstance(target, ast.Attribute)
        and isinstance(target.ctx, ast.Store)
        and (name := self_attribute(target)) not in (None, *RETARGETED)
    }
    chosen = {id(n) for s in state.statements for n in ast.walk(s)}
    for node in file.below(cls.node):
        if id(node) in chosen:
            continue
        if isinstance(node, ast.Call) and V.vllm_call(project, file, node, *V.WRAPPERS):
            return node
        if isinstance(node, ast.Call) and (is_flash(node) or is_xformers(node)):
            return node
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and self_attribute(node) in kernels:
            return node
    for node in file.nodes[ast.Attribute]:  # a function that is given the module
        if isinstance(node, ast.Attribute) and node.attr in kernels and isinstance(node.ctx, ast.Load):
            if file.class_of(node) is None:
                return node
    return None

"""One vision attention class, planned whole: its chain, heads and constructor, or the check that failed."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from codemods.parsed_file import ParsedFile, parameters, self_attribute
from codemods.project import AnyFunction, Class, Project
from codemods.target import Target
from codemods.vision_attention.backend import BackendState, backend_state
from codemods.vision_attention.arms import Refusal
from codemods.vision_attention.chain import Chain, describe, find_chains
from codemods.vision_attention.heads import Heads, heads

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


@dataclass(frozen=True)
class RefusedClass:
    """A class left alone, and why."""

    cls: Class
    chain: ast.If
    check: str
    node: ast.AST


def attention_classes(project: Project, file: ParsedFile, target: Target) -> list[AttentionClass | RefusedClass]:
    """Every class of a file that dispatches over attention kernels by hand."""
    found: list[AttentionClass | RefusedClass] = []
    for node in file.classes.values():
        cls = Class(file, node)
        chains = [(f, c) for f in node.body if isinstance(f, (ast.FunctionDef, ast.AsyncFunctionDef)) for c in find_chains(f)]
        if not chains:
            continue
        function, chain = chains[0]
        try:
            if len(chains) > 1:
                raise Refusal("the class dispatches over kernels in more than one place", chains[1][1])
            found.append(_accepted(project, file, cls, function, chain, target))
        except Refusal as refusal:
            found.append(RefusedClass(cls, chain, refusal.check, refusal.node))
    return found


def _accepted(project: Project, file: ParsedFile, cls: Class, function: AnyFunction, statement: ast.If, target: Target) -> AttentionClass:
    constructor = cls.own("__init__")
    if constructor is None:
        raise Refusal("the class has no constructor of its own to build MMEncoderAttention in", cls.node)
    state = backend_state(project, file, constructor)
    chain = describe(project, file, function, statement, state.names)
    if chain.max_seqlen is None:
        raise Refusal("max_seqlen is not given to the flash kernel", statement)
    found = heads(cls.node, constructor, chain, state)
    if not target.honours_scale and not found.default_scale:
        raise Refusal("the scale is not head_size**-0.5, and MMEncoderAttention ignores scale at this target", chain.scale or statement)
    if chain.unscaled_arm and not found.default_scale:
        raise Refusal("the flash arm is given a scale that is not provably head_size**-0.5, another arm is given none", chain.scale or statement)
    used = {name for inner in ast.walk(cls.node) if (name := self_attribute(inner)) is not None}
    op = next((name for name in _OP_NAMES if name not in used), None)
    if op is None:
        raise Refusal("no attribute name is free for MMEncoderAttention", cls.node)
    lost = _lost_uses(cls, constructor, state, statement)
    if lost is not None:
        raise Refusal(f"self.{lost.attr} is used outside of the dispatch", lost)
    return AttentionClass(cls, constructor, chain, state, found, op, any(a.arg == "prefix" for a in parameters(constructor)))


# attributes that MMEncoderAttention has too, in every release from 0.13 on
RETARGETED = ("attn_backend", "is_flash_attn_backend")


def _lost_uses(cls: Class, constructor: AnyFunction, state: BackendState, chain: ast.If) -> ast.Attribute | None:
    """A read of an attribute that goes with the dispatch and has no counterpart on MMEncoderAttention."""
    gone = [*state.statements, chain]
    inside = {id(node) for statement in gone for node in ast.walk(statement)}
    for node in ast.walk(cls.node):
        name = self_attribute(node)
        if name in state.names and name not in RETARGETED and id(node) not in inside and isinstance(node, ast.Attribute):
            return node
    return None

"""The ordered list of rules, read from top to bottom by a run. Consecutive sweeping rules repeat until nothing
changes."""

from __future__ import annotations

from codemods import leftovers, liveness, verify
from codemods.rule import Rule
from codemods.rules import (
    backend_choice,
    backend_enum,
    backend_override,
    backend_sets,
    custom_op,
    data_parallel,
    dead_code,
    dead_parameters,
    dispatch_chain,
    encoder_attention_call,
    expert_mapping,
    get_rope,
    max_seqlen,
    moved_imports,
    multi_head_attention,
    out_of_tree_op,
    patches,
    renamed_types,
    rotary_embedding,
    source_patches,
    tower_backend,
    version_guards,
    xformers_lengths,
)

RULES: tuple[Rule, ...] = (
    version_guards.RULE,
    multi_head_attention.RULE,
    dispatch_chain.RULE,
    backend_choice.RULE,
    encoder_attention_call.RULE,
    tower_backend.RULE,
    max_seqlen.RULE,
    backend_sets.RULE,
    backend_override.RULE,
    data_parallel.RULE,
    out_of_tree_op.RULE,
    custom_op.RULE,
    rotary_embedding.RULE,
    get_rope.RULE,
    expert_mapping.RULE,
    xformers_lengths.RULE,
    dead_parameters.RULE,
    dead_code.RULE,
    backend_enum.RULE,
    renamed_types.RULE,
    moved_imports.RULE,
    patches.RULE,
    source_patches.RULE,
    liveness.RULE,
    verify.RULE,
    leftovers.RULE,
)

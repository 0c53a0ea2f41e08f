"""The check before a write: what a rewritten file takes from vLLM's vision attention exists at the target and is
called right."""

from __future__ import annotations

import ast

from codemods import calls
from codemods import edits as E
from codemods.parsed_file import ParsedFile
from codemods.plan import FilePlan, Plan
from codemods.project import Project
from codemods.rule import Rule
from codemods.vision_attention import vocabulary as V

RULE = Rule(
    code="VA900",
    name="self-check",
    summary="A file whose rewrite fails its own check is left exactly as it was.",
    why=(
        "Before anything is written, the new text must parse, every name it newly imports must exist at the "
        "target, every "
        "new call of vLLM's vision attention must bind to the target's signature, and a second run must have "
        "nothing to "
        "do. A file that fails any of these keeps its bytes; the other files are planned anew without it. "
        "So does, in a run for several targets, a file that no one text can serve."
    ),
    follows="nothing upstream: it guards the other rules",
    names=frozenset(),
    plan=lambda run: None,  # the check runs on the result, not on the plan
    examples=(),
)

_CHECKED = (V.ENCODER_ATTENTION, V.GET_BACKEND, "ApplyRotaryEmb", "get_rope")


def problems(new: ParsedFile, old: FilePlan, plan: Plan) -> list[str]:
    """What is wrong with a rewritten file, one sentence each; empty if nothing is."""
    found = [
        f"{edit.module} has no {edit.name} in vLLM {plan.target.version}"
        for edit in old.edits
        if isinstance(edit, E.AddImport) and plan.api.has(edit.module, edit.name) is False
    ]
    project = Project([new, *(f for f in plan.project.files if f is not old.file)])
    checked = [
        (call, calls.why_not(plan.api, project.vllm(new, call.func) or "", call))
        for call in new.nodes[ast.Call]
        if isinstance(call, ast.Call) and V.vllm_call(project, new, call, *_CHECKED)
    ]
    checked += [
        (call, calls.why_not_instance(plan.api, name, call))
        for call, name in calls.encoder_attention_calls(project, new)
    ]
    wrong = [(call, why) for call, why in checked if why is not None]
    before = {ast.dump(call) for call in old.file.nodes[ast.Call]} if wrong else set()
    return found + [
        f"the new call of {ast.unparse(call.func)} does not fit vLLM {plan.target.version}: {why}"
        for call, why in wrong
        if ast.dump(call) not in before
    ]

"""The account of a file: every use of the old API is rewritten, refused with a reason, or shown irrelevant.

A use that none of the three covers becomes a finding of its own, so nothing is skipped in silence.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods import calls, moved_names
from codemods import edits as E
from codemods.findings import Finding, Severity, Sites
from codemods.plan import FilePlan, Plan
from codemods.rule import Example, Rule
from codemods.vision_attention import vocabulary as V

_CALL = """\
from torch import nn
from vllm.model_executor.layers.linear import RowParallelLinear


class Projection(nn.Module):
    def __init__(self, width: int, backend) -> None:
        super().__init__()
        self.out = RowParallelLinear(width, width, attn_backend=backend)
"""

RULE = Rule(
    code="VA901",
    name="leftover",
    summary="A use of the old API that no rule rewrote or refused is reported where it stands.",
    why=(
        "Every use of a name that some rule declares is rewritten, refused with a reason, or right as it stands. "
        "What is "
        "none of the three would break at the target in silence; this finding is the net under the other rules."
    ),
    follows="the signatures and names of the target release, as the index has them",
    names=frozenset(),
    plan=lambda run: None,  # the account is drawn up when all rules have run
    examples=(Example(before=_CALL, after=_CALL, refused=True),),
)


def account(run: Plan, plan: FilePlan, names: frozenset[str]) -> tuple[Sites, list[Finding]]:
    """The counts of a file's sites, and a finding for each site that nothing else accounts for.

    With this rule ignored none tells of the last, and they are not counted.

    A site is an identifier among `names`: a name read or bound, an attribute, an imported name, a keyword, a parameter.
    """
    rewritten = refused = irrelevant = 0
    left: list[Finding] = []
    moved = {
        alias.asname or alias.name
        for statement, alias in _imported(plan)
        if E.RemoveImport(E.Ref.of(statement), alias.name) in plan.edits or plan.gone(statement)
    }
    lost = {alias.asname or alias.name for node, alias in _imported(plan) if _covered(plan.refused, alias)}
    called = {edit.call for edit in plan.edits if isinstance(edit, (E.RemoveArgument, E.SetArgument))}
    for node, name in _sites(plan, names):
        above = plan.file.parents[node]
        if isinstance(above, ast.Call) and above.func is node and E.Ref.of(above) in called:
            rewritten += 1
        elif _covered(plan.rewritten, node) or plan.gone(node) or (isinstance(node, ast.Name) and node.id in moved):
            rewritten += 1
        elif _covered(plan.refused, node) or (isinstance(node, ast.Name) and node.id in lost):
            refused += 1
        else:
            why = _wrong(run, plan, node, name)
            if why is None:
                irrelevant += 1
            elif RULE.code in run.active:
                refused += 1
                left.append(_finding(plan, node, *why))
    return Sites(rewritten, refused, irrelevant), left


def _sites(plan: FilePlan, names: frozenset[str]) -> Iterator[tuple[ast.AST, str]]:
    for kind, field in ((ast.Name, "id"), (ast.Attribute, "attr"), (ast.keyword, "arg"), (ast.arg, "arg")):
        for node in plan.file.nodes[kind]:
            name = getattr(node, field)
            if name in names:
                yield node, name
    for _, alias in _imported(plan):
        if alias.name in names:
            yield alias, alias.name


def _imported(plan: FilePlan) -> Iterator[tuple[ast.ImportFrom, ast.alias]]:
    for statement in plan.file.nodes[ast.ImportFrom]:
        assert isinstance(statement, ast.ImportFrom)
        for alias in statement.names:
            yield statement, alias


def _covered(places: list[E.Ref], node: ast.AST) -> bool:
    ref = E.Ref.of(node)
    return any(place.contains(ref) for place in places)


def _wrong(run: Plan, plan: FilePlan, node: ast.AST, name: str) -> tuple[str, str] | None:
    """Why a site is not right as it stands at the target (message, remedy); None if it is, or is not vLLM's at all."""
    file = plan.file
    release = run.target.version
    if isinstance(node, ast.alias):
        statement = file.parents[node]
        assert isinstance(statement, ast.ImportFrom)
        module = file.absolute(statement)
        if (
            module in run.project.by_module
            or run.api.has(module, node.name) is not False
            or not module.startswith("vllm")
        ):
            return None
        return (
            moved_names.absence(run, module, node.name),
            "Replace its uses; see the pages of the rules for what took its place.",
        )
    if isinstance(node, (ast.Name, ast.Attribute)):
        meaning = run.project.vllm(file, node, node)
        if meaning is None or V.last(meaning) != (name if isinstance(node, ast.Attribute) else V.last(meaning)):
            return None
        module, _, last = meaning.rpartition(".")
        if module not in run.project.by_module and run.api.has(module, last) is False and not _is_member(run, meaning):
            return (
                moved_names.absence(run, module, last),
                "Replace its uses; see the pages of the rules for what took its place.",
            )
        above = file.parents[node]
        if isinstance(above, ast.Call) and above.func is node and module not in run.project.by_module:
            why = calls.why_not(run.api, meaning, above)
            if why is not None:
                return (
                    f"this call of {last} does not fit vLLM {release}: {why}",
                    "Call it as this release's signature asks.",
                )
        return None
    if isinstance(node, ast.keyword):
        call = file.parents[node]
        if isinstance(call, ast.Call):
            meaning = run.project.vllm(file, call.func)
            if (
                meaning is not None
                and meaning.rpartition(".")[0] not in run.project.by_module
                and run.project.callee(file, call) is None
            ):
                signature = run.api.signature(meaning)
                if (
                    signature is not None
                    and node.arg is not None
                    and node.arg not in signature
                    and not any(p.kind.value == "kwargs" for p in signature.parameters)
                ):
                    return (
                        f"{V.last(meaning)} takes no {node.arg}= in vLLM {release}",
                        f"Take {node.arg}= out of the call.",
                    )
    return None


def _is_member(run: Plan, meaning: str) -> bool:
    """`module.Class.member`: the class is looked at where it is named."""
    owner, _, _ = meaning.rpartition(".")
    module, _, cls = owner.rpartition(".")
    return (
        bool(module)
        and run.api.has_module(module)
        and run.api.has(module, cls) is not False
        and not run.api.has_module(owner)
    )


def _finding(plan: FilePlan, node: ast.AST, message: str, remedy: str) -> Finding:
    line = node.lineno  # type: ignore[attr-defined]
    text = plan.file.lines[line - 1]
    column = len(text.encode()[: node.col_offset].decode()) + 1  # type: ignore[attr-defined]
    return Finding(line, column, RULE.code, Severity.ERROR, message, remedy)

"""VA670: of an `if` or `try` that asks which vLLM runs, the arm that fits the target stays."""

from __future__ import annotations

import ast
from pathlib import Path

from codemods import edits as E
from codemods.findings import Finding, Severity
from codemods.guards.asking import Asking
from codemods.guards.settle import refusals
from codemods.plan import FilePlan, Plan
from codemods.rule import Example, Rule
from codemods.uses import uses_of

_BEFORE = """\
import vllm
from packaging.version import Version
from torch import nn
from vllm.config import VllmConfig

try:
    # from 0.14 on
    from vllm.model_executor.layers.attention import MMEncoderAttention
except ImportError:
    from vllm.attention.layers.mm_encoder_attention import MMEncoderAttention

HAS_NEW_LAYOUT = Version(vllm.__version__) >= Version("0.13")


class PatchAttention(nn.Module):
    def __init__(self, vllm_config: VllmConfig, heads: int, head_dim: int) -> None:
        super().__init__()
        if HAS_NEW_LAYOUT:
            # heads of this rank
            self.attn = MMEncoderAttention(heads, head_dim, head_dim**-0.5)
        else:
            self.attn = None
"""

_AFTER = """\
from torch import nn
from vllm.config import VllmConfig

# from 0.14 on
from vllm.model_executor.layers.attention import MMEncoderAttention


class PatchAttention(nn.Module):
    def __init__(self, vllm_config: VllmConfig, heads: int, head_dim: int) -> None:
        super().__init__()
        # heads of this rank
        self.attn = MMEncoderAttention(heads, head_dim, head_dim**-0.5)
"""


def plan(run: Plan) -> None:
    ask = Asking(run.project, run.api)
    for file in run.open_files:
        for check, asked in refusals(ask, file.file):
            file.find(
                RULE,
                check,
                Severity.ERROR,
                f"this check refuses vLLM {run.target.version}: `{asked}`",
                "See that what it guards against holds no more, then let this release through.",
                covers=check.test,  # type: ignore[attr-defined]
            )
        if file.view is None:
            continue
        for node, decision in file.view.settled:
            edit = E.Unwrap(E.Ref.of(node), decision.keep)
            file.rewrite(RULE, node, f"{decision.why}: {_what_stays(node, decision.keep)}", [edit])
        for statement in file.view.behind:
            file.rewrite(RULE, statement, "never reached any more", [E.ReplaceStatement(E.Ref.of(statement), "")])
        places = [E.Ref.of(node) for node in file.file.dropped]
        file.removed += places
        file.rewritten += places
        _constants(run, file, ask)


def _what_stays(node: ast.AST, keep: str) -> str:
    if isinstance(node, ast.If) and keep == "orelse" and not node.orelse:
        return "the branch goes"
    if isinstance(node, ast.Try):
        return "the imports stay alone" if keep == "body" else "what its `except` does stays"
    return "its own arm stays" if keep == "body" else "the other arm stays"


def kept_guards_in_the_way(run: Plan) -> dict[Path, Finding]:
    """Files of which an edit would reach into a guard that is kept: no part of such a change may be made."""
    found = {}
    for file in run.open_files:
        for guard in file.view.kept if file.view is not None and file.keeps_guards else ():
            place = E.Ref.of(guard)
            if any(place.contains(inner) for edit in file.edits for inner in E.places(edit)):
                found[file.file.path] = Finding(
                    place.line,
                    place.column + 1,
                    RULE.code,
                    Severity.ERROR,
                    "the file is left as it is: what has to change lies in this version guard, which is kept",
                    "Run without --keep-guards, or port what is in the guard by hand first.",
                )
    return found


def _constants(run: Plan, file: FilePlan, ask: Asking) -> None:
    """Constants that only the guards asked: `IS_NEW = Version(vllm.__version__) >= ...`."""
    size = -1
    while size != (size := len(file.edits)):
        uses = uses_of(file)
        for statement in file.file.tree.body:
            target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
            if not isinstance(target, ast.Name) or not isinstance(statement, ast.Assign) or file.gone(statement):
                continue
            name = target.id
            if not uses.before(name) or uses.now(name) or name in file.file.exported or run.taken(file, name):
                continue
            value = ask.value(file.file, statement.value, {})
            if value is not None and (value.told or getattr(statement, "told", False)):
                edit = E.ReplaceStatement(E.Ref.of(statement), "")
                file.rewrite(RULE, statement, f"{name} was only asked for by guards", [edit])


RULE = Rule(
    code="VA670",
    name="version-guards",
    summary="Of an `if` or `try` that asks which vLLM runs, the arm that fits the target stays; the other goes.",
    why=(
        "A file that is ported to one vLLM needs no choice between several. A guard is settled only where its answer "
        "at the target is certain: it compares vLLM's version with constants, itself or through a helper or a "
        "constant of the plugin, asks whether one of vLLM's modules or classes has a name, or tries imports that the "
        "index knows. A `try` that may fail for want of a device or a package stays, and so does what cannot be told. "
        "A check that would only leave an error, because the plugin refuses the target, stays as well and is reported. "
        "With `--keep-guards` every guard stays, and so does what is in its arms."
    ),
    follows="the release that the run is for, and the index of its names",
    names=frozenset({"vllm"}),
    plan=plan,
    examples=(Example(before=_BEFORE, after=_AFTER, source="0.13"),),
    unported=Severity.NOTE,
)

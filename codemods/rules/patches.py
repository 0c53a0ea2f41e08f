"""VA660: a patch of vLLM is held against the target: is it there, is it called so, does it reach those who use it."""

from __future__ import annotations

import ast

from codemods import edits as E
from codemods.findings import Severity
from codemods.patch_verdict import judge
from codemods.patches import Patch
from codemods.plan import FilePlan, Plan
from codemods.rule import Example, Rule

_EXAMPLE = """\
from vllm.model_executor.models import qwen2_5_vl
from vllm.model_executor.models.qwen2_5_vl import Qwen2_5_VisionAttention


def forward(self, x, cu_seqlens, rotary_pos_emb, max_seqlen=None, seqlens=None): ...


Qwen2_5_VisionAttention.forward = forward
setattr(qwen2_5_vl, "check_upstream_fa_availability", lambda dtype: False)
"""

_RANKS = (Severity.NOTE, Severity.WARNING, Severity.ERROR)


def plan(run: Plan) -> None:
    for file in run.open_files:
        for patch in run.patches.of(file.file):
            if not file.gone(patch.node):
                _tell(run, file, patch)


def _tell(run: Plan, file: FilePlan, patch: Patch) -> None:
    verdict = judge(run, file, patch)
    if verdict is None:
        return
    place = E.Ref.of(patch.node)
    lines = range(place.line, place.end_line + 1)
    # One finding a patch: what other rules said of its names is in the verdict, unless that is the milder one.
    file.findings = [
        finding
        for finding in file.findings
        if finding.line not in lines
        or finding.code == RULE.code
        or not _inside(file, patch.node, finding.line, finding.column)
        or _RANKS.index(finding.severity) > _RANKS.index(verdict.severity)
    ]
    file.find(RULE, patch.node, verdict.severity, verdict.message, verdict.remedy)


def _inside(file: FilePlan, node: ast.AST, line: int, column: int) -> bool:
    """Whether a finding's place, which counts characters from 1, lies in a node, whose columns count bytes from 0."""
    place = E.Ref.of(node)
    offset = len(file.file.lines[line - 1][: column - 1].encode())
    return place.start <= (line, offset) < place.end


RULE = Rule(
    code="VA660",
    name="patches-of-vllm",
    summary="Patches of vLLM are never edited: each is reported with what the target has in its place.",
    why=(
        "A plugin that assigns to a module, class or method of vLLM, to sys.modules, or through unittest.mock is bound "
        "to names that no import checks. Where the name is gone, an assignment still succeeds and changes nothing. "
        "Where the signature changed, the first call fails. A module that imported the name keeps the original. "
        "Followed are attributes, setattr, sys.modules, mock.patch, monkeypatch and mocker, names reached by "
        "importlib, getattr and loops over tables, and the plugin's own helpers that patch what they are given. An "
        "import that serves a patch still follows a name that moved; the patch itself is left to a person."
    ),
    follows="the names and signatures of every release, as the index has them",
    names=frozenset(),
    plan=plan,
    report_only=True,
    examples=(Example(before=_EXAMPLE, after=_EXAMPLE, refused=True),),
)

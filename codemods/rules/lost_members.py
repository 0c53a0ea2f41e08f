"""VA612: what a class defines for an interface of vLLM that has no such member any more."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods import contract_remedies as remedies
from codemods import edits as E
from codemods import vllm_contracts as contracts
from codemods.embed_methods import RENAMED
from codemods.findings import Severity
from codemods.parsed_file import FunctionNode
from codemods.plan import FilePlan, Plan
from codemods.project import Class
from codemods.rule import Example, Rule

_BEFORE = """\
from torch import nn
from vllm.model_executor.models.interfaces import SupportsMultiModal


class CaptionModel(nn.Module, SupportsMultiModal):
    merge_by_field_config = True
    packed_modules_mapping = {"qkv_proj": ["q_proj", "k_proj", "v_proj"]}

    def get_multimodal_embeddings(self, **kwargs):
        return self.encode(kwargs["pixel_values"])
"""

_AFTER = """\
from torch import nn
from vllm.model_executor.models.interfaces import SupportsMultiModal


class CaptionModel(nn.Module, SupportsMultiModal):
    packed_modules_mapping = {"qkv_proj": ["q_proj", "k_proj", "v_proj"]}

    def embed_multimodal(self, **kwargs):
        return self.encode(kwargs["pixel_values"])
"""

_PARSER = """\
from vllm.multimodal.parse import MultiModalDataParser
from vllm.multimodal.processing import BaseMultiModalProcessor


class SpeechProcessor(BaseMultiModalProcessor):
    def _get_data_parser(self) -> MultiModalDataParser:
        return MultiModalDataParser(target_sr=self.info.get_sampling_rate())
"""

_HANDLED = frozenset({method.old for method in RENAMED})


def plan(run: Plan) -> None:
    for file in run.open_files:
        for node in file.file.class_nodes:
            bases = contracts.contracts(run, Class(file.file, node))
            if bases:
                for name, statement in _defined(node):
                    if name not in _HANDLED and not file.gone(statement):
                        _plan_member(run, file, node, bases, name, statement)


def _defined(cls: ast.ClassDef) -> Iterator[tuple[str, ast.stmt]]:
    """Names that a class statement binds, each with the statement."""
    for statement in cls.body:
        if isinstance(statement, FunctionNode):
            if not (statement.name.startswith("__") and statement.name.endswith("__")):
                yield statement.name, statement
        elif isinstance(statement, ast.Assign):
            yield from ((t.id, statement) for t in statement.targets if isinstance(t, ast.Name))
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
            yield statement.target.id, statement


def _plan_member(
    run: Plan, file: FilePlan, cls: ast.ClassDef, bases: tuple[str, ...], name: str, statement: ast.stmt
) -> None:
    told = remedies.remedy(remedies.MEMBERS, name, run.target.version)
    lost = contracts.lost(run, bases, name)
    ceased = told is not None and not isinstance(statement, FunctionNode) and _was_member(run, bases, name)
    if lost is None and not ceased:
        return
    if told is None and (contracts.reads(run, name) or not contracts.heritage(run, Class(file.file, cls)).closed):
        return  # it may be somebody else's as well
    if told is not None and told.droppable and not isinstance(statement, FunctionNode):
        message = f"{name} means nothing to vLLM {run.target.version}"
        if file.edits and _may_drop(run, statement, name):
            file.rewrite(RULE, statement, message, [E.ReplaceStatement(E.Ref.of(statement), "")])
        else:
            file.find(RULE, statement, Severity.NOTE, message, told.text, covers=contracts.head(statement))
        return
    what = "calls" if isinstance(statement, FunctionNode) else "reads"
    file.find(
        RULE,
        statement,
        Severity.ERROR if lost is None else Severity.WARNING,
        f"vLLM {run.target.version} no longer {what} {name} of {cls.name}"
        + (f", which {lost.base.rpartition('.')[2]} had until {lost.release}" if lost is not None else ""),
        told.text
        if told is not None
        else f"See what {contracts.home(run, lost.base)} has in its place."
        if lost
        else "",
        covers=contracts.head(statement),
    )


def _was_member(run: Plan, bases: tuple[str, ...], name: str) -> bool:
    """Whether an interface has a member that vLLM refuses to be set, as it does for a release before it goes."""
    return any(name in contracts.members(run, base) for base in bases)


def _may_drop(run: Plan, statement: ast.stmt, name: str) -> bool:
    alone = not isinstance(statement, ast.Assign) or len(statement.targets) == 1
    return alone and not contracts.reads(run, name)


RULE = Rule(
    code="VA612",
    name="lost-members",
    summary="Class attributes and methods that only an older interface of vLLM had are taken out or reported.",
    why=(
        "vLLM reads attributes and calls methods of a model, its processor and its dummy inputs by the names of their "
        "interfaces. What an interface has lost is neither read nor called, and nothing says so at run time. An "
        "attribute that means nothing any more is taken out of a file that changes anyway; for the rest the "
        "report says what takes its place."
    ),
    follows="the members of vLLM's interfaces at each release, as the index has them",
    names=frozenset({"merge_by_field_config", "multimodal_cpu_fields"}),
    plan=plan,
    examples=(
        Example(before=_BEFORE, after=_AFTER),
        Example(before=_PARSER, after=_PARSER, source="0.14", refused=True),
    ),
    unported=Severity.WARNING,
)

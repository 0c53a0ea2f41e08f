"""VA618: classes of vLLM that were generic, and are not any more, go without their parameter."""

from __future__ import annotations

import ast

from codemods import edits as E
from codemods import vllm_contracts as contracts
from codemods.parsed_file import spelled
from codemods.plan import FilePlan, Plan
from codemods.rule import Example, Rule

_GENERIC = ("typing.Generic", "typing.Protocol", "typing_extensions.Generic", "typing_extensions.Protocol")

_BEFORE = """\
from vllm.multimodal.processing import PromptUpdateDetails


def details(text: str) -> PromptUpdateDetails[str]:
    return PromptUpdateDetails.from_seq(text)
"""

_AFTER = """\
from vllm.multimodal.processing import PromptUpdateDetails


def details(text: str) -> PromptUpdateDetails:
    return PromptUpdateDetails.from_seq(text)
"""


def plan(run: Plan) -> None:
    for file in run.open_files:
        for node in file.file.nodes[ast.Subscript]:
            assert isinstance(node, ast.Subscript)
            first = node.value
            while isinstance(first, ast.Attribute):
                first = first.value
            if isinstance(first, ast.Name) and first.id in file.file.imported and not file.gone(node):
                _plan_subscript(run, file, node)


def _plan_subscript(run: Plan, file: FilePlan, node: ast.Subscript) -> None:
    name = run.project.vllm(file.file, node.value)
    home = contracts.home(run, name) if name is not None else None
    if name is None or home is None or name.rpartition(".")[0] in run.project.by_module:
        return
    now = run.api.ancestry(home)
    if not now or not _is_known(now) or _is_generic(now) or "__class_getitem__" in run.api.members(home):
        return
    if not any(_is_generic(api.ancestry(there)) for api, there in contracts.before(run, name)):
        return
    message = f"{spelled(node.value)} is not generic in vLLM {run.target.version}"
    file.rewrite(RULE, node, message, [E.ReplaceExpression(E.Ref.of(node), file.file.written(node.value))])
    file.inserted.append((E.Ref.of(node), file.file.written(node.value)))


def _is_generic(ancestry: tuple[str, ...]) -> bool:
    return any(base in _GENERIC for base in ancestry)


def _is_known(ancestry: tuple[str, ...]) -> bool:
    """Whether nothing that the class extends could make it generic."""
    return all(base.startswith("vllm.") or base in ("object", "abc.ABC") for base in ancestry)


RULE = Rule(
    code="VA618",
    name="plain-classes",
    summary="A class of vLLM that is not generic any more stands without its parameter.",
    why=(
        "An annotation such as PromptUpdateDetails[str] is evaluated when the file is imported, and is a TypeError "
        "once the class is not generic: vLLM 0.29 made PromptUpdateDetails one of token ids. Which classes were "
        "generic, and are, is read from the index."
    ),
    follows="vLLM 0.29.0 (PromptUpdateDetails), and whatever else the index shows",
    names=frozenset(),
    plan=plan,
    examples=(Example(before=_BEFORE, after=_AFTER),),
)

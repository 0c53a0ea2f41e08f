"""VA610: the methods that vLLM calls for embeddings go by their names of 0.11.1."""

from __future__ import annotations

import ast

from codemods import edits as E
from codemods import vllm_contracts as contracts
from codemods.embed_methods import RENAMED, Renamed, definitions, is_dead, reaches_new
from codemods.findings import Severity
from codemods.plan import FilePlan, Plan
from codemods.project import AnyFunction, Class
from codemods.rule import Example, Rule

_BEFORE = """\
from torch import nn
from vllm.model_executor.models.interfaces import SupportsMultiModal
from vllm.model_executor.models.utils import init_vllm_registered_model


class CaptionModel(nn.Module, SupportsMultiModal):
    merge_by_field_config = True

    def __init__(self, *, vllm_config, prefix: str = "") -> None:
        super().__init__()
        self.language_model = init_vllm_registered_model(vllm_config=vllm_config, prefix=prefix)

    def get_multimodal_embeddings(self, **kwargs):
        return self.encode(kwargs["pixel_values"])

    def probe(self, input_ids):
        return self.language_model.get_input_embeddings(input_ids), self.get_multimodal_embeddings()
"""

_AFTER = """\
from torch import nn
from vllm.model_executor.models.interfaces import SupportsMultiModal
from vllm.model_executor.models.utils import init_vllm_registered_model


class CaptionModel(nn.Module, SupportsMultiModal):
    def __init__(self, *, vllm_config, prefix: str = "") -> None:
        super().__init__()
        self.language_model = init_vllm_registered_model(vllm_config=vllm_config, prefix=prefix)

    def embed_multimodal(self, **kwargs):
        return self.encode(kwargs["pixel_values"])

    def probe(self, input_ids):
        return self.language_model.embed_input_ids(input_ids), self.embed_multimodal()
"""

_UNKNOWN = """\
from vllm.model_executor.models.interfaces import supports_multimodal


def image_embeddings(model, pixel_values):
    assert supports_multimodal(model)
    return model.get_multimodal_embeddings(pixel_values=pixel_values)
"""

_OLD = frozenset(method.old for method in RENAMED)
_FLAG = "merge_by_field_config"


def plan(run: Plan) -> None:
    for file in run.open_files:
        for method in RENAMED:
            for cls, function in definitions(run, file, method):
                file.rewrite(RULE, function, _message(method), [E.Rename(E.Ref.of(function), method.new)])
                if not method.takes_input:
                    _tell_of_batches(run, file, cls, function)
        for node in file.file.nodes[ast.Attribute]:
            assert isinstance(node, ast.Attribute)
            used = next((m for m in RENAMED if m.old == node.attr and _is_use(file, node, m)), None)
            if used is not None and not file.gone(node):
                _plan_use(run, file, node, used)


def _message(method: Renamed) -> str:
    return f"{method.old} is called {method.new}"


def _is_use(file: FilePlan, node: ast.Attribute, method: Renamed) -> bool:
    """Whether an attribute may be vLLM's method: a call without arguments is of transformers' method."""
    above = file.file.parents[node]
    if isinstance(above, ast.Call) and above.func is node:
        return not method.takes_input or bool(above.args or above.keywords)
    return isinstance(node.ctx, ast.Load)


def _plan_use(run: Plan, file: FilePlan, node: ast.Attribute, method: Renamed) -> None:
    cls, function = file.file.class_of(node), file.file.function(node)
    if cls is not None and function is not None and function.name in _OLD and is_dead(run, Class(file.file, cls)):
        return
    new = reaches_new(run, file.file, node.value, method)
    if new:
        file.rewrite(RULE, node, _message(method), [E.Rename(E.Ref.of(node), method.new)])
    elif new is None and _follows_vllm(file):
        file.find(
            RULE,
            node,
            Severity.WARNING,
            f"whether {ast.unparse(node.value)} is one of vLLM's models, which have {method.new} instead of "
            f"{method.old}, is not known here",
            f"Call {method.new} if it is; leave it if the method is another library's.",
        )


def _follows_vllm(file: FilePlan) -> bool:
    return any(imported.module.partition(".")[0] == "vllm" for imported in file.file.imports)


def _tell_of_batches(run: Plan, file: FilePlan, cls: Class, function: AnyFunction) -> None:
    """Until 0.12 vLLM batched the items of a request in one of two ways; the older one is gone."""
    if _joins_items(run, cls) or _FLAG not in _ever(run, cls):
        return
    file.find(
        RULE,
        function,
        Severity.WARNING,
        f"{cls.node.name} was given its items as tensors with a dimension for each of them; vLLM "
        f"{run.target.version} joins the items as the field configuration of the processor says",
        "Take flatten_bn, and whatever else expects that further dimension, out of how it reads its keyword arguments.",
        covers=contracts.head(function),
    )


def _joins_items(run: Plan, cls: Class) -> bool:
    """Whether the class asked for the newer way, or extends a class of vLLM's that does the asking."""
    for here in run.project.bases(cls):
        for statement in here.node.body:
            targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
            if any(isinstance(t, ast.Name) and t.id == _FLAG for t in targets):
                value = getattr(statement, "value", None)
                return isinstance(value, ast.Constant) and value.value is True
    return any(not base.startswith(contracts.INTERFACES) for base in contracts.contracts(run, cls))


def _ever(run: Plan, cls: Class) -> frozenset[str]:
    """What the vLLM classes that it extends had in any release before the target."""
    found = (api.members(name) for base in contracts.contracts(run, cls) for api, name in contracts.before(run, base))
    return frozenset().union(*found)


RULE = Rule(
    code="VA610",
    name="embedding-methods",
    summary="get_multimodal_embeddings and get_input_embeddings are called embed_multimodal and embed_input_ids.",
    why=(
        "vLLM 0.11.1 renamed the two methods, and since 0.13 calls them by their new names only. A definition is "
        "renamed where vLLM calls it: in classes that extend one of its interfaces, and in models that it builds. A "
        "call is renamed where it is known what it reaches. The method that transformers has under one of the old "
        "names takes no argument, and stays."
    ),
    follows="vLLM 0.11.1 (renamed), 0.13.0 (old names no longer called)",
    names=_OLD,
    plan=plan,
    examples=(
        Example(before=_BEFORE, after=_AFTER, source="0.11.0"),
        Example(before=_UNKNOWN, after=_UNKNOWN, source="0.11.0", refused=True),
    ),
)

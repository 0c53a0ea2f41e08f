"""VA611: embeddings of images are merged into those of the text by a mask, and best by the model's interface."""

from __future__ import annotations

import ast

from codemods import edits as E
from codemods import import_moves
from codemods import vllm_contracts as contracts
from codemods.findings import Severity
from codemods.merged_embeddings import (
    EMBED,
    MASK,
    MERGE,
    MERGE_BY_MASK,
    UTILS,
    Override,
    arguments,
    flag,
    handed_on,
    may_go,
    merges,
    overrides,
)
from codemods.parsed_file import keyword, loads, parameters, self_attribute
from codemods.plan import FilePlan, Plan
from codemods.rule import Example, Rule

_HEAD = """\
import torch
from torch import nn
from vllm.model_executor.models.interfaces import SupportsMultiModal
from vllm.model_executor.models.qwen2 import Qwen2ForCausalLM
from vllm.model_executor.models.utils import merge_multimodal_embeddings


class CaptionModel(nn.Module, SupportsMultiModal):
    def __init__(self, *, vllm_config, prefix: str = "") -> None:
        super().__init__()
        self.config = vllm_config.model_config.hf_config
        self.language_model = Qwen2ForCausalLM(vllm_config=vllm_config, prefix=prefix)

    def get_language_model(self) -> nn.Module:
        return self.language_model
"""

_STANDARD = (
    _HEAD
    + """
    def get_input_embeddings(self, input_ids, multimodal_embeddings=None):
        inputs_embeds = self.language_model.get_input_embeddings(input_ids)
        if multimodal_embeddings is not None and len(multimodal_embeddings) != 0:
            inputs_embeds = merge_multimodal_embeddings(
                input_ids, inputs_embeds, multimodal_embeddings, self.config.image_token_id
            )
        return inputs_embeds
"""
)

_STANDARD_AFTER = _HEAD.replace("from vllm.model_executor.models.utils import merge_multimodal_embeddings\n", "")

_OWN = (
    _HEAD
    + """
    def get_input_embeddings(self, input_ids, multimodal_embeddings=None):
        embeds = self.language_model.get_input_embeddings(input_ids)
        if multimodal_embeddings is None:
            return embeds
        self.places = input_ids == self.config.image_token_id
        return merge_multimodal_embeddings(input_ids, embeds, multimodal_embeddings, self.config.image_token_id)
"""
)

_OWN_AFTER = """\
import torch
from torch import nn
from vllm.model_executor.models.interfaces import SupportsMultiModal
from vllm.model_executor.models.qwen2 import Qwen2ForCausalLM
from vllm.model_executor.models.utils import _merge_multimodal_embeddings


class CaptionModel(nn.Module, SupportsMultiModal):
    def __init__(self, *, vllm_config, prefix: str = "") -> None:
        super().__init__()
        self.config = vllm_config.model_config.hf_config
        self.language_model = Qwen2ForCausalLM(vllm_config=vllm_config, prefix=prefix)

    def get_language_model(self) -> nn.Module:
        return self.language_model

    def embed_input_ids(self, input_ids, multimodal_embeddings=None, is_multimodal: torch.Tensor | None = None):
        embeds = self.language_model.embed_input_ids(input_ids)
        if multimodal_embeddings is None:
            return embeds
        self.places = input_ids == self.config.image_token_id
        return _merge_multimodal_embeddings(embeds, multimodal_embeddings, is_multimodal=torch.isin(input_ids, torch.as_tensor(self.config.image_token_id, device=input_ids.device)))
"""  # noqa: E501  the rewritten call stays on its line

_HANDED_ON = """\
from vllm.model_executor.models.utils import merge_multimodal_embeddings


def merged(*tensors):
    return merge_multimodal_embeddings(*tensors, placeholder_token_id=7)
"""

_OLD_FLAG = "handle_oov_mm_token"


def plan(run: Plan) -> None:
    gone = run.api.has(UTILS, MERGE) is False and UTILS not in run.project.by_module
    for file in run.open_files:
        for override in overrides(run, file):
            own = merges(run, file, override.function)
            if gone and len(own) == 1 and may_go(run, file, override) and _leave_to_interface(run, file, override, own):
                continue
            _take_arguments(run, file, override)
        if gone:
            for call in merges(run, file):
                if not file.gone(call):
                    _merge_by_mask(run, file, call)


# -- the interface's own method ----------------------------------------------------------------------------------------


def _leave_to_interface(run: Plan, file: FilePlan, override: Override, own: list[ast.Call]) -> bool:
    """Take a method out that does what the interface does; calls of it must then say where the images go."""
    ids = (arguments(own[0]) or {})["placeholder_token_id"]
    calls = _merging_calls(run, override)
    if calls and not _reads_alike_everywhere(override, ids):
        return False
    if not all(_knows_torch(f) and call.args and not isinstance(call.args[0], ast.Starred) for f, call in calls):
        return False
    for other, call in calls:
        value = _mask(other, call.args[0], file.file.written(ids))
        other.rewrite(
            RULE,
            call,
            f"{EMBED.new} is told where the images go",
            [E.SetArgument(E.Ref.of(call), MASK, MASK, value)],
        )
        other.inserted.append((E.Ref.of(call), value))
    name = override.function.name
    message = f"{name} goes: SupportsMultiModal of vLLM {run.target.version} does the same"
    file.rewrite(RULE, override.function, message, [E.ReplaceStatement(E.Ref.of(override.function), "")])
    return True


def _merging_calls(run: Plan, override: Override) -> list[tuple[FilePlan, ast.Call]]:
    """Calls of the method, on self in its class and its subclasses, that pass something to merge, but not where."""
    found: list[tuple[FilePlan, ast.Call]] = []
    for cls in [override.cls, *run.project.subclasses.get(override.cls.qualified, [])]:
        file = run.of(cls.file)
        for node in cls.file.below(cls.node):
            if (
                isinstance(node, ast.Call)
                and self_attribute(node.func) in (EMBED.old, EMBED.new)
                and len(node.args) + len(node.keywords) > 1
                and keyword(node, MASK) is None
            ):
                found.append((file, node))
    return found


def _reads_alike_everywhere(override: Override, ids: ast.expr) -> bool:
    """Whether an expression means in every method what it means in this one."""
    function = override.function
    return all(name == "self" or not any(b is function for b in _scopes_of(override, name)) for name in loads(ids))


def _scopes_of(override: Override, name: str) -> list[ast.AST]:
    file = override.cls.file
    bound = file.bound(name, override.function.body[0])
    return [file.scope(b) if not isinstance(b, ast.arg) else override.function for b in bound if isinstance(b, ast.AST)]


# -- the method that stays ---------------------------------------------------------------------------------------------


def _take_arguments(run: Plan, file: FilePlan, override: Override) -> None:
    """Let a method take what vLLM passes to it, and nothing that the interface no longer has."""
    ref = E.Ref.of(override.function)
    for name in override.missing:
        mask = name == MASK
        kind = ("torch.Tensor | None" if _knows_torch(file) else "object") if mask else "bool"
        file.rewrite(
            RULE,
            override.function,
            f"{EMBED.new} of {override.cls.node.name} takes {name}",
            [E.AddParameter(ref, name, kind, "None" if mask else "False")],
        )
    own = {p.arg for p in parameters(override.function)}
    if _OLD_FLAG in own and _OLD_FLAG not in override.interface:
        _drop_flag(run, file, override)


def _drop_flag(run: Plan, file: FilePlan, override: Override) -> None:
    words = handed_on(override, _OLD_FLAG)
    if words == []:
        return  # nothing reads it, and nobody passes it
    name = override.cls.node.name
    remedy = (
        f"If tokens of images are beyond the vocabulary of the language model, call self.configure_mm_token_handling("
        f"vocab_size, [their ids]) in the constructor of {name}."
    )
    if words is None:
        file.find(
            RULE,
            override.function,
            Severity.WARNING,
            f"{EMBED.new} of {name} reads {_OLD_FLAG}, which vLLM {run.target.version} does not pass",
            remedy,
            covers=contracts.head(override.function),
        )
        return
    if flag(override, _OLD_FLAG) is not False:
        file.find(
            RULE,
            override.function,
            Severity.WARNING,
            f"{name} asks by {_OLD_FLAG} for tokens beyond the vocabulary to be left out, which the constructor has to "
            f"ask for in vLLM {run.target.version}",
            remedy,
            covers=contracts.head(override.function),
        )
    file.rewrite(
        RULE,
        override.function,
        f"{EMBED.new} has no {_OLD_FLAG} in vLLM {run.target.version}",
        [E.RemoveParameter(E.Ref.of(override.function), _OLD_FLAG)],
    )
    for word in words:
        call = file.file.parents[word]
        assert isinstance(call, ast.Call)
        file.remove_argument(call, _OLD_FLAG)


# -- merging -----------------------------------------------------------------------------------------------------------


def _merge_by_mask(run: Plan, file: FilePlan, call: ast.Call) -> None:
    given = arguments(call)
    if given is None or not _knows_torch(file) or not run.api.has(UTILS, MERGE_BY_MASK):
        file.find(
            RULE,
            call,
            Severity.ERROR,
            f"{MERGE} is not in vLLM {run.target.version}",
            f"Call {UTILS}.{MERGE_BY_MASK}(inputs_embeds, multimodal_embeddings, is_multimodal=mask): the mask is what "
            "vLLM passes to embed_input_ids, or torch.isin of the ids and those of the placeholders.",
            covers=call,
        )
        return
    ref = E.Ref.of(call)
    value = _mask(file, given["input_ids"], file.file.written(given["placeholder_token_id"]))
    places = {id(a): index for index, a in enumerate(call.args)}
    edits: list[E.Edit] = [
        E.ReplaceExpression(E.Ref.of(call.func), MERGE_BY_MASK),
        *import_moves.bring(run, file, UTILS, MERGE_BY_MASK),
    ]
    for name, new in (("input_ids", None), ("placeholder_token_id", MASK)):
        place = places.get(id(given[name]), name)
        edits.append(E.RemoveArgument(ref, place) if new is None else E.SetArgument(ref, place, new, value))
    file.rewrite(RULE, call, f"{MERGE} becomes {MERGE_BY_MASK}, which takes a mask", edits)
    file.inserted.append((ref, value))


def _mask(file: FilePlan, input_ids: ast.expr, ids: str) -> str:
    """Which of the ids are placeholders, whether there is one kind of them or several."""
    text = file.file.written(input_ids)
    return f"torch.isin({text}, torch.as_tensor({ids}, device={text}.device))"


def _knows_torch(file: FilePlan) -> bool:
    return any(i.alias == "torch" and i.qualified == "torch" and i.scope is file.file.tree for i in file.file.imports)


RULE = Rule(
    code="VA611",
    name="merged-embeddings",
    summary="Embeddings are merged by a mask; a method that does only what its interface does is left to that.",
    why=(
        "merge_multimodal_embeddings, which found the places of images by the ids of their tokens, is gone after vLLM "
        "0.11.2. vLLM passes a mask to embed_input_ids instead, and SupportsMultiModal has a method that does the "
        "usual: embed the text, merge what is given. A method that does no more is taken out where get_language_model "
        "returns the model that it asked. One that does more keeps its text, takes the new argument, and merges at "
        "the same places as before."
    ),
    follows="vLLM 0.11.1 (is_multimodal), 0.12.0 (merge_multimodal_embeddings), 0.18.0 (handle_oov_mm_token)",
    names=frozenset({MERGE}),
    plan=plan,
    examples=(
        Example(before=_STANDARD, after=_STANDARD_AFTER, source="0.11.0"),
        Example(before=_OWN, after=_OWN_AFTER, source="0.11.0"),
        Example(before=_HANDED_ON, after=_HANDED_ON, source="0.11.0", refused=True),
    ),
)

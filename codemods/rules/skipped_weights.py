"""VA615: weights that AutoWeightsLoader was told to skip are mapped to nothing instead."""

from __future__ import annotations

import ast

from codemods import edits as E
from codemods import import_moves
from codemods import vllm_contracts as contracts
from codemods.findings import Severity
from codemods.parsed_file import keyword, self_attribute
from codemods.plan import FilePlan, Plan
from codemods.project import Class
from codemods.rule import Example, Rule

_UTILS = "vllm.model_executor.models.utils"
_LOADER, _MAPPER = "AutoWeightsLoader", "WeightsMapper"
_SKIPS = {"skip_prefixes": "orig_to_new_prefix", "skip_substrs": "orig_to_new_substr"}

_BEFORE = """\
from torch import nn
from vllm.model_executor.models.utils import AutoWeightsLoader, WeightsMapper


class CaptionModel(nn.Module):
    def load_weights(self, weights):
        loader = AutoWeightsLoader(self, skip_prefixes=["talker.", "code2wav."])
        return loader.load_weights(weights)


class TiedModel(nn.Module):
    hf_to_vllm_mapper = WeightsMapper(orig_to_new_prefix={"model.text.": "text."})

    def load_weights(self, weights):
        skipped = ["text.lm_head."] if self.tied else None
        loader = AutoWeightsLoader(self, skip_prefixes=skipped)
        return loader.load_weights(weights, mapper=self.hf_to_vllm_mapper)
"""

_AFTER = """\
from torch import nn
from vllm.model_executor.models.utils import AutoWeightsLoader, WeightsMapper


class CaptionModel(nn.Module):
    def load_weights(self, weights):
        loader = AutoWeightsLoader(self)
        return loader.load_weights(weights, mapper=WeightsMapper(orig_to_new_prefix={"talker.": None, "code2wav.": None}))


class TiedModel(nn.Module):
    hf_to_vllm_mapper = WeightsMapper(orig_to_new_prefix={"model.text.": "text."})

    def load_weights(self, weights):
        skipped = ["text.lm_head."] if self.tied else None
        loader = AutoWeightsLoader(self)
        return loader.load_weights(self.hf_to_vllm_mapper.apply(weights), mapper=WeightsMapper(orig_to_new_prefix=dict.fromkeys(skipped or ())))
"""  # noqa: E501  the rewritten call stays on its line

_MAPPED = """\
from torch import nn
from vllm.model_executor.models.utils import AutoWeightsLoader


class CaptionModel(nn.Module):
    def load_weights(self, weights):
        loader = AutoWeightsLoader(self, skip_substrs=["lora"])
        return loader.load_weights(weights, mapper=make_mapper())
"""


def plan(run: Plan) -> None:
    signature = run.api.signature(f"{_UTILS}.{_LOADER}")
    if signature is None or not run.api.has(_UTILS, _MAPPER) or _UTILS in run.project.by_module:
        return
    gone = [name for name in _SKIPS if name not in signature]
    for file in run.open_files:
        if not gone or not any(i.name == _LOADER for i in file.file.imports):
            continue
        for call in file.file.nodes[ast.Call]:
            assert isinstance(call, ast.Call)
            given = [k for k in call.keywords if k.arg in gone]
            if given and run.project.vllm(file.file, call.func) == f"{_UTILS}.{_LOADER}" and not file.gone(call):
                _plan_loader(run, file, call, given)


def _plan_loader(run: Plan, file: FilePlan, call: ast.Call, given: list[ast.keyword]) -> None:
    loads = _loads(file, call)
    entries = ", ".join(f"{_SKIPS[str(word.arg)]}={_mapped(file, word.value)}" for word in given)
    mapper = f"{_MAPPER}({entries})"
    before = keyword(loads, "mapper") if loads is not None else None
    maps = before is None or _is_mapper(run, file, before)
    if loads is None or not maps or any(k.arg is None for k in loads.keywords):
        names = " and ".join(f"{word.arg}=" for word in given)
        file.find(
            RULE,
            call,
            Severity.ERROR,
            f"{_LOADER} takes no {names} in vLLM {run.target.version}",
            f"Pass mapper={mapper} to load_weights: what maps to None is skipped. A mapper that it has goes first, by "
            "mapper.apply(weights).",
        )
        return
    message = f"{_LOADER} takes no {', '.join(str(word.arg) for word in given)} in vLLM {run.target.version}"
    edits: list[E.Edit] = [
        E.SetArgument(E.Ref.of(loads), "mapper", "mapper", mapper),
        *import_moves.bring(run, file, _UTILS, _MAPPER),
    ]
    if before is not None:
        weights = loads.args[0]
        edits.append(
            E.ReplaceExpression(E.Ref.of(weights), f"{file.file.written(before)}.apply({file.file.written(weights)})")
        )
    file.rewrite(RULE, call, message, edits)
    file.inserted.append((E.Ref.of(loads), mapper))
    for word in given:
        file.remove_argument(call, str(word.arg))


def _loads(file: FilePlan, call: ast.Call) -> ast.Call | None:
    """The one call that loads by a loader: right behind it, or on the name that it is given in this function."""
    above = file.file.parents[call]
    if isinstance(above, ast.Attribute):
        return _load_call(file, above)
    function = file.file.function(call)
    if not isinstance(above, ast.Assign) or len(above.targets) != 1 or function is None:
        return None
    name = above.targets[0]
    if not isinstance(name, ast.Name) or file.file.bound(name.id, call) != [name]:
        return None
    reads = [n for n in file.file.reads.get(name.id, ()) if file.file.bound(name.id, n) == [name]]
    step = file.file.parents[reads[0]] if len(reads) == 1 else None
    return _load_call(file, step) if isinstance(step, ast.Attribute) else None


def _load_call(file: FilePlan, attribute: ast.Attribute) -> ast.Call | None:
    call = file.file.parents[attribute]
    if attribute.attr == "load_weights" and isinstance(call, ast.Call) and call.func is attribute:
        bare = (ast.Starred, ast.GeneratorExp)  # a generator needs parentheses beside another argument
        return call if len(call.args) == 1 and not isinstance(call.args[0], bare) else None
    return None


def _is_mapper(run: Plan, file: FilePlan, value: ast.expr) -> bool:
    """Whether an expression is certainly a mapper: an attribute that the class, or a class of vLLM's above it, has."""
    name, owner = self_attribute(value), file.file.class_of(value)
    if name is None or owner is None:
        return False
    cls = Class(file.file, owner)
    for here in run.project.bases(cls):
        for statement in here.node.body:
            if isinstance(statement, ast.Assign) and [getattr(t, "id", None) for t in statement.targets] == [name]:
                made = statement.value
                return isinstance(made, ast.Call) and run.project.vllm(here.file, made.func) == f"{_UTILS}.{_MAPPER}"
    models = [b for b in contracts.heritage(run, cls).bases if not b.startswith(contracts.INTERFACES)]
    return any(name in contracts.members(run, base) for base in models)


def _mapped(file: FilePlan, value: ast.expr) -> str:
    """What a list of names to skip is as a mapping to None."""
    if isinstance(value, (ast.List, ast.Tuple)) and all(isinstance(e, ast.Constant) for e in value.elts):
        return "{" + ", ".join(f"{file.file.written(e)}: None" for e in value.elts) + "}"
    text = file.file.written(value)
    bare = not isinstance(value, (ast.Name, ast.Attribute)) and not text.startswith("(")
    return f"dict.fromkeys({f'({text})' if bare else text} or ())"


RULE = Rule(
    code="VA615",
    name="skipped-weights",
    summary="AutoWeightsLoader skips weights that its mapper maps to None, not by skip_prefixes and skip_substrs.",
    why=(
        "vLLM 0.29 took skip_prefixes and skip_substrs out of AutoWeightsLoader. A WeightsMapper that maps a prefix or "
        "a part of a name to None has the same weights skipped. A mapper that load_weights is given already is applied "
        "to the weights before, as it was; where it is not certain to be one, the call is reported."
    ),
    follows="vLLM 0.29.0 (skip_prefixes and skip_substrs removed)",
    names=frozenset({"skip_prefixes", "skip_substrs"}),
    plan=plan,
    examples=(
        Example(before=_BEFORE, after=_AFTER),
        Example(before=_MAPPED, after=_MAPPED, refused=True),
    ),
)

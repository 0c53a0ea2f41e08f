"""VA616: compute_logits is called with the hidden states alone."""

from __future__ import annotations

import ast

from codemods import edits as E
from codemods import vllm_contracts as contracts
from codemods.findings import Severity
from codemods.parsed_file import default_of, parameters
from codemods.plan import FilePlan, Plan
from codemods.project import AnyFunction, Class
from codemods.rule import Example, Rule

_BEFORE = """\
from torch import nn
from vllm.model_executor.layers.logits_processor import LogitsProcessor
from vllm.model_executor.models.interfaces import SupportsMultiModal
from vllm.model_executor.sampling_metadata import SamplingMetadata


class CaptionModel(nn.Module, SupportsMultiModal):
    def __init__(self, config) -> None:
        super().__init__()
        self.logits_processor = LogitsProcessor(config.vocab_size)

    def compute_logits(self, hidden_states, sampling_metadata: SamplingMetadata):
        return self.logits_processor(self.lm_head, hidden_states, sampling_metadata)
"""

_AFTER = """\
from torch import nn
from vllm.model_executor.layers.logits_processor import LogitsProcessor
from vllm.model_executor.models.interfaces import SupportsMultiModal


class CaptionModel(nn.Module, SupportsMultiModal):
    def __init__(self, config) -> None:
        super().__init__()
        self.logits_processor = LogitsProcessor(config.vocab_size)

    def compute_logits(self, hidden_states):
        return self.logits_processor(self.lm_head, hidden_states)
"""

_READ = """\
from torch import nn
from vllm.model_executor.models.interfaces import SupportsMultiModal


class CaptionModel(nn.Module, SupportsMultiModal):
    def compute_logits(self, hidden_states, sampling_metadata):
        return self.language_model.compute_logits(hidden_states[sampling_metadata.selected_token_indices])
"""

_METHOD, _OLD = "compute_logits", "sampling_metadata"
_TEXT_MODEL = f"{contracts.INTERFACES}_base.VllmModelForTextGeneration"
_PROCESSOR = "vllm.model_executor.layers.logits_processor.LogitsProcessor"


def plan(run: Plan) -> None:
    signature = contracts.signature(run, _TEXT_MODEL, _METHOD)
    if signature is None or _OLD in signature:
        return
    for file in run.open_files:
        for node in file.file.class_nodes:
            function = Class(file.file, node).own(_METHOD)
            if function is not None and not file.gone(function) and _is_model(run, Class(file.file, node)):
                _plan_method(run, file, function)


def _is_model(run: Plan, cls: Class) -> bool:
    constructor = run.project.method(cls, "__init__")
    return bool(contracts.contracts(run, cls)) or (constructor is not None and "vllm_config" in constructor.parameters)


def _plan_method(run: Plan, file: FilePlan, function: AnyFunction) -> None:
    parameter = next((p for p in parameters(function)[2:] if p.arg == _OLD), None)
    if parameter is None or default_of(function, parameter) is not None:
        return
    passed = _passed_on(run, file, function)
    if passed is None:
        file.find(
            RULE,
            function,
            Severity.ERROR,
            f"vLLM {run.target.version} calls {_METHOD} with hidden_states alone, and this one reads {_OLD}",
            "Take the parameter out: hidden_states holds the rows to compute logits for, and no others.",
            covers=contracts.head(function),
        )
        return
    message = f"{_METHOD} takes hidden_states alone"
    file.rewrite(RULE, function, message, [E.RemoveParameter(E.Ref.of(function), _OLD)])
    if parameter.annotation is not None:
        file.removed.append(E.Ref.of(parameter.annotation))
    for call, place in passed:
        file.add(E.RemoveArgument(E.Ref.of(call), place))
        value = call.args[place] if isinstance(place, int) else next(k.value for k in call.keywords if k.arg == place)
        file.removed.append(E.Ref.of(value))


def _passed_on(run: Plan, file: FilePlan, function: AnyFunction) -> list[tuple[ast.Call, int | str]] | None:
    """The calls that a method passes its parameter to, and where; None if it does anything else with it."""
    found: list[tuple[ast.Call, int | str]] = []
    for read in file.file.below(function):
        if not isinstance(read, ast.Name) or read.id != _OLD:
            continue
        above = file.file.parents[read]
        call = file.file.parents[above] if isinstance(above, ast.keyword) else above
        if not isinstance(call, ast.Call) or not _drops_it(run, file, call):
            return None
        if isinstance(above, ast.keyword):
            found.append((call, str(above.arg)))
        elif read in call.args:
            found.append((call, call.args.index(read)))
        else:
            return None
    return found


def _drops_it(run: Plan, file: FilePlan, call: ast.Call) -> bool:
    """Whether what is called takes the argument no longer: compute_logits of a model, or a LogitsProcessor."""
    if isinstance(call.func, ast.Attribute) and call.func.attr == _METHOD:
        return True
    makers = run.project.makers(file.file, call.func)
    return bool(makers) and all(run.project.vllm(home, made.func) == _PROCESSOR for home, made in makers)


RULE = Rule(
    code="VA616",
    name="sampling-metadata",
    summary="compute_logits, and what it passes on to, go without sampling_metadata.",
    why=(
        "vLLM 0.11 calls compute_logits with the hidden states alone, and LogitsProcessor takes a bias where the "
        "metadata stood: a call that still passes it computes something else. The parameter goes where it is only "
        "passed on to a LogitsProcessor or to another compute_logits; a method that reads it is reported."
    ),
    follows="vLLM 0.11.0 (sampling_metadata removed from compute_logits and LogitsProcessor)",
    names=frozenset({_OLD}),
    plan=plan,
    examples=(
        Example(before=_BEFORE, after=_AFTER, source="0.10.2"),
        Example(before=_READ, after=_READ, source="0.10.2", refused=True),
    ),
)

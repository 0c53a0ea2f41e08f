"""VA402: at 0.13 and 0.14 the backend override travels as the multimodal configuration it is read from."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from codemods import edits as E
from codemods.findings import Severity
from codemods.parsed_file import default_of, keyword, parameters, self_attribute
from codemods.plan import FilePlan, Plan
from codemods.project import AnyFunction, Function
from codemods.rule import Example, Rule
from codemods.rules.model_class_arguments import decide
from codemods.rules.tower_backend import tell_of_forced
from codemods.vision_attention import vocabulary as V
from codemods.vision_attention.attention_class import AttentionClass
from codemods.vllm_classes import built_by

_CONFIG = "multimodal_config"
_OVERRIDE_OF = "{0}.mm_encoder_attn_backend if {0} is not None else None"

_BEFORE = """\
import torch
from torch import nn
from vllm.attention.backends.registry import AttentionBackendEnum
from vllm.config import VllmConfig
from vllm.model_executor.models.vision import get_vit_attn_backend


class Tower(nn.Module):
    def __init__(self, head_dim: int, attn_backend_override: AttentionBackendEnum | None = None) -> None:
        super().__init__()
        self.attn_backend = get_vit_attn_backend(
            head_size=head_dim,
            dtype=torch.get_default_dtype(),
            attn_backend_override=attn_backend_override,
        )


class Model(nn.Module):
    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__()
        multimodal_config = vllm_config.model_config.multimodal_config
        attn_backend_override = multimodal_config.mm_encoder_attn_backend if multimodal_config is not None else None
        self.visual = Tower(64, attn_backend_override=attn_backend_override)
"""

_AFTER = """\
import torch
from torch import nn
from vllm.config import MultiModalConfig, VllmConfig
from vllm.model_executor.models.vision import get_vit_attn_backend


class Tower(nn.Module):
    def __init__(self, head_dim: int, multimodal_config: MultiModalConfig | None = None) -> None:
        super().__init__()
        self.attn_backend = get_vit_attn_backend(
            head_size=head_dim,
            dtype=torch.get_default_dtype(),
            attn_backend_override=(@OVERRIDE@),
        )


class Model(nn.Module):
    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__()
        multimodal_config = vllm_config.model_config.multimodal_config
        self.visual = Tower(64, multimodal_config=multimodal_config)
""".replace("@OVERRIDE@", _OVERRIDE_OF.format(_CONFIG))


@dataclass(frozen=True)
class _Carrier:
    """A function whose override parameter becomes the configuration."""

    file: FilePlan
    node: AnyFunction
    name: str  # of the parameter that carries the override
    choices: tuple[str, ...]  # of parameters that carry a backend which was chosen outside
    has_config: bool  # it has a multimodal_config parameter already


def plan(run: Plan) -> None:
    if not run.target.takes_multimodal_config:
        return
    carriers = _carriers(run)
    for carrier in carriers.values():
        _rename(run, carrier, carriers)
    for file, call, reached in run.calls():
        if reached is not None and id(reached.node) in carriers and not file.read_only:
            given = reached.passed(call) or {}
            name = _carrying(given, carriers[id(reached.node)])
            if name is not None:
                _pass_config(run, file, call, reached, name, carriers)
        elif reached is not None and not file.read_only and _swallows(run, reached, call, carriers):
            file.find(
                RULE,
                call,
                Severity.ERROR,
                "the backend override goes through ** to a constructor that now takes multimodal_config",
                "Pass multimodal_config=multimodal_config here.",
            )


def _swallows(run: Plan, reached: Function, call: ast.Call, carriers: dict[int, _Carrier]) -> bool:
    """Whether a call passes the override by keyword to a function that hands its keywords on to a carrier."""
    if reached.node.args.kwarg is None:
        return False
    return any(
        isinstance(n, ast.Call)
        and (r := run.reached(n)) is not None
        and id(r.node) in carriers
        and keyword(call, carriers[id(r.node)].name) is not None
        for n in reached.file.below(reached.node)
    )


def _carriers(run: Plan) -> dict[int, _Carrier]:
    """Functions whose override reaches an attention class or a backend look-up, directly or handed on."""
    found: dict[int, _Carrier] = {}

    def add(file: FilePlan, node: AnyFunction, name: str) -> bool:
        names = {a.arg for a in parameters(node)}
        if id(node) in found or name not in names or file.read_only or run.blocked(file) is not None:
            return False
        choices = run.backend(file.file, node).parameters - {name, "use_upstream_fa"} if node.name == "__init__" else ()
        found[id(node)] = _Carrier(file, node, name, tuple(sorted(choices)), _CONFIG in names)
        return True

    for file in run.open_vision:
        for cls in run.attention(file):
            if isinstance(cls, AttentionClass) and cls.override is not None:
                add(file, cls.constructor, cls.override)
        for call in file.file.nodes[ast.Call]:
            assert isinstance(call, ast.Call)
            value, function = keyword(call, V.OVERRIDE), file.file.function(call)
            if isinstance(value, ast.Name) and function is not None and not file.gone(call):
                if V.vllm_call(run.project, file.file, call, V.GET_BACKEND) or _is_told_config(run, file, call):
                    add(file, function, value.id)
    changed = True
    while changed:
        changed = False
        for file, call, reached in run.calls():
            function = file.file.function(call)
            if reached is not None and id(reached.node) in found and function is not None:
                given = reached.passed(call) or {}
                name = _carrying(given, found[id(reached.node)])
                value = given[name] if name is not None else None
                if isinstance(value, ast.Name):
                    changed |= add(file, function, value.id)
    return found


def _is_told_config(run: Plan, file: FilePlan, call: ast.Call) -> bool:
    """Whether VA640 gives one of vLLM's own classes the configuration where this call gives it the override."""
    cls = built_by(run, file, call) if "VA640" in run.active else None
    decision = decide(run, file, call, cls) if cls is not None else None
    return decision is not None and decision.why is None and any(a.place == V.OVERRIDE for a in decision.change.gone)


def _carrying(given: dict[str, ast.expr], carrier: _Carrier) -> str | None:
    """The argument of a call that brings a carrier its backend: the override, or else the tower's own choice, in which
    the override is contained."""
    return next((name for name in (carrier.name, *carrier.choices) if name in given), None)


def _rename(run: Plan, carrier: _Carrier, carriers: dict[int, _Carrier]) -> None:
    file, node = carrier.file, carrier.node
    parameter = next(a for a in parameters(node) if a.arg == carrier.name)
    owner = file.file.class_of(node)
    name = f"{owner.name}.{node.name}" if owner is not None else node.name
    if carrier.has_config:
        file.rewrite(
            RULE,
            parameter,
            f"{name}: multimodal_config says what {carrier.name} said",
            [E.RemoveParameter(E.Ref.of(node), carrier.name)],
        )
    elif run.keep_params:
        file.rewrite(
            RULE,
            parameter,
            f"{name}: multimodal_config is new; {carrier.name} is accepted and ignored",
            [
                E.AddParameter(E.Ref.of(node), _CONFIG, "MultiModalConfig | None", "None"),
                E.AddImport("vllm.config", "MultiModalConfig"),
            ],
        )
    else:
        optional = any(i.qualified == "typing.Optional" for i in file.file.imports) and "Optional" in (
            ast.unparse(parameter.annotation) if parameter.annotation else ""
        )
        default = "None" if default_of(node, parameter) is not None else None
        annotation = "Optional[MultiModalConfig]" if optional else "MultiModalConfig | None"
        file.rewrite(
            RULE,
            parameter,
            f"{name}: {carrier.name} becomes multimodal_config, in the same place",
            [
                E.SetParameter(E.Ref.of(node), carrier.name, _CONFIG, annotation, default),
                E.AddImport("vllm.config", "MultiModalConfig"),
            ],
        )
    file.rewritten.append(E.Ref.of(parameter))
    if not run.keep_params:
        file.removed.append(E.Ref.of(parameter))
    run.settled.add((file.file.module, node.lineno, carrier.name))
    for use in ast.walk(node):
        if (
            isinstance(use, ast.Name)
            and use.id == carrier.name
            and isinstance(use.ctx, ast.Load)
            and not file.gone(use)
            and not _handed_on(run, file, use, carriers)
        ):
            call = file.file.parents[file.file.parents[use]]
            if isinstance(call, ast.Call):
                tell_of_forced(run, file, RULE, call, use)
            file.rewrite(
                RULE,
                use,
                "the override is read from multimodal_config",
                [E.ReplaceExpression(E.Ref.of(use), _OVERRIDE_OF.format(_CONFIG))],
            )


def _handed_on(run: Plan, file: FilePlan, use: ast.Name, carriers: dict[int, _Carrier]) -> bool:
    """The use is an argument of a call of another carrier, which `_pass_config` rewrites, or of vLLM's own class."""
    above = file.file.parents[use]
    call = file.file.parents[above] if isinstance(above, ast.keyword) else above
    if not isinstance(call, ast.Call):
        return False
    reached = run.reached(call)
    return (reached is not None and id(reached.node) in carriers) or _is_told_config(run, file, call)


def _pass_config(
    run: Plan, file: FilePlan, call: ast.Call, reached: Function, name: str, carriers: dict[int, _Carrier]
) -> None:
    given = reached.passed(call) or {}
    value = given[name]
    config = _config_behind(run, file, call, value, carriers)
    by_keyword = keyword(call, name) is not None
    carrier = carriers[id(reached.node)]
    if (
        config is not None
        and not by_keyword
        and name == carrier.name
        and not carrier.has_config
        and not run.keep_params
    ):
        message = f"multimodal_config is passed in place of {name}"
        file.rewrite(RULE, call, message, [E.ReplaceExpression(E.Ref.of(value), config)])
        return
    if config is None or not by_keyword:
        nothing = isinstance(value, ast.Constant) and value.value is None
        if by_keyword:
            file.remove_argument(call, name)
        else:
            file.add(E.RemoveArgument(E.Ref.of(call), call.args.index(value)))
            file.removed.append(E.Ref.of(value))
        file.rewrite(RULE, call, f"{name} is no longer passed", [])
        if not nothing:
            file.find(
                RULE,
                value,
                Severity.ERROR,
                f"{ast.unparse(value)} was passed as the backend, where vLLM {run.target.version} wants the "
                f"multimodal configuration",
                "Pass multimodal_config=vllm_config.model_config.multimodal_config from the model's constructor.",
            )
        return
    if _CONFIG in given:
        file.rewrite(RULE, call, "multimodal_config is passed already", [])
        file.remove_argument(call, name)
        return
    file.rewrite(
        RULE,
        call,
        f"multimodal_config is passed instead of {name}",
        [E.SetArgument(E.Ref.of(call), name, _CONFIG, config)],
    )
    word = next(k for k in call.keywords if k.arg == name)
    file.rewritten.append(E.Ref.of(word))
    file.removed.append(E.Ref.of(value))
    file.inserted.append((E.Ref.of(file.file.statement(call)), config))


def _config_behind(
    run: Plan, file: FilePlan, call: ast.Call, value: ast.expr, carriers: dict[int, _Carrier]
) -> str | None:
    """The configuration an override was read from: `X` of `X.mm_encoder_attn_backend if X is not None else None`."""
    function = file.file.function(call)
    attribute = self_attribute(value)
    if attribute is not None and function is not None and id(function) in carriers:
        return _CONFIG if attribute in run.backend(file.file, function).names else None
    if isinstance(value, ast.Name):
        if function is not None and id(function) in carriers and carriers[id(function)].name == value.id:
            return _CONFIG
        assigned = [
            s.value
            for s in (ast.walk(function) if function is not None else ())
            if isinstance(s, ast.Assign) and any(isinstance(t, ast.Name) and t.id == value.id for t in s.targets)
        ]
        if len(assigned) != 1:
            return None
        value = assigned[0]
    found = {
        ast.unparse(n.value) for n in ast.walk(value) if isinstance(n, ast.Attribute) and n.attr == V.CONFIG_OVERRIDE
    }
    if len(found) != 1:
        return None
    config = found.pop()
    text = ast.unparse(value)
    known = ("{0}." + V.CONFIG_OVERRIDE, _OVERRIDE_OF, _OVERRIDE_OF.replace(" is not None", ""))
    return config if text in [form.format(config) for form in known] else None


RULE = Rule(
    code="VA402",
    name="backend-override",
    summary="For targets 0.13 and 0.14, attn_backend_override parameters become multimodal_config, in the same place.",
    why=(
        "MMEncoderAttention of 0.13 and 0.14 reads the override from a multimodal_config argument of its "
        "constructor; without it the "
        "option --mm-encoder-attn-backend would be ignored silently. The parameter keeps its position, so "
        "positional calls still fit."
    ),
    follows="vLLM 0.13.0, PR #30125; gone again in 0.15.0, PR #31972",
    names=frozenset({V.OVERRIDE, V.CONFIG_OVERRIDE}),
    plan=plan,
    examples=(Example(before=_BEFORE, after=_AFTER, target="0.14"),),
    unported=Severity.WARNING,
)

"""VA640: what a plugin passes to the constructors of vLLM's own vision classes follows their signatures."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from codemods import calls
from codemods import edits as E
from codemods.findings import Severity
from codemods.multimodal_config import CONFIG, DATA_PARALLEL, config_in_reach, is_config_mode
from codemods.parsed_file import keyword
from codemods.plan import FilePlan, Plan
from codemods.rebinding import Rebinding, rebinding
from codemods.rule import Example, Rule
from codemods.uses import is_look_up, is_pure
from codemods.vision_attention import vocabulary as V
from codemods.vllm_classes import (
    ModelPart,
    built_by,
    is_partial,
    may_be_imported,
    model_function,
    received,
    written_for_target,
)
from codemods.vllm_methods import is_patched, signatures_then

# What upstream's classes once were told, and now read from vLLM's configuration or leave to MMEncoderAttention.
_PLUMBING = frozenset({*V.BACKEND_PARAMETERS, CONFIG, DATA_PARALLEL})

_BEFORE = """\
import torch
from torch import nn
from vllm.attention.backends.registry import AttentionBackendEnum
from vllm.model_executor.models.qwen2_5_vl import Qwen2_5_VisionBlock
from vllm.model_executor.models.vision import get_vit_attn_backend


class Tower(nn.Module):
    def __init__(
        self,
        width: int,
        depth: int,
        use_data_parallel: bool = False,
        attn_backend_override: AttentionBackendEnum | None = None,
    ) -> None:
        super().__init__()
        attn_backend = get_vit_attn_backend(
            head_size=width // 16,
            dtype=torch.get_default_dtype(),
            attn_backend_override=attn_backend_override,
        )
        self.blocks = nn.ModuleList(
            Qwen2_5_VisionBlock(
                width,
                16,
                4 * width,
                prefix=f"blocks.{index}",
                use_data_parallel=use_data_parallel,
                attn_backend=attn_backend,
                attn_backend_override=attn_backend_override,
            )
            for index in range(depth)
        )
"""

_AFTER = """\
from torch import nn
from vllm.model_executor.models.qwen2_5_vl import Qwen2_5_VisionBlock


class Tower(nn.Module):
    def __init__(
        self,
        width: int,
        depth: int,
        use_data_parallel: bool = False,
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            Qwen2_5_VisionBlock(
                width,
                16,
                4 * width,
                prefix=f"blocks.{index}",
            )
            for index in range(depth)
        )
"""

_MISSING = """\
from torch import nn
from vllm.config import VllmConfig
from vllm.model_executor.models.glm4_1v import Glm4vVisionTransformer


class Model(nn.Module):
    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__()
        config = vllm_config.model_config.hf_config
        self.visual = Glm4vVisionTransformer(config.vision_config, norm_eps=1e-6, prefix=f"{prefix}.visual")
"""


@dataclass(frozen=True)
class Decision:
    """What is to be done about a call: `why` not to touch it, or else the change."""

    change: Rebinding
    why: str | None


def plan(run: Plan) -> None:
    for file in run.open_files:
        for call in file.file.nodes[ast.Call]:
            assert isinstance(call, ast.Call)
            part = reached(run, file, call)
            decision = decide(run, file, call, part) if part is not None else None
            if part is None or decision is None or file.gone(call) or file.answered(call):
                continue
            if decision.why is not None:
                _find(run, file, call, part, decision.why)
            else:
                _rewrite(run, file, call, part, decision.change)


def reached(run: Plan, file: FilePlan, call: ast.Call) -> ModelPart | None:
    """The class of vLLM's models that a call builds, or the function that builds one and is told what classes are."""
    part = built_by(run, file, call)
    if part is not None and is_patched(run, part, "__init__"):
        return None
    if part is not None or not may_be_imported(file.file, call.func):
        return part
    part = model_function(run, file, run.project.vllm(file.file, call.func))
    if part is None or V.last(part.name) == V.GET_BACKEND:
        return None
    signatures = [api.signature(part.name) for api in part.then]
    return part if any(name in signature for signature in signatures if signature for name in _PLUMBING) else None


def decide(run: Plan, file: FilePlan, call: ast.Call, part: ModelPart) -> Decision | None:
    """None where the call is right as it stands, or nothing is known of it."""
    now = run.api.signature(part.home)
    if now is None:
        return None
    given = calls.unpacked(file.file, received(run, file, call))
    olds = signatures_then(part, given, lambda api: api.signature(part.name))
    change = rebinding(given, olds, now, written_for_target(run, file))
    if change is None:
        why = calls.binds(now, given)
        return Decision(Rebinding(), why) if why is not None else None
    return Decision(change, _why_not_shown(run, file, call, change)) if change else None


def _why_not_shown(run: Plan, file: FilePlan, call: ast.Call, change: Rebinding) -> str | None:
    """Why the arguments without a parameter may not simply go; None if they may."""
    touched = [*change.gone, *change.named]
    if elsewhere := [a for a in touched if isinstance(a.place, str) and keyword(call, a.place) is None]:
        return f"it has no parameter '{elsewhere[0].place}', which ** brings"
    if is_partial(run, file, call) and (placed := [a for a in touched if isinstance(a.place, int)]):
        return f"'{placed[0].parameter}' has no such place, and more may be passed by position later"
    foreign = [a.parameter for a in change.gone if a.parameter not in _PLUMBING]
    if foreign:
        return f"it has no parameter '{foreign[0]}'"
    missing = [name for name in change.missing if name != CONFIG]
    if missing:
        return f"it needs '{missing[0]}'"
    for argument in change.gone:
        said = ast.unparse(argument.value)
        if argument.parameter == DATA_PARALLEL and not is_config_mode(run, file, argument.value):
            return f"it goes by --mm-encoder-tp-mode alone, not by {DATA_PARALLEL}={said}"
        if not is_pure(argument.value) and not is_look_up(run.project, file.file, argument.value):
            return f"it has no parameter '{argument.parameter}', and {said} may do more than fill it"
    return None


def _rewrite(run: Plan, file: FilePlan, call: ast.Call, part: ModelPart, change: Rebinding) -> None:
    ref = E.Ref.of(call)
    edits: list[E.Edit] = [E.SetArgument(ref, argument.place, argument.parameter) for argument in change.named]
    told = [a for a in change.gone if a.parameter != "use_upstream_fa" and not _says_nothing(a.value)]
    heir, config = None, None
    if (told or change.missing) and _takes_config(run, call, part, change):
        config = config_in_reach(run, file, call)
        if config is None:
            instead = f"takes {CONFIG} instead of {told[0].parameter}" if told else f"needs {CONFIG}"
            why = f"it {instead}, and no configuration is in reach here"
            _find(run, file, call, part, why)
            return
        heir = next((a for a in told if isinstance(a.place, str)), None)
        edits.append(E.SetArgument(ref, heir.place if heir else CONFIG, CONFIG, config))
        file.inserted.append((E.Ref.of(file.file.statement(call)), config))
    edits += [E.RemoveArgument(ref, argument.place) for argument in change.gone if argument is not heir]
    fixed = [
        a.value for a in change.gone if any(V.is_backend_enum(run.project, file.file, n) for n in ast.walk(a.value))
    ]
    review = f"{ast.unparse(fixed[0])} was asked for here; vLLM now chooses" if fixed else ""
    file.rewrite(RULE, call, _message(run, part, change, bool(config)), edits, review=review)
    file.removed += [E.Ref.of(argument.value) for argument in change.gone]
    changed = {argument.place for argument in (*change.gone, *change.named)}
    file.rewritten += [E.Ref.of(word) for word in call.keywords if word.arg in changed]


def _takes_config(run: Plan, call: ast.Call, part: ModelPart, change: Rebinding) -> bool:
    """Whether the class takes the configuration and is not given it."""
    given = {k.arg for k in call.keywords} | {a.parameter for a in change.named}
    return CONFIG in (run.api.signature(part.home) or ()) and CONFIG not in given


def _says_nothing(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value in (None, False)


def _message(run: Plan, part: ModelPart, change: Rebinding, configured: bool) -> str:
    gone = ", ".join(a.parameter for a in change.gone)
    named = ", ".join(a.parameter for a in change.named)
    if configured:
        parts = [f"takes {CONFIG} instead of {gone}" if gone else f"takes {CONFIG}"]
    else:
        parts = [f"takes no {gone} any more"] if gone else []
    parts += [f"has another place for {named}, now passed by keyword"] if named else []
    return f"{part.short} of vLLM {run.target.version} {' and '.join(parts)}"


def _find(run: Plan, file: FilePlan, call: ast.Call, part: ModelPart, why: str) -> None:
    file.find(
        RULE,
        call,
        Severity.ERROR,
        f"this call of {part.short} does not fit vLLM {run.target.version}: {why}",
        f"Its parameters are {run.api.signature(part.home)} now.",
    )


RULE = Rule(
    code="VA640",
    name="model-class-arguments",
    summary="What is passed to the constructors of vLLM's own vision classes follows their signatures.",
    why=(
        "Blocks, attentions and towers of vLLM's models were told the attention backend, whether to run data parallel, "
        "and in 0.13 and 0.14 the multimodal configuration; each came and went. Today they read it themselves, so "
        "these arguments go, by keyword or by position, and an argument whose parameter has another place is passed by "
        "keyword. At 0.13 and 0.14 the configuration is passed where one is in reach. Any other argument that does not "
        "fit is reported with the signature that the target has. A subclass without a constructor of its own, or with "
        "one that hands all on, is built as vLLM's class."
    ),
    follows="vLLM 0.12.0 (use_upstream_fa), 0.13.0 PR #30125 (multimodal_config), 0.15.0 PR #31972 (none of them)",
    names=frozenset({"vllm", *V.BACKEND_PARAMETERS}),
    plan=plan,
    examples=(
        Example(before=_BEFORE, after=_AFTER),
        Example(before=_MISSING, after=_MISSING, refused=True),
    ),
)

"""VA641: what a plugin passes to the methods of vLLM's own vision classes follows their signatures."""

from __future__ import annotations

import ast

from codemods import calls
from codemods import edits as E
from codemods.findings import Severity
from codemods.parsed_file import keyword
from codemods.plan import FilePlan, Plan
from codemods.rebinding import Rebinding, readings
from codemods.rule import Example, Rule
from codemods.uses import is_pure
from codemods.vllm_classes import written_for_target
from codemods.vllm_methods import Method, methods_called, signatures_then

# Lists of lengths that xFormers alone read. vLLM 0.12.0.
_DROPPED = frozenset({"seqlens"})

# The same thing under another name. vLLM 0.11.1.
_RENAMED = {"feature_sample_layers": "select_layers"}

# What has to be passed, and may be None: FlashInfer alone reads it. vLLM 0.17.0.
_NONE = "sequence_lengths"

# What took the place of an argument in a way that only a person can follow.
_REMEDIES = {
    "rotary_pos_emb": "Pass the cosines and sines of these angles as rotary_pos_emb_cos and rotary_pos_emb_sin, in the "
    "dtype of the hidden states.",
}

_BEFORE = """\
import torch
from torch import nn
from vllm.model_executor.models.clip import CLIPVisionModel
from vllm.model_executor.models.ernie45_vl import Ernie4_5_VisionBlock


class Tower(nn.Module):
    def __init__(self, config, depth: int) -> None:
        super().__init__()
        self.clip = CLIPVisionModel(config)
        self.blocks = nn.ModuleList(Ernie4_5_VisionBlock(64, 4, 4.0) for _ in range(depth))

    def features(self, pixels: torch.Tensor, layers: list[int]) -> torch.Tensor:
        return self.clip(pixels, feature_sample_layers=layers)

    def forward(self, x: torch.Tensor, cu_seqlens: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        seqlens = (cu_seqlens[1:] - cu_seqlens[:-1]).tolist()
        for block in self.blocks:
            x = block(x, cu_seqlens=cu_seqlens, rotary_pos_emb=angles, seqlens=seqlens)
        return x
"""

_AFTER = """\
import torch
from torch import nn
from vllm.model_executor.models.clip import CLIPVisionModel
from vllm.model_executor.models.ernie45_vl import Ernie4_5_VisionBlock


class Tower(nn.Module):
    def __init__(self, config, depth: int) -> None:
        super().__init__()
        self.clip = CLIPVisionModel(config)
        self.blocks = nn.ModuleList(Ernie4_5_VisionBlock(64, 4, 4.0) for _ in range(depth))

    def features(self, pixels: torch.Tensor, layers: list[int]) -> torch.Tensor:
        return self.clip(pixels, select_layers=layers)

    def forward(self, x: torch.Tensor, cu_seqlens: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x, cu_seqlens=cu_seqlens, rotary_pos_emb=angles)
        return x
"""

_ANGLES = """\
import torch
from torch import nn
from vllm.model_executor.models.glm4_1v import Glm4vVisionBlock


class Tower(nn.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Glm4vVisionBlock(64, 4, 256) for _ in range(depth))

    def forward(self, x: torch.Tensor, cu_seqlens: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x, cu_seqlens=cu_seqlens, rotary_pos_emb=angles)
        return x
"""


def plan(run: Plan) -> None:
    for file in run.open_files:
        for call in file.file.nodes[ast.Call]:
            assert isinstance(call, ast.Call)
            methods = [] if file.gone(call) or file.answered(call) else methods_called(run, file, call)
            if not methods:
                continue
            given = calls.unpacked(file.file, call)
            wanted = [_readings(run, file, given, method) for method in methods]
            agreed = set().union(*wanted) if all(wanted) else set()
            change = next(iter(agreed)) if len(agreed) == 1 else None
            if change:
                _plan_call(run, file, call, methods[0], change)
            elif change is None:
                _find_misfit(run, file, given, call, [(m, found) for m, found in zip(methods, wanted)])


def _readings(run: Plan, file: FilePlan, call: ast.Call, method: Method) -> set[Rebinding | None]:
    """What one of the methods may want changed; empty where nothing is known of it."""
    now = method.now(run.api)
    if now is None:
        return set()
    return readings(call, signatures_then(method.part, call, method.then), now, written_for_target(run, file), _RENAMED)


def _find_misfit(
    run: Plan, file: FilePlan, given: ast.Call, call: ast.Call, wanted: list[tuple[Method, set[Rebinding | None]]]
) -> None:
    """Report a call that one of the methods that it may reach does not take, whatever was meant."""
    for method, changes in wanted:
        now = method.now(run.api)
        why = calls.binds(now, given) if now is not None else None
        if why is None and len(changes) > 1 and all(changes):
            why = "what it passes by position comes to other parameters"
        if why is not None:
            _find(run, file, call, method, why)
            return


def _plan_call(run: Plan, file: FilePlan, call: ast.Call, method: Method, change: Rebinding) -> None:
    lost = [a for a in change.gone if a.parameter not in _DROPPED or not is_pure(a.value)]
    missing = [name for name in change.missing if name != _NONE]
    brought = [a for a in (*change.gone, *change.named) if isinstance(a.place, str) and keyword(call, a.place) is None]
    if lost or missing or brought:
        extra = [*(a.parameter for a in lost), *(a.place for a in brought)]
        why = f"it has no parameter '{extra[0]}'" if extra else f"it needs '{missing[0]}'"
        _find(run, file, call, method, why, _REMEDIES.get(lost[0].parameter, "") if lost else "")
        return
    ref = E.Ref.of(call)
    edits: list[E.Edit] = [E.SetArgument(ref, argument.place, argument.parameter) for argument in change.named]
    edits += [E.RemoveArgument(ref, argument.place) for argument in change.gone]
    edits += [E.SetArgument(ref, name, name, "None") for name in change.missing]
    review = f"{_NONE} is None, which FlashInfer, where it is asked for, does not take" if change.missing else ""
    file.rewrite(RULE, call, _message(run, method, change), edits, review=review)
    file.removed += [E.Ref.of(argument.value) for argument in change.gone]
    changed = {argument.place for argument in (*change.gone, *change.named)}
    file.rewritten += [E.Ref.of(word) for word in call.keywords if word.arg in changed]


def _find(run: Plan, file: FilePlan, call: ast.Call, method: Method, why: str, remedy: str = "") -> None:
    file.find(
        RULE,
        call,
        Severity.ERROR,
        f"this call of {method} does not fit vLLM {run.target.version}: {why}",
        f"{remedy} Its parameters are {method.now(run.api)} now.".strip(),
    )


def _message(run: Plan, method: Method, change: Rebinding) -> str:
    parts = [f"takes no {', '.join(a.parameter for a in change.gone)} any more"] if change.gone else []
    parts += [f"takes {', '.join(a.parameter for a in change.named)} by keyword"] if change.named else []
    parts += [f"wants {', '.join(change.missing)}"] if change.missing else []
    return f"{method} of vLLM {run.target.version} {' and '.join(parts)}"


RULE = Rule(
    code="VA641",
    name="model-class-calls",
    summary="What is passed to vLLM's own vision blocks, attentions and towers when they run follows their signatures.",
    why=(
        "The forward methods of vLLM's vision classes changed with what their kernels read: lists of lengths went with "
        "xFormers, angles became cosines and sines, sequence lengths came with FlashInfer. What the target does not "
        "read is no longer passed, what may be None is passed as None, and what only has another name gets it; the "
        "rest is reported with the signature that the target has. Methods that a subclass calls on itself or by "
        "super() are looked at as well, and so are the blocks of a tower that only vLLM's own constructor makes, and "
        "what these hold. A call that fits in no way it can be read is reported."
    ),
    follows="vLLM 0.11.1 (select_layers), 0.12.0 (seqlens, rotary_pos_emb), 0.17.0 (sequence_lengths)",
    names=frozenset({"vllm", *_DROPPED, *_RENAMED}),
    plan=plan,
    examples=(
        Example(before=_BEFORE, after=_AFTER, source="0.11.0"),
        Example(before=_ANGLES, after=_ANGLES, source="0.11.0", refused=True),
    ),
)

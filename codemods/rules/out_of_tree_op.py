"""VA651: an out-of-tree op for MMEncoderAttention has the constructor and the forward of the target."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods import edits as E
from codemods.findings import Severity
from codemods.parsed_file import default_of, dotted, keyword, loads, parameters
from codemods.plan import FilePlan, Plan
from codemods.project import AnyFunction
from codemods.rule import Example, Rule
from codemods.rules import out_of_tree_checks as checks
from codemods.uses import uses_of
from codemods.vision_attention import out_of_tree as oot
from codemods.vision_attention import vocabulary as V
from codemods.vision_attention.out_of_tree import Op

_BEFORE = """\
import torch
from device import kernels
from vllm.attention.layers.mm_encoder_attention import MMEncoderAttention
from vllm.config import MultiModalConfig


@MMEncoderAttention.register_oot
class DeviceEncoderAttention(MMEncoderAttention):
    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float | None = None,
        num_kv_heads: int | None = None,
        prefix: str = "",
        multimodal_config: MultiModalConfig | None = None,
    ) -> None:
        super().__init__(num_heads, head_size, scale, num_kv_heads, prefix, multimodal_config)

    def forward_oot(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        cu_seqlens: torch.Tensor | None = None,
        max_seqlen: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if cu_seqlens is None:
            return super().forward_native(query, key, value, cu_seqlens, max_seqlen)
        return kernels.attend(query, key, value, cu_seqlens, scale=self.scale)
"""

_AFTER = """\
import torch
from device import kernels
from vllm.model_executor.layers.attention import MMEncoderAttention


@MMEncoderAttention.register_oot
class DeviceEncoderAttention(MMEncoderAttention):
    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float | None = None,
        num_kv_heads: int | None = None,
        prefix: str = "",
    ) -> None:
        super().__init__(num_heads, head_size, scale, num_kv_heads, prefix)

    def forward_oot(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        cu_seqlens: torch.Tensor | None = None,
        max_seqlen: torch.Tensor | None = None,
        sequence_lengths: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if cu_seqlens is None:
            return super().forward_native(query, key, value, cu_seqlens, max_seqlen, sequence_lengths=sequence_lengths)
        return kernels.attend(query, key, value, cu_seqlens, scale=self.scale)
"""

_SKIPPED = """\
from device import kernels
from torch import nn
from vllm.model_executor.layers.attention import MMEncoderAttention


@MMEncoderAttention.register_oot()
class DeviceEncoderAttention(MMEncoderAttention):
    def __init__(self, num_heads, head_size, scale=None, num_kv_heads=None, prefix=""):
        nn.Module.__init__(self)
        self.scale = scale

    def forward_oot(self, query, key, value, cu_seqlens=None, max_seqlen=None, sequence_lengths=None):
        return kernels.attend(query, key, value, cu_seqlens, scale=self.scale)
"""

# What vLLM passes beside cu_seqlens and max_seqlen says the same once more, for one kernel: an op may ignore it.
_MAY_BE_IGNORED = ("sequence_lengths",)


def plan(run: Plan) -> None:
    registrations = oot.registrations(run)
    found = oot.ops(run, registrations)
    for op in found:
        _constructor(run, op)
        for method in op.cls.node.body:
            if op.registered and isinstance(method, ast.FunctionDef) and method.name.startswith("forward"):
                _forward(run, op, method)
        checks.members(run, RULE, op)
        if op.registered:
            checks.scale(run, RULE, op)
    checks.registered(run, RULE, registrations, found)


# -- the constructor ---------------------------------------------------------------------------------------------------


def _constructor(run: Plan, op: Op) -> None:
    constructor = op.cls.own("__init__")
    signature = run.api.signature(oot.qualified(run.target.version))
    if constructor is None or signature is None:
        return
    file, wanted = op.file, [parameter.name for parameter in signature.parameters]
    parents = list(_parent_calls(run, op, constructor))
    if not parents and not _calls_parent(constructor):
        checks.skipped(run, RULE, op, constructor)
    own = [parameter.arg for parameter in parameters(constructor)][1:]
    for call, shift in parents:
        _drop_arguments(file, op, call, shift, wanted)
        names = {k.arg for k in call.keywords if k.arg is not None} - _dropped(file, call)
        stars = any(isinstance(a, ast.Starred) for a in call.args)
        count = min(len(call.args) - shift, len(wanted)) if not stars else 0
        why = signature.binds(count, names, stars, any(k.arg is None for k in call.keywords))
        if why is not None:
            checks.error(
                file,
                RULE,
                call,
                f"{op.name} calls the constructor of MMEncoderAttention as vLLM {run.target.version} does not take "
                f"it: {why}",
                f"It takes {', '.join(wanted)}.",
            )
    if not op.registered or constructor.args.kwarg is not None:
        return
    for parameter in parameters(constructor)[1:]:
        if parameter.arg not in wanted:
            _retire(run, op, constructor, parameter)
    for name in wanted:
        if name not in own:
            checks.error(
                file,
                RULE,
                constructor,
                f"vLLM {run.target.version} builds MMEncoderAttention with {name}=, which the constructor of {op.name} "
                f"does not take",
                f"Add {name} to it, and hand it on to super().__init__().",
            )


def _parent_calls(run: Plan, op: Op, constructor: AnyFunction) -> Iterator[tuple[ast.Call, int]]:
    """Calls of vLLM's own constructor, and how many leading arguments are the instance."""
    direct = any(oot.is_base(run, op.file, base) for base in op.cls.node.bases)
    for node in op.file.file.below(constructor):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "__init__":
            continue
        if isinstance(node.func.value, ast.Call) and _is_super(node.func.value, op) and direct:
            yield node, 0
        elif oot.is_base(run, op.file, node.func.value):
            yield node, 1


def _is_super(call: ast.Call, op: Op) -> bool:
    """`super()`, or the same with the class named."""
    first = call.args[0] if call.args else None
    return dotted(call.func) == "super" and (first is None or ast.unparse(first) == op.name)


def _calls_parent(constructor: AnyFunction) -> bool:
    """Whether a constructor hands on to a class of the run, or by a star: then it is not said that it skips any."""
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "__init__"
        and isinstance(node.func.value, ast.Call)
        and not node.func.value.args
        for node in ast.walk(constructor)
    )


def _drop_arguments(file: FilePlan, op: Op, call: ast.Call, shift: int, wanted: list[str]) -> None:
    message = f"{op.name}: MMEncoderAttention takes {', '.join(wanted)}"
    for word in call.keywords:
        if word.arg == _CONFIG and _CONFIG not in wanted:
            file.rewrite(RULE, word, message, [])
            file.remove_argument(call, _CONFIG)
    place = shift + _CONFIG_AT
    starred = any(isinstance(a, ast.Starred) for a in call.args)
    if _CONFIG not in wanted and len(call.args) == place + 1 and not starred:
        file.rewrite(RULE, call, message, [E.RemoveArgument(E.Ref.of(call), place)])
        file.removed.append(E.Ref.of(call.args[place]))


def _dropped(file: FilePlan, call: ast.Call) -> set[str | None]:
    return {word.arg for word in call.keywords if file.gone(word.value)}


_CONFIG, _CONFIG_AT = "multimodal_config", 5  # the last of the parameters in 0.13 and 0.14


def _retire(run: Plan, op: Op, constructor: AnyFunction, parameter: ast.arg) -> None:
    file, name, default = op.file, parameter.arg, default_of(constructor, parameter)
    read = uses_of(file).now(name, constructor)
    if name == _CONFIG and not read and not (run.keep_params and default is not None):
        file.rewrite(
            RULE,
            parameter,
            f"{op.name}: vLLM builds it without {name}",
            [E.RemoveParameter(E.Ref.of(constructor), name)],
        )
        file.removed += [E.Ref.of(parameter), *([E.Ref.of(default)] if default is not None else [])]
        run.settled.add((file.file.module, constructor.lineno, name))
    elif default is None:
        checks.error(
            file,
            RULE,
            parameter,
            f"vLLM {run.target.version} builds MMEncoderAttention without {name}, which the constructor of {op.name} "
            f"wants",
            "Give it a default, or read what it carries from get_current_vllm_config().",
        )
    elif name == _CONFIG and read:
        file.find(
            RULE,
            read[0],
            Severity.WARNING,
            f"{op.name} reads {name}, which vLLM {run.target.version} no longer passes: it is always its default",
            "Read it from get_current_vllm_config().model_config.multimodal_config.",
        )


# -- forward -----------------------------------------------------------------------------------------------------------


def _forward(run: Plan, op: Op, method: ast.FunctionDef) -> None:
    signature = run.api.call_signature(oot.qualified(run.target.version))
    if signature is None or method.args.kwarg is not None or method.decorator_list:
        return
    file, arguments = op.file, parameters(method)[1:]
    own, wanted = [a.arg for a in arguments], [p.name for p in signature.parameters]
    where = f"{op.name}.{method.name}"
    needed = [a.arg for a in arguments if default_of(method, a) is None and a.arg not in wanted]
    lacking = [name for name in wanted if name not in own and name not in _MAY_BE_IGNORED]
    if method.args.vararg is None and (needed or lacking):
        checks.error(
            file,
            RULE,
            method,
            f"{where} takes {', '.join(own)}, and vLLM {run.target.version} calls it with {', '.join(wanted)}",
            "Give it these parameters by these names: vLLM passes them by keyword.",
        )
        return
    for name in wanted:
        if name in own or name not in _MAY_BE_IGNORED:
            continue
        like = next((a.annotation for a in arguments if a.arg == "cu_seqlens"), None)
        added = E.AddParameter(E.Ref.of(method), name, file.file.written(like) if like is not None else "", "None")
        file.rewrite(RULE, method, f"{where}: {name} is accepted", [added])
        for call in _handing_on(run, op, method, name):
            file.rewrite(RULE, call, f"{where}: {name} is handed on", [E.SetArgument(E.Ref.of(call), name, name, name)])


def _handing_on(run: Plan, op: Op, method: ast.FunctionDef, name: str) -> Iterator[ast.Call]:
    """Calls of another forward of the op with this one's cu_seqlens, which takes the parameter, too."""
    base = oot.qualified(run.target.version)
    for call in op.file.file.below(method):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        owner, called = call.func.value, call.func.attr
        parent = isinstance(owner, ast.Call) and _is_super(owner, op)
        mine = isinstance(owner, ast.Name) and owner.id == "self"
        own = op.cls.own(called)
        signature = run.api.signature(f"{base}.{called}") if parent or own is None else None
        takes = (
            signature is not None and name in signature
            if parent or own is None
            else op.registered and called.startswith("forward")
        )
        stars = any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords)
        if (parent or mine) and takes and not stars and "cu_seqlens" in loads(call) and keyword(call, name) is None:
            yield call


RULE = Rule(
    code="VA651",
    name="out-of-tree-op",
    summary="An out-of-tree op for MMEncoderAttention gets the constructor and the forward of the target.",
    why=(
        "vLLM builds a plugin's op in place of MMEncoderAttention, with the same arguments: multimodal_config is among "
        "them in 0.13 and 0.14 only, and sequence_lengths is passed to forward from 0.17 on. What cannot be brought "
        "over by itself is told: a parent constructor that is skipped, with the attributes that are then missing; "
        "methods and attributes that the class no longer has; overrides that vLLM calls with other arguments; a scale "
        "that is ignored; a registration under a name that vLLM does not look for, or a second one."
    ),
    follows="vLLM 0.15.0, PR #31972 (multimodal_config); 0.17.0 (sequence_lengths)",
    names=frozenset({V.ENCODER_ATTENTION}),
    plan=plan,
    examples=(
        Example(before=_BEFORE, after=_AFTER, source="0.13"),
        Example(before=_SKIPPED, after=_SKIPPED, source="0.32", refused=True),
    ),
)

"""VA643: a model with a tower of its own does not inherit what vLLM's base class promises for vLLM's tower."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from codemods import edits as E
from codemods.findings import Severity
from codemods.parsed_file import ParsedFile, keyword
from codemods.plan import FilePlan, Plan
from codemods.project import Class
from codemods.rule import Example, Rule
from codemods.vllm_classes import ModelPart, bases, model_class, model_function


@dataclass(frozen=True)
class OptIn:
    """A class attribute by which vLLM's models say what their towers can do."""

    attribute: str
    interface: str  # the class that has it for all models, and says no
    towers: tuple[str, ...]  # what vLLM's models call the towers that have to be able to do it
    part: str  # what a tower is given, or makes itself, to be able to
    effect: str  # what becomes of a tower without it


_OPT_INS = (
    OptIn(  # vLLM 0.28.0
        attribute="supports_mm_device_do_normalize",
        interface="vllm.model_executor.models.interfaces.SupportsMultiModal",
        towers=("visual", "vision_tower"),
        part="input_norm",
        effect="is fed raw pixels",
    ),
)

_BEFORE = """\
import torch
from torch import nn
from vllm.config import VllmConfig
from vllm.model_executor.models.qwen2_5_vl import Qwen2_5_VLForConditionalGeneration


class Tower(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.project = nn.Linear(3 * 14 * 14, width)

    def forward(self, pixel_values: torch.Tensor, grid_thw: list[list[int]]) -> torch.Tensor:
        return self.project(pixel_values)


class Model(Qwen2_5_VLForConditionalGeneration):
    \"\"\"vLLM's model with a tower of our own.\"\"\"

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        self.visual = Tower(vllm_config.model_config.hf_config.vision_config.out_hidden_size)
"""

_AFTER = _BEFORE.replace('of our own."""\n', 'of our own."""\n\n    supports_mm_device_do_normalize = False\n')

_HANDED_IN = """\
from torch import nn
from vllm.config import VllmConfig
from vllm.model_executor.models.qwen2_5_vl import Qwen2_5_VLForConditionalGeneration


class Model(Qwen2_5_VLForConditionalGeneration):
    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)

    def use(self, tower: nn.Module) -> None:
        self.visual = tower
"""


def plan(run: Plan) -> None:
    for file in run.open_files:
        for node in file.file.class_nodes:
            if not file.gone(node):
                cls = Class(file.file, node)
                for opt_in in _OPT_INS:
                    base = _base_that_opts_in(run, cls, opt_in)
                    if base is not None:
                        _plan_class(run, file, cls, base, opt_in)


def _base_that_opts_in(run: Plan, cls: Class, opt_in: OptIn) -> ModelPart | None:
    """vLLM's class that a class inherits the promise from, unless the project itself says yes or no."""
    if any(opt_in.attribute in ast.unparse(statement) for c in run.project.bases(cls) for statement in _said(c)):
        return None
    for base in bases(run, cls).models:
        definer = run.api.definer(base.home, opt_in.attribute)
        if definer is not None:
            return base if definer != opt_in.interface else None
    return None


def _said(cls: Class) -> Iterator[ast.stmt]:
    """What a class sets for itself, not for its instances."""
    return (s for s in cls.node.body if isinstance(s, (ast.Assign, ast.AnnAssign)))


def _plan_class(run: Plan, file: FilePlan, cls: Class, base: ModelPart, opt_in: OptIn) -> None:
    held = run.api.members(base.home)
    towers = [
        (name, value)
        for name, values in run.project.assigned(cls).items()
        if name in opt_in.towers and name in held
        for value in values
        if not (isinstance(value, ast.Constant) and value.value is None)
    ]
    verdicts = {_can(run, file, value, opt_in) for _, value in towers}
    if False in verdicts and True not in verdicts and None not in verdicts:
        name = towers[0][0]
        message = f"{cls.node.name}: nothing gives self.{name} an {opt_in.part}, so {opt_in.attribute} is taken back"
        file.rewrite(RULE, cls.node, message, [_said_in(cls, f"{opt_in.attribute} = False")])
    elif verdicts - {True}:
        name, value = next((n, v) for n, v in towers if not _can(run, file, v, opt_in))
        file.find(
            RULE,
            value,
            Severity.WARNING,
            f"{base.short} of vLLM {run.target.version} sets {opt_in.attribute}: self.{name} {opt_in.effect} "
            f"unless it has an {opt_in.part}, which cannot be seen here",
            f"Give the tower an {opt_in.part}, or set {opt_in.attribute} = False in {cls.node.name}.",
            covers=value,
        )


def _can(run: Plan, file: FilePlan, value: ast.expr, opt_in: OptIn) -> bool | None:
    """Whether what is assigned has the part; None if that is not known."""
    answers: set[bool | None] = set()
    for home, call in run.project.makers(file.file, value):
        cls = run.project.class_named(home, call.func)
        upstream = bool(bases(run, cls).models) if cls else _is_upstream(run, home, call, opt_in.part)
        if keyword(call, opt_in.part) is not None or (cls is not None and _mentions(run, cls, opt_in.part)):
            answers.add(True)
        elif (upstream and any(word.arg is None for word in call.keywords)) or not (cls or upstream):
            answers.add(None)
        else:
            answers.add(False)
    return answers.pop() if len(answers) == 1 else None


def _is_upstream(run: Plan, home: ParsedFile, call: ast.Call, part: str) -> bool:
    """Whether a call builds one of vLLM's model classes, itself or by a function that would pass the part on."""
    file, name = run.of(home), run.project.vllm(home, call.func)
    function = model_function(run, file, name)
    if function is not None:
        return part in (run.api.signature(function.home) or ())
    return model_class(run, file, name) is not None


def _mentions(run: Plan, cls: Class, part: str) -> bool:
    """Whether a class of the project has to do with the part: sets it, takes it or passes it on."""
    return any(
        part in (getattr(node, "attr", None), getattr(node, "arg", None))
        for here in run.project.bases(cls)
        for node in here.file.below(here.node)
    )


def _said_in(cls: Class, code: str) -> E.Edit:
    """An edit that puts a line behind what a class body opens with: its text, and what it sets."""
    opening: ast.stmt | None = None
    for statement in cls.node.body:
        if not isinstance(statement, (ast.Expr, ast.Assign, ast.AnnAssign)):
            break
        opening = statement
    if opening is None:
        return E.InsertBefore(E.Ref.of(cls.node.body[0]), f"{code}\n")
    return E.InsertAfter(E.Ref.of(opening), f"\n{code}\n" if opening is cls.node.body[0] else f"{code}\n")


RULE = Rule(
    code="VA643",
    name="inherited-opt-in",
    summary="A tower of one's own in one of vLLM's models takes back what that model promises of vLLM's tower.",
    why=(
        "From 0.28 on a model class says by supports_mm_device_do_normalize that its tower normalises pixels itself; "
        "the processor then leaves them raw. vLLM's towers do it by an input_norm that is given to them. A subclass "
        "with a tower of its own inherits the promise without the input_norm, and would see raw pixels without any "
        "error, so it sets the attribute to False. Where the tower cannot be seen, that is reported."
    ),
    follows="vLLM 0.28.0 (Qwen2-VL, Qwen2.5-VL), 0.32.0 (Qwen3-VL, GLM-4.1V, Mistral 3, Kimi and others)",
    names=frozenset({"vllm"}),
    plan=plan,
    examples=(
        Example(before=_BEFORE, after=_AFTER),
        Example(before=_HANDED_IN, after=_HANDED_IN, refused=True),
    ),
    unported=Severity.WARNING,
)

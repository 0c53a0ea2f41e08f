"""VA642: what a subclass takes from one of vLLM's model classes, or overrides there, is still there."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods import edits as E
from codemods.findings import Severity
from codemods.parsed_file import default_of, parameters, self_attribute
from codemods.plan import FilePlan, Plan
from codemods.project import AnyFunction, Class
from codemods.rule import Example, Rule
from codemods.vllm_api import Signature
from codemods.vllm_classes import Bases, bases, is_super, stands_for
from codemods.vllm_contracts import contracts
from codemods.vllm_methods import Method

_TOWER = """\
import torch
from vllm.model_executor.models.qwen3_vl import Qwen3_VisionTransformer


class Tower(Qwen3_VisionTransformer):
    def compute_attn_mask_seqlen(self, cu_seqlens: torch.Tensor) -> torch.Tensor:
        longest = super().compute_attn_mask_seqlen(cu_seqlens)
        return torch.clamp(longest, min=1)
"""

_BEFORE = """\
import torch
from vllm.model_executor.models.qwen3_vl import Qwen3_VisionTransformer


class Tower(Qwen3_VisionTransformer):
    def __init__(self, config, prefix: str = "") -> None:
        super().__init__(config, prefix=prefix)
        self.scale = config.hidden_size**-0.5

    def forward(self, x: torch.Tensor, grid_thw: list[list[int]]) -> torch.Tensor:
        return super().forward(x if self.use_data_parallel else x * self.scale, grid_thw)
"""

_AFTER = """\
import torch
from vllm.model_executor.models.qwen3_vl import Qwen3_VisionTransformer
from vllm.model_executor.models.vision import is_vit_use_data_parallel


class Tower(Qwen3_VisionTransformer):
    def __init__(self, config, prefix: str = "") -> None:
        super().__init__(config, prefix=prefix)
        self.use_data_parallel = is_vit_use_data_parallel()
        self.scale = config.hidden_size**-0.5

    def forward(self, x: torch.Tensor, grid_thw: list[list[int]]) -> torch.Tensor:
        return super().forward(x if self.use_data_parallel else x * self.scale, grid_thw)
"""

# Attributes that vLLM's constructors set from the configuration, and what answers the same while a model is built.
_ANSWERS = {"use_data_parallel": ("vllm.model_executor.models.vision", "is_vit_use_data_parallel")}


# Methods of vLLM's towers that gave a pair, of which xFormers read the second. vLLM 0.12.0.
_PAIRS = frozenset({"compute_attn_mask_seqlen"})


def plan(run: Plan) -> None:
    for file in run.open_files:
        for node in file.file.class_nodes:
            cls = Class(file.file, node)
            for assign in _pairs(file, cls):
                _find_pair(run, file, cls, assign)
            base = bases(run, cls) if node.bases and not file.gone(node) else None
            if base is not None and base.models:
                if base.closed:
                    _find_gone(run, file, cls, base)
                for method in _overrides(file, cls) if not contracts(run, cls) else ():
                    _find_override(run, file, cls, base, method)


def _pairs(file: FilePlan, cls: Class) -> Iterator[ast.Assign]:
    """`max_seqlen, seqlens = self.compute_attn_mask_seqlen(cu_seqlens)`"""
    for name in _PAIRS:
        for node in file.file.attributes.get(name, ()):
            call = file.file.parents[node]
            assign = file.file.parents[call] if isinstance(call, ast.Call) else None
            if isinstance(assign, ast.Assign) and isinstance(assign.targets[0], ast.Tuple) and not file.gone(node):
                if self_attribute(node) == name and file.file.class_of(node) is cls.node:
                    yield assign


def _find_pair(run: Plan, file: FilePlan, cls: Class, assign: ast.Assign) -> None:
    assert isinstance(assign.value, ast.Call) and isinstance(assign.value.func, ast.Attribute)
    name = assign.value.func.attr
    theirs = [home for home in sorted(stands_for(run, cls)) if name in run.api.members(home)]
    patched = any(p.target.endswith(f".{name}") for user in run.project.files for p in run.patches.of(user))
    if theirs and not patched and not _is_ours(run, cls, name, above=False):
        short = theirs[0].rpartition(".")[2]
        file.find(
            RULE,
            assign,
            Severity.ERROR,
            f"{name} of {short} gives max_seqlen alone in vLLM {run.target.version}, and two values are taken from it",
            "Take one value, and pass no lengths for xFormers on.",
            covers=assign.targets[0],
        )


def _find_gone(run: Plan, file: FilePlan, cls: Class, base: Bases) -> None:
    """Members that the class reads, and that neither vLLM nor the project has any more."""
    told: set[str] = set()
    for node in file.file.below(cls.node):
        if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load) or file.gone(node):
            continue
        above = is_super(node, cls.node)
        name = node.attr if above else self_attribute(node)
        if name is None or name in told or file.file.class_of(node) is not cls.node:
            continue
        call = file.file.parents[node]
        if isinstance(call, ast.Call) and file.answered(call):
            continue
        if not base.had(name) or base.has(run.api, name) or _is_ours(run, cls, name, above):
            continue
        told.add(name)
        if not above and name in _ANSWERS and _set_again(run, file, cls, name, *_ANSWERS[name]):
            continue
        file.find(
            RULE,
            node,
            Severity.ERROR,
            f"{cls.node.name} takes {name} from {base.models[0].short}, which has none in vLLM {run.target.version}",
            f"Do without {name}, or bring it in {cls.node.name}.",
        )


def _set_again(run: Plan, file: FilePlan, cls: Class, name: str, module: str, function: str) -> bool:
    """Have the class set an attribute that its base set, right behind the base's constructor. False if that cannot
    be: the function may be asked only while a model is built."""
    constructor = cls.own("__init__")
    built = next((s for s in constructor.body if _builds_base(s, cls.node)), None) if constructor is not None else None
    if built is None or not run.api.has(module, function):
        return False
    file.rewrite(
        RULE,
        built,
        f"{cls.node.name} sets {name} itself: its base does not in vLLM {run.target.version}",
        [E.InsertAfter(E.Ref.of(built), f"self.{name} = {function}()\n"), E.AddImport(module, function)],
    )
    return True


def _builds_base(statement: ast.stmt, owner: ast.ClassDef) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and is_super(call.func, owner, "__init__")


def _is_ours(run: Plan, cls: Class, name: str, above: bool) -> bool:
    """Whether the project may bring a member itself, in the class or its family, or asks for it first."""
    family = list(run.project.bases(cls))
    if above:
        return any(_brings(run, c, name) for c in family[1:])
    family += run.project.subclasses.get(cls.qualified, [])
    asked = any(isinstance(n, ast.Constant) and n.value == name for c in family for n in c.file.below(c.node))
    return asked or any(_brings(run, c, name) for c in family)


def _brings(run: Plan, cls: Class, name: str) -> bool:
    return (
        name in run.project.assigned(cls)
        or cls.own(name) is not None
        or any(
            isinstance(n, ast.Name) and n.id == name
            for s in cls.node.body
            if isinstance(s, (ast.Assign, ast.AnnAssign))
            for n in ast.walk(s.targets[0] if isinstance(s, ast.Assign) else s.target)
        )
    )


def _overrides(file: FilePlan, cls: Class) -> Iterator[AnyFunction]:
    """Methods that something may call from outside of the class, and that no edit takes away or renames."""
    for node in cls.node.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if not file.gone(node) and not (node.name.startswith("__") and node.name.endswith("__")):
                yield node


def _find_override(run: Plan, file: FilePlan, cls: Class, base: Bases, node: AnyFunction) -> None:
    """An override that vLLM does not call any more, or calls with arguments that it does not take."""
    if not base.had(node.name):
        return
    short = base.models[0].short
    if not base.has(run.api, node.name):
        if base.closed and not _is_read(run, node.name):
            file.find(
                RULE,
                node,
                Severity.WARNING,
                f"{cls.node.name}.{node.name} overrides what {short} has no more in vLLM {run.target.version}: nothing "
                f"calls it",
                f"See what {short} does now in place of {node.name}, and override that.",
                covers=_head(node),
            )
        return
    if node.decorator_list or run.callers.get(id(node)):
        return  # a property, or called by the project, which knows how
    method = Method(base.models[0], node.name)
    now, then = method.now(run.api), [one for api in method.part.then if (one := method.then(api)) is not None]
    why = _why_not_called(file, node, now) if now is not None else None
    if why is not None and any(_why_not_called(file, node, signature) is None for signature in then):
        file.find(
            RULE,
            node,
            Severity.ERROR,
            f"{cls.node.name}.{node.name} overrides what vLLM {run.target.version} calls in another way: {why}",
            f"Let it take what {short}.{node.name} takes now: {now}.",
            covers=_head(node),
        )
        return
    unread = _not_taken(file, node, now, then) if now is not None and why is None else None
    if unread is not None:
        file.find(
            RULE,
            node,
            Severity.WARNING,
            f"{cls.node.name}.{node.name} overrides what vLLM {run.target.version} may call in another way: "
            f"it takes no {unread}",
            f"Let it take what {short}.{node.name} takes now: {now}.",
            covers=_head(node),
        )


def _not_taken(file: FilePlan, node: AnyFunction, now: Signature, then: list[Signature]) -> str | None:
    """A parameter that came to what an override overrides, which callers may fill and the override does not take."""
    names = {p.arg for p in parameters(node)}
    came = [p.name for p in now.parameters if p.has_default and p.name not in names] if node.args.kwarg is None else []
    fitting = [one for one in then if _why_not_called(file, node, one) is None]
    return next((name for name in came if any(name not in one for one in fitting)), None)


def _head(node: AnyFunction) -> ast.AST:
    """What a finding about a method accounts for: its parameters, not its body."""
    return node.args if hasattr(node.args, "lineno") else next(iter(parameters(node)), node)


def _is_read(run: Plan, name: str) -> bool:
    """Whether anything in the run asks for a member of this name."""
    return any(
        isinstance(node, ast.Attribute) and node.attr == name and not file.gone(node)
        for file in run.files
        for node in file.file.nodes[ast.Attribute]
    )


def _why_not_called(file: FilePlan, node: AnyFunction, signature: Signature) -> str | None:
    """Why an override does not take what it is given by those who call it by a signature; None if it does."""
    ref = E.Ref.of(node)
    taken = {p.arg: p for p in parameters(node)[1:] if E.RemoveParameter(ref, p.arg) not in file.edits}
    renamed = {e.name: e.new_name for e in file.edits if isinstance(e, E.SetParameter) and e.function == ref}
    names = {renamed.get(name) or name: default_of(node, parameter) for name, parameter in taken.items()}
    lost = [name for name in signature.required if name not in names] if node.args.kwarg is None else []
    if lost:
        return f"it is given '{lost[0]}'"
    given = {parameter.name for parameter in signature.parameters}
    wanted = [name for name, default in names.items() if default is None and name not in given]
    return f"it is not given '{wanted[0]}'" if wanted else None


RULE = Rule(
    code="VA642",
    name="inherited-members",
    summary="Members that a subclass takes from vLLM's model classes, and overrides that vLLM calls, are looked up.",
    why=(
        "A plugin that subclasses one of vLLM's models or towers reads attributes that its base sets, calls methods of "
        "it, and overrides methods that it calls. Where a release took such a member away, or calls it with other "
        "arguments, nothing fails at import: it fails, or silently does nothing, when the model runs. It is reported, "
        "as is a pair taken from a method that gives one value now; "
        "what can be asked of vLLM instead is set again by the subclass. What the plugin sets itself is left alone."
    ),
    follows="the members and signatures of the target release, as the index has them",
    names=frozenset({"vllm"}),
    plan=plan,
    examples=(Example(before=_BEFORE, after=_AFTER), Example(before=_TOWER, after=_TOWER, refused=True)),
)

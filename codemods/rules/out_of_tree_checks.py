"""What is told of an out-of-tree op and not rewritten, and the one rename of its base that means the same."""

from __future__ import annotations

import ast

from codemods import edits as E
from codemods.findings import Severity
from codemods.parsed_file import FunctionNode, default_of, parameters, self_attribute
from codemods.plan import FilePlan, Plan
from codemods.project import AnyFunction, Class
from codemods.rule import Rule
from codemods.vision_attention import out_of_tree as oot
from codemods.vision_attention import vocabulary as V
from codemods.vision_attention.heads import is_default_scale
from codemods.vision_attention.out_of_tree import Op, Registration
from codemods.vllm_api import Signature

# methods that MMEncoderAttention renamed, and that do the same
_RENAMED = {"reshape_qkv_to_4d": "maybe_reshape_qkv_to_4d"}  # 0.14
# what took the place of others, in the words of a remedy
_REPLACED = {
    "reshape_qkv_to_4d": "From 0.16 on view_qkv_to_4d takes its place, and does not repeat the heads of key and value.",
    "maybe_reshape_qkv_to_4d": "From 0.16 on view_qkv_to_4d takes its place, and does not repeat the heads of key and "
    "value.",
    "view_qkv_to_4d": "Up to 0.15 it is maybe_reshape_qkv_to_4d, which repeats the heads of key and value.",
    "maybe_compute_sequence_lengths": "From 0.18 on it is maybe_compute_seq_lens, which also takes the device and "
    "returns a tensor.",
    "flash_attn_varlen_func": "Import the kernel that the op needs itself.",
}


def error(file: FilePlan, rule: Rule, node: ast.AST, message: str, remedy: str) -> None:
    file.find(rule, node, Severity.ERROR, message, remedy)


# -- the parent --------------------------------------------------------------------------------------------------------


def skipped(run: Plan, rule: Rule, op: Op, constructor: AnyFunction) -> None:
    """A constructor that does not run its parent's, and what the op then lacks."""
    base = oot.qualified(run.target.version)
    called = {
        name
        for node in op.file.file.below(constructor)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "__init__"
        and (name := run.project.vllm(op.file.file, node.func.value)) is not None
    }
    there = {m for name in called for m in run.api.members(name)}
    lacking = _attributes(run, base) - there - _set(op)
    if not lacking:
        return
    own = {name for member in run.project.bases(op.cls) for name in _methods(member.node)}
    read = {
        name
        for node in op.file.file.below(op.cls.node)
        if (name := self_attribute(node)) in lacking and isinstance(node, ast.Attribute)
    }
    fails = read or ("_forward_method" in lacking and not own & {"forward", "__call__"})
    op.file.find(
        rule,
        constructor,
        Severity.ERROR if fails else Severity.WARNING,
        f"{op.name} does not run the constructor of MMEncoderAttention: it has no {', '.join(sorted(lacking))}",
        "Call super().__init__() with what the constructor is given.",
    )


def _attributes(run: Plan, qualified: str) -> set[str]:
    """What the constructor of a class of vLLM sets on the instance."""
    return {
        name
        for name in run.api.members(qualified)
        if run.api.signature(f"{qualified}.{name}") is None and name not in ("name", "op_registry", "op_registry_oot")
    }


def _set(op: Op) -> set[str]:
    """Attributes that an op sets on itself or on its class, anywhere."""
    found = {
        name
        for node in op.file.file.below(op.cls.node)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and (name := self_attribute(node)) is not None
    }
    for step in op.cls.node.body:
        targets = step.targets if isinstance(step, ast.Assign) else [getattr(step, "target", None)]
        found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def _methods(node: ast.ClassDef) -> dict[str, AnyFunction]:
    return {step.name: step for step in node.body if isinstance(step, FunctionNode)}


# -- members -----------------------------------------------------------------------------------------------------------


def members(run: Plan, rule: Rule, op: Op) -> None:
    """Methods and attributes of MMEncoderAttention that an op uses or overrides, and that the target has otherwise."""
    base = oot.qualified(run.target.version)
    there = run.api.members(base)
    lost = oot.ever() - there
    family = list(run.project.bases(op.cls))
    own = {name for member in family for name in _methods(member.node)} | _set(op)
    known = all(
        oot.is_base(run, op.file, node) or run.project.class_named(member.file, node) is not None
        for member in family
        for node in member.node.bases
    )
    for node in op.file.file.below(op.cls.node) if known else ():
        name = self_attribute(node)
        if name not in lost or name in own or not isinstance(node, ast.Attribute):
            continue
        new = _RENAMED.get(name)
        if new in there:
            code = E.ReplaceExpression(E.Ref.of(node), f"self.{new}")
            op.file.rewrite(rule, node, f"{op.name}: {name} of MMEncoderAttention is {new}", [code])
            continue
        error(
            op.file,
            rule,
            node,
            f"{op.name} uses self.{name}, which MMEncoderAttention of vLLM {run.target.version} has not",
            _REPLACED.get(name, "See what the op needs it for."),
        )
    for name, method in _methods(op.cls.node).items():
        if name.startswith(("forward", "__")):
            continue
        signature = run.api.signature(f"{base}.{name}")
        if name in lost and name not in there:
            op.file.find(
                rule,
                method,
                Severity.WARNING,
                f"{op.name} overrides {name}, which vLLM {run.target.version} never calls: MMEncoderAttention has it "
                f"no more",
                _REPLACED.get(name, "See what took its place."),
            )
        elif signature is not None and not _takes(method, signature):
            wanted = ", ".join(p.name for p in signature.parameters)
            error(
                op.file,
                rule,
                method,
                f"{op.name} overrides {name}, which vLLM {run.target.version} calls with {wanted}",
                "Give the override these parameters.",
            )


def _takes(method: AnyFunction, signature: Signature) -> bool:
    """Whether a method can be called as a signature says: all by position, or those by keyword that it names."""
    static = any(ast.unparse(d) == "staticmethod" for d in method.decorator_list)
    arguments = parameters(method)[0 if static else 1 :]
    wanted = [p.name for p in signature.parameters]
    needs = [a.arg for a in arguments if default_of(method, a) is None and a.arg not in wanted]
    lacks = [name for name in wanted if name not in [a.arg for a in arguments]]
    return len(arguments) == len(wanted) or (not needs and (method.args.kwarg is not None or not lacks))


# -- scale -------------------------------------------------------------------------------------------------------------


def scale(run: Plan, rule: Rule, op: Op) -> None:
    """An op that computes the default scale and never looks at the one that the model gives."""
    if not run.target.honours_scale:
        return
    nodes = op.file.file.below(op.cls.node)
    parents = {
        id(inner)
        for node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "__init__"
        for inner in ast.walk(node)
    }
    reads = any(
        (self_attribute(node) == "scale" or (isinstance(node, ast.Name) and node.id == "scale"))
        and isinstance(getattr(node, "ctx", None), ast.Load)
        and id(node) not in parents
        for node in nodes
    )
    own = [n for n in nodes if isinstance(n, (ast.BinOp, ast.Call)) and is_default_scale(n, "head_size")]
    if own and not reads:
        op.file.find(
            rule,
            own[0],
            Severity.WARNING,
            f"{op.name} attends with {ast.unparse(own[0])} and ignores the scale that a model gives",
            "Use self.scale, and head_size**-0.5 only where it is None.",
        )


# -- registrations -----------------------------------------------------------------------------------------------------


def registered(run: Plan, rule: Rule, registrations: list[Registration], ops: list[Op]) -> None:
    """Registrations that vLLM refuses, or that never take effect."""
    first: dict[str, Registration] = {}
    nodes = {op.cls.node for op in ops}
    for found in registrations:
        mine = found.cls is not None and found.cls.node in nodes
        if found.name != V.ENCODER_ATTENTION:
            if mine and found.name is not None and found.cls is not None:
                found.file.find(
                    rule,
                    found.node,
                    Severity.WARNING,
                    f"{found.cls.node.name} is registered as {found.name}, and vLLM looks for the class name "
                    f"{V.ENCODER_ATTENTION}: the op never takes its place",
                    f'Register it with MMEncoderAttention.register_oot, or with name="{V.ENCODER_ATTENTION}".',
                )
            continue
        if found.cls is not None and not mine and _is_other(run, found.cls):
            error(
                found.file,
                rule,
                found.node,
                f"{found.cls.node.name} is registered for {V.ENCODER_ATTENTION} and does not derive from it: its "
                f"constructor is never run",
                f"Derive it from {V.ENCODER_ATTENTION}.",
            )
        before = first.setdefault(found.name, found)
        if before is not found and before.file is found.file and _always(before) and _always(found):
            error(
                found.file,
                rule,
                found.node,
                f"{V.ENCODER_ATTENTION} is registered a second time (first in line "
                f"{getattr(before.node, 'lineno', 1)}), which vLLM refuses",
                "Keep one registration.",
            )


def _is_other(run: Plan, cls: Class) -> bool:
    """Whether every base of a class is known, and none is MMEncoderAttention."""
    for member in run.project.bases(cls):
        for base in member.node.bases:
            name = run.project.meaning(member.file, base)
            if run.project.class_named(member.file, base) is None and name not in ("torch.nn.Module", oot.CUSTOM_OP):
                return False
    return True


def _always(found: Registration) -> bool:
    """Whether a registration is made as soon as its module is imported."""
    above = list(found.file.file.above(found.node))
    return not any(isinstance(node, (ast.If, ast.Try, *FunctionNode)) for node in above)

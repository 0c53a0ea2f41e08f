"""The two methods that vLLM calls for embeddings, under their names until 0.11.0 and since: who defines them, and what
a call of them reaches."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from codemods import vllm_contracts as contracts
from codemods.parsed_file import ParsedFile, keyword, parameters, self_attribute
from codemods.plan import FilePlan, Plan
from codemods.project import AnyFunction, Class

_MODEL = f"{contracts.INTERFACES}_base.VllmModel"
_MODEL_INPUTS = frozenset({"input_ids", "positions", "intermediate_tensors", "inputs_embeds"})


@dataclass(frozen=True)
class Renamed:
    """A method of vLLM's models that was renamed."""

    old: str
    new: str
    takes_input: bool  # transformers has a method of the old name, which takes no argument


RENAMED = (
    Renamed("get_multimodal_embeddings", "embed_multimodal", takes_input=False),
    Renamed("get_input_embeddings", "embed_input_ids", takes_input=True),
)


def definitions(run: Plan, file: FilePlan, method: Renamed) -> Iterator[tuple[Class, AnyFunction]]:
    """Definitions under the old name in classes that vLLM calls by the new one; not where a class has both."""
    for node in file.file.class_nodes:
        cls = Class(file.file, node)
        function = cls.own(method.old)
        if function is not None and is_renamed(run, cls, method) and not file.gone(function):
            yield cls, function


def is_renamed(run: Plan, cls: Class, method: Renamed) -> bool:
    """Whether the definition that a class has of its own under the old name has to go by the new one."""
    function = cls.own(method.old)
    if function is None or run.of(cls.file).read_only or not _is_method(function, method):
        return False
    if is_dead(run, cls):
        return False
    family = [cls, *run.project.subclasses.get(cls.qualified, [])]
    return any(called_by_vllm(run, member, method) for member in family)


def is_dead(run: Plan, cls: Class) -> bool:
    """Whether a class already has the new name of either method: then nothing calls the old ones."""
    return any(run.project.method(cls, method.new) is not None for method in RENAMED)


def called_by_vllm(run: Plan, cls: Class, method: Renamed) -> bool:
    """Whether vLLM calls the method on such a class, by its new name."""
    if contracts.renamed(run, contracts.heritage(run, cls).bases, method.old, method.new):
        return True
    return method.takes_input and method.new in contracts.members(run, _MODEL) and _is_language_model(run, cls)


def _is_language_model(run: Plan, cls: Class) -> bool:
    """Whether vLLM can build a class as a model of its own and generate text with it.

    That needs no base of vLLM's. A draft model, which is fed hidden states, is called in another way.
    """
    constructor, forward = (run.project.method(cls, name) for name in ("__init__", "forward"))
    if constructor is None or forward is None or run.project.method(cls, "compute_logits") is None:
        return False
    taken = set(forward.parameters)
    return "vllm_config" in constructor.parameters and {"input_ids", "positions"} <= taken <= _MODEL_INPUTS


def _is_method(function: AnyFunction, method: Renamed) -> bool:
    return not function.decorator_list and (not method.takes_input or len(parameters(function)) > 1)


# -- what a call reaches -----------------------------------------------------------------------------------------------


def reaches_new(run: Plan, file: ParsedFile, receiver: ast.expr, method: Renamed) -> bool | None:
    """Whether what an expression holds has the method by its new name; None if that cannot be known."""
    owner = file.class_of(receiver)
    if _is_super(receiver) and owner is not None:
        cls = Class(file, owner)
        above = next((c for c in list(run.project.bases(cls))[1:] if c.own(method.old) is not None), None)
        return is_renamed(run, above, method) if above is not None else _extends_renamed(run, cls, method)
    if isinstance(receiver, ast.Name) and receiver.id == "self" and owner is not None:
        return _class_has_new(run, Class(file, owner), method)
    return _value_has_new(run, file, receiver, method)


def _class_has_new(run: Plan, cls: Class, method: Renamed) -> bool | None:
    holder = next((c for c in run.project.bases(cls) if c.own(method.old) is not None), None)
    if holder is not None:
        return is_renamed(run, holder, method)
    return _extends_renamed(run, cls, method)


def _extends_renamed(run: Plan, cls: Class, method: Renamed) -> bool | None:
    bases = contracts.heritage(run, cls).bases
    known = [now for base in bases if {method.old, method.new} & (now := contracts.members(run, base))]
    return method.old not in known[0] if known else None


def _value_has_new(run: Plan, file: ParsedFile, value: ast.expr, method: Renamed) -> bool | None:
    """By what made the value; what is inside of one of vLLM's models is called like the model."""
    answers: set[bool | None] = set()
    for home, call in run.project.makers(file, value):
        if run.project.meaning(home, call.func) == "typing.cast":
            continue  # of a value that something else made
        cls = run.project.class_named(home, call.func)
        if cls is not None:
            answers.add(_class_has_new(run, cls, method))
            continue
        name = run.project.vllm(home, call.func)
        known = _vllm_has_new(run, name, method) if name is not None else None
        if known is None and name is not None and keyword(call, "vllm_config") is not None:
            known = method.new in contracts.members(run, _MODEL)  # whichever model vLLM makes there
        answers.add(known)
    if not answers and isinstance(value, ast.Attribute):
        holders = run.project.makers(file, value.value)
        if holders and all(
            run.project.class_named(h, c.func) is None and run.project.vllm(h, c.func) for h, c in holders
        ):
            return _value_has_new(run, file, value.value, method)
    owner = file.class_of(value)
    attribute = self_attribute(value)
    if not answers and attribute is not None and owner is not None:
        bases = contracts.contracts(run, Class(file, owner))
        if any(attribute in contracts.members(run, base) for base in bases):
            return method.new in contracts.members(run, _MODEL)  # a model that vLLM's own class has built
    if not answers and isinstance(value, ast.Name):
        return _annotated_has_new(run, file, value, method)
    return answers.pop() if len(answers) == 1 else None


def _annotated_has_new(run: Plan, file: ParsedFile, name: ast.Name, method: Renamed) -> bool | None:
    bound = file.bound(name.id, name)
    annotation = bound[0].annotation if len(bound) == 1 and isinstance(bound[0], ast.arg) else None
    if annotation is None:
        return None
    cls = run.project.class_named(file, annotation)
    if cls is not None:
        return _class_has_new(run, cls, method)
    vllm = run.project.vllm(file, annotation)
    return _vllm_has_new(run, vllm, method) if vllm is not None else None


def _vllm_has_new(run: Plan, name: str, method: Renamed) -> bool | None:
    """A vLLM class by its members, at the target or in the last release that has it."""
    now = contracts.members(run, name)
    if not now:
        now = next((api.members(there) for api, there in contracts.before(run, name)), frozenset())
    return method.old not in now if now & {method.old, method.new} else None


def _is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"

"""Whether calls of vLLM's functions and classes bind to the signatures of a release."""

from __future__ import annotations

import ast

from codemods.parsed_file import ParsedFile, dotted, self_attribute
from codemods.project import Project
from codemods.vision_attention import vocabulary as V
from codemods.vllm_api import Api, Signature


def why_not(api: Api, qualified: str, call: ast.Call) -> str | None:
    """One sentence why a call of a vLLM name does not bind at this release; None if it does or cannot be known."""
    signature = api.signature(qualified)
    return None if signature is None else binds(signature, call)


def why_not_instance(api: Api, qualified: str, call: ast.Call) -> str | None:
    """The same for a call of an instance of a vLLM class."""
    signature = api.call_signature(qualified)
    return None if signature is None else binds(signature, call)


def binds(signature: Signature, call: ast.Call) -> str | None:
    """One sentence why a call does not bind to a signature; None if it does or cannot be known."""
    stars = [a for a in call.args if isinstance(a, ast.Starred)]
    names = [k.arg for k in call.keywords if k.arg is not None]
    return signature.binds(
        len(call.args) - len(stars), names, star=bool(stars), double_star=len(names) < len(call.keywords)
    )


def unpacked(file: ParsedFile, call: ast.Call) -> ast.Call:
    """The call with `**kw` written out, where that is a local dict that is only unpacked; else as it is."""
    keywords: list[ast.keyword] = []
    for word in call.keywords:
        inner = _entries(file, word.value) if word.arg is None and isinstance(word.value, ast.Name) else None
        keywords += [word] if inner is None else inner
    return call if keywords == call.keywords else ast.Call(call.func, call.args, keywords)


def _entries(file: ParsedFile, name: ast.Name) -> list[ast.keyword] | None:
    """What a local name that is bound once to `dict(a=...)` or `{"a": ...}`, and only unpacked, holds."""
    bound = file.bound(name.id, name)
    assign = file.parents.get(bound[0]) if len(bound) == 1 and isinstance(bound[0], ast.Name) else None
    if not isinstance(assign, ast.Assign) or assign.targets != bound:
        return None
    if any(not isinstance(file.parents[read], ast.keyword) for read in file.reads.get(name.id, ())):
        return None
    value = assign.value
    if isinstance(value, ast.Call) and dotted(value.func) == "dict" and not value.args:
        return value.keywords if all(word.arg for word in value.keywords) else None
    if isinstance(value, ast.Dict):
        keys = [key.value if isinstance(key, ast.Constant) else None for key in value.keys]
        pairs = [ast.keyword(key, item) for key, item in zip(keys, value.values) if isinstance(key, str)]
        return pairs if len(pairs) == len(keys) else None
    return None


def encoder_attention_calls(project: Project, file: ParsedFile) -> list[tuple[ast.Call, str]]:
    """Calls of attributes that hold MMEncoderAttention, with the class's dotted name."""
    held: dict[tuple[ast.ClassDef, str], str] = {}
    for node in file.nodes[ast.Call]:
        if isinstance(node, ast.Call) and V.vllm_call(project, file, node, V.ENCODER_ATTENTION):
            statement = file.parents[node]
            cls = file.class_of(node)
            if isinstance(statement, ast.Assign) and cls is not None:
                for target in statement.targets:
                    name = self_attribute(target)
                    if name is not None:
                        held[(cls, name)] = project.vllm(file, node.func) or ""
    if not held:
        return []
    return [
        (node, held[(cls, name)])
        for node in file.nodes[ast.Call]
        if isinstance(node, ast.Call)
        and (name := self_attribute(node.func)) is not None
        and (cls := file.class_of(node)) is not None
        and (cls, name) in held
    ]

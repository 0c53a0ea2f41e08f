"""Whether calls of vLLM's functions and classes bind to the signatures of a release."""

from __future__ import annotations

import ast

from codemods.parsed_file import ParsedFile, self_attribute
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

"""Embeddings of images merged into those of the text: what a model does by hand, and what its interface does."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from codemods import vllm_contracts as contracts
from codemods.embed_methods import RENAMED, is_renamed, reaches_new
from codemods.parsed_file import default_of, dotted, parameters, same, self_attribute
from codemods.plan import FilePlan, Plan
from codemods.project import AnyFunction, Class
from codemods.uses import is_pure
from codemods.vllm_api import Signature

EMBED = RENAMED[1]
UTILS = "vllm.model_executor.models.utils"
MERGE, MERGE_BY_MASK = "merge_multimodal_embeddings", "_merge_multimodal_embeddings"
INTERFACE = f"{contracts.INTERFACES}.SupportsMultiModal"
MASK = "is_multimodal"

_MERGED = ("input_ids", "inputs_embeds", "multimodal_embeddings", "placeholder_token_id")


@dataclass(frozen=True)
class Override:
    """A model's own method for the embeddings of its input, which vLLM calls with what it is to merge."""

    cls: Class
    function: AnyFunction
    interface: Signature  # how vLLM calls it at the target

    @property
    def input_ids(self) -> str:
        return parameters(self.function)[1].arg

    @property
    def embeddings(self) -> str | None:
        named = parameters(self.function)[2:3]
        return named[0].arg if named else None

    @property
    def missing(self) -> tuple[str, ...]:
        """Parameters that vLLM's interface has, and this method does not take."""
        if self.function.args.kwarg is not None:
            return ()
        own = {p.arg for p in parameters(self.function)}
        return tuple(p.name for p in self.interface.parameters if p.kind.value == "keyword-only" and p.name not in own)


def overrides(run: Plan, file: FilePlan) -> Iterator[Override]:
    """The methods of a file's classes that vLLM calls to embed and to merge, under their old name or the new one."""
    signature = contracts.signature(run, INTERFACE, EMBED.new)
    if signature is None:
        return
    for node in file.file.class_nodes:
        cls = Class(file.file, node)
        function = cls.own(EMBED.new) or (cls.own(EMBED.old) if is_renamed(run, cls, EMBED) else None)
        if function is None or file.gone(function) or len(parameters(function)) < 2 or function.decorator_list:
            continue
        called = next((s for b in contracts.contracts(run, cls) if (s := contracts.signature(run, b, EMBED.new))), None)
        if called is not None and MASK in called:
            yield Override(cls, function, called)


def merges(run: Plan, file: FilePlan, inside: ast.AST | None = None) -> list[ast.Call]:
    """Calls of vLLM's function that found the places to merge into by the ids of tokens."""
    nodes = file.file.nodes[ast.Call] if inside is None else file.file.below(inside)
    return [
        node
        for node in nodes
        if isinstance(node, ast.Call) and run.project.vllm(file.file, node.func) == f"{UTILS}.{MERGE}"
    ]


def arguments(call: ast.Call) -> dict[str, ast.expr] | None:
    """The arguments of such a call by the names of their parameters; None if they are not written out."""
    if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
        return None
    given = {**dict(zip(_MERGED, call.args)), **{str(k.arg): k.value for k in call.keywords}}
    return given if given.keys() == set(_MERGED) else None


def may_go(run: Plan, file: FilePlan, override: Override) -> bool:
    """Whether the interface that the class extends does all that its own method does."""
    function, embeddings = override.function, override.embeddings
    if embeddings is None or len(parameters(function)) != 3 or function.args.kwarg or function.args.vararg:
        return False
    if default_of(function, parameters(function)[2]) is None:
        return False
    model = _embedding_model(override, [s for s in function.body if not _is_text(s)], embeddings)
    return (
        model is not None
        and _is_language_model(run, override.cls, model)
        and reaches_new(run, file.file, model, EMBED) is True
        and _inherits_interface(run, override.cls)
    )


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _embedding_model(override: Override, body: list[ast.stmt], embeddings: str) -> ast.expr | None:
    """The model whose embeddings of the text are merged into, if that is all that the statements do."""
    if len(body) not in (3, 4) or not isinstance(body[0], ast.Assign) or not isinstance(body[0].targets[0], ast.Name):
        return None
    text, result = body[0].value, body[0].targets[0]
    if len(body) == 3 and isinstance(body[1], ast.If) and not body[1].orelse:  # if given: merge
        if not _is_given(body[1].test, embeddings) or len(body[1].body) != 1:
            return None
        merge = body[1].body[0]
    elif len(body) == 4 and isinstance(body[1], ast.If) and not body[1].orelse:  # if not given: return
        early = body[1].body
        if not _is_missing(body[1].test, embeddings) or len(early) != 1 or not _returns(early[0], result.id):
            return None
        merge = body[2]
    else:
        return None
    if not _returns(body[-1], result.id) or not _merges_into(override, merge, result.id, embeddings):
        return None
    if not isinstance(text, ast.Call) or not isinstance(text.func, ast.Attribute):
        return None
    if text.func.attr not in (EMBED.old, EMBED.new) or text.keywords or len(text.args) != 1:
        return None
    return text.func.value if _is_name(text.args[0], override.input_ids) else None


def _merges_into(override: Override, statement: ast.stmt, result: str, embeddings: str) -> bool:
    if not isinstance(statement, ast.Assign) or not _is_name(statement.targets[0], result):
        return False
    given = arguments(statement.value) if isinstance(statement.value, ast.Call) else None
    return (
        given is not None
        and dotted(statement.value.func) is not None  # type: ignore[attr-defined]
        and (dotted(statement.value.func) or "").rpartition(".")[2] == MERGE  # type: ignore[attr-defined]
        and [_is_name(given[n], w) for n, w in zip(_MERGED, (override.input_ids, result, embeddings))] == [True] * 3
        and is_pure(given["placeholder_token_id"])
    )


def _is_name(node: ast.AST | None, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _returns(statement: ast.stmt, name: str) -> bool:
    return isinstance(statement, ast.Return) and _is_name(statement.value, name)


def _is_given(test: ast.expr, name: str) -> bool:
    """`x is not None`, `x`, `len(x) != 0`, and several of these."""
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    return all(_is_name(p, name) or _compares(p, name, (ast.IsNot, ast.NotEq, ast.Gt)) for p in parts)


def _is_missing(test: ast.expr, name: str) -> bool:
    """`x is None`, `not x`, `len(x) == 0`, and one of several."""
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) else [test]
    return all(
        (isinstance(p, ast.UnaryOp) and isinstance(p.op, ast.Not) and _is_name(p.operand, name))
        or _compares(p, name, (ast.Is, ast.Eq))
        for p in parts
    )


def _compares(test: ast.expr, name: str, operators: tuple[type[ast.cmpop], ...]) -> bool:
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], operators):
        return False
    other = test.comparators[0]
    if isinstance(test.ops[0], (ast.Is, ast.IsNot)):
        return _is_name(test.left, name) and isinstance(other, ast.Constant) and other.value is None
    length = isinstance(test.left, ast.Call) and _is_name(test.left.func, "len") and _is_name(test.left.args[0], name)
    return length and isinstance(other, ast.Constant) and other.value == 0


def _is_language_model(run: Plan, cls: Class, model: ast.expr) -> bool:
    """Whether the interface finds the same model: by get_language_model, which returns it."""
    getter = run.project.method(cls, "get_language_model")
    if getter is None:
        return False
    if isinstance(model, ast.Call) and self_attribute(model.func) == "get_language_model":
        return True
    body = [s for s in getter.node.body if not _is_text(s)]
    return len(body) == 1 and isinstance(body[0], ast.Return) and same(body[0].value, model)


def _inherits_interface(run: Plan, cls: Class) -> bool:
    """Whether the class would have the interface's own method: nothing else that it extends has one."""
    own = list(run.project.bases(cls))[1:]
    if any(c.own(name) is not None for c in own for name in (EMBED.old, EMBED.new)):
        return False
    heritage = contracts.heritage(run, cls)
    homes = [contracts.home(run, base) for base in heritage.bases]
    definers = [run.api.definer(home, EMBED.new) for home in homes if home is not None]
    found = next((definer for definer in definers if definer is not None), None)
    return heritage.closed and None not in homes and found is not None and found == INTERFACE


def handed_on(override: Override, name: str) -> list[ast.keyword] | None:
    """The keywords by which a parameter is passed on to the interface's methods, if nothing else reads it."""
    found = [
        word
        for call in ast.walk(override.function)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        if call.func.attr in (EMBED.old, EMBED.new, "_embed_text_input_ids")
        for word in call.keywords
        if word.arg == name and _is_name(word.value, name)
    ]
    reads = [n for n in ast.walk(override.function) if isinstance(n, ast.Name) and n.id == name]
    return found if len(found) == len(reads) else None


def flag(override: Override, name: str) -> bool | None:
    """What a flag of the method is by default."""
    parameter = next((p for p in parameters(override.function) if p.arg == name), None)
    value = default_of(override.function, parameter) if parameter is not None else None
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, bool) else None

"""Proves that an attention held in an attribute is only ever called as self-attention, or says what could not be shown.

vLLM's encoder attention measures k and v by q's length on some devices: every call must give it q, k and v of one batch
and one sequence.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from codemods.parsed_file import FunctionNode, ParsedFile, dotted, parameters, self_attribute
from codemods.project import AnyFunction, Class, Project
from codemods.vision_attention.flow import Flow
from codemods.vision_attention.flow_calls import Record
from codemods.vision_attention.held_attention import (
    KEEP_SDPA,
    SHOW,
    Held,
    Problem,
    follow_reference,
    from_outside,
    is_read,
)
from codemods.vision_attention.shapes import AnyValue, Table, Value


def held_in_attribute(
    project: Project, cls: Class, attribute: str, construction: ast.AST, lost: frozenset[str]
) -> Held:
    """An attention that `construction` puts into `self.<attribute>` of a class. `lost`: attributes it will not have."""
    table = Table()
    flow = Flow(project, table, {f"self.{attribute}"})
    family = [cls, *(s for s in project.subclasses.get(cls.qualified, ()) if _builds(project, cls, s, construction))]
    for member in family:
        for home, function in _entries(project, member):
            flow.enter(member, home, function, {})
    held = Held()
    _judge(held, flow, cls, family)
    references = [
        (m.file, n)
        for m in _with_bases(project, family)
        for n in m.file.below(m.node)
        if self_attribute(n) == attribute and is_read(n)
    ]
    for file, node in references:
        follow_reference(held, file, node, cls, attribute, lost)
    for file, node in from_outside(project, family, attribute):
        held.problems.append(
            Problem(file, node, f"the attention of {cls.node.name} is used from outside of the class", SHOW)
        )
    if not held.calls and not held.problems:
        held.problems.append(
            Problem(
                cls.file,
                construction,
                f"no call of self.{attribute} was found, so it is not shown to be self-attention",
                SHOW,
            )
        )
    return held


def held_as_self(project: Project, cls: Class, rank: int | None) -> Held:
    """A subclass of the attention: what it hands on to its base, if it is itself given q, k and v of one sequence."""
    table = Table()
    flow = Flow(project, table, {"self", "super()"})
    for home, function in _entries(project, cls):
        given: dict[str, AnyValue] = {}
        if function.name == "forward":
            lead = [table.token("given", place) for place in ("batch", "sequence")]
            given = {a.arg: table.value(table.token("given", a.arg), rank, lead) for a in parameters(function)[1:4]}
        flow.enter(cls, home, function, given)
    held = Held()
    _judge(held, flow, cls, [cls])
    judged = {*held.calls, *(p.node for p in held.problems)}
    for node in cls.file.below(cls.node):
        called = (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("forward", "__call__")
        )
        if (
            called
            and isinstance(node, ast.Call)
            and _on_itself(node)
            and node not in judged
            and cls.own("forward") is None
        ):
            held.problems.append(Problem(cls.file, node, f"a call in {cls.node.name} could not be followed", SHOW))
    return held


def _on_itself(node: ast.Call) -> bool:
    of = node.func.value if isinstance(node.func, ast.Attribute) else None
    return dotted(of) == "self" or (isinstance(of, ast.Call) and dotted(of.func) == "super")


# -- where to start ------------------------------------------------------------------------------------------------


def _entries(project: Project, cls: Class) -> Iterator[tuple[Class, AnyFunction]]:
    """Methods to follow from outside: all that the class has, less those that its other methods call."""
    methods: dict[str, tuple[Class, AnyFunction]] = {}
    for home in project.bases(cls):
        for node in home.node.body:
            if isinstance(node, FunctionNode) and not any(
                dotted(d) in ("staticmethod", "classmethod") for d in node.decorator_list
            ):
                methods.setdefault(node.name, (home, node))
    inner = {
        name
        for home, node in methods.values()
        for call in home.file.below(node)
        if isinstance(call, ast.Call) and (name := self_attribute(call.func)) is not None
    }
    yield from (
        entry for name, entry in methods.items() if name == "forward" or (name not in inner and parameters(entry[1]))
    )


def _builds(project: Project, cls: Class, subclass: Class, construction: ast.AST) -> bool:
    """Whether a subclass may hold the attention: not if it passes another member of an enum than the one asked for.

    `if kind == Kind.A: self.attn = ...` in the constructor, and `super().__init__(kind=Kind.B)` in the subclass.
    """
    constructor, own = cls.own("__init__"), subclass.own("__init__")
    if constructor is None or own is None:
        return True
    calls = [
        n for n in subclass.file.below(own) if isinstance(n, ast.Call) and project.callee(subclass.file, n) is not None
    ]
    calls = [n for n in calls if getattr(project.callee(subclass.file, n), "node", None) is constructor]
    if len(calls) != 1:
        return True
    reached = project.callee(subclass.file, calls[0])
    given = (reached.passed(calls[0]) if reached is not None else None) or {}
    below = construction
    for above in cls.file.above(construction):
        if (
            isinstance(above, ast.If)
            and below in above.body
            and isinstance(above.test, ast.Compare)
            and isinstance(above.test.ops[0], ast.Eq)
        ):
            parameter, member = above.test.left, above.test.comparators[0]
            if isinstance(parameter, ast.Name) and _never_set(constructor, parameter.id):
                wanted, passed = (
                    project.meaning(cls.file, member),
                    project.meaning(subclass.file, given.get(parameter.id)),
                )
                if wanted and passed and wanted != passed and wanted.rpartition(".")[0] == passed.rpartition(".")[0]:
                    return False
        below = above
    return True


def _never_set(function: AnyFunction, name: str) -> bool:
    return not any(
        isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in ast.walk(function)
    )


def _with_bases(project: Project, family: Sequence[Class]) -> list[Class]:
    found = {base.qualified: base for member in family for base in project.bases(member)}
    return list(found.values())


# -- the calls -----------------------------------------------------------------------------------------------------


def _judge(held: Held, flow: Flow, cls: Class, family: Sequence[Class]) -> None:
    for record in flow.records:
        file = next((m.file for m in family if record.call in m.file.parents), cls.file)
        tensors = _three(record)
        if tensors is None:
            if record.arguments is None:
                held.problems.append(
                    Problem(
                        file,
                        record.call,
                        f"{cls.node.name} hides what it calls its attention with (*args, **kwargs)",
                        SHOW,
                    )
                )
            else:
                message = f"{cls.node.name} calls its attention with more than query, key and value"
                held.problems.append(
                    Problem(
                        file,
                        record.call,
                        message,
                        "MMEncoderAttention has no mask, bias or causal mode: keep this attention on torch SDPA.",
                    )
                )
            continue
        query, key, value = tensors
        if query.lead == key.lead == value.lead:
            flat = held.calls.get(record.call, (file, True))[1]
            held.calls[record.call] = (file, flat and query.rank == 3)
        else:
            held.problems.append(_differing(file, record.call, cls, tensors, flow.unclear))


def _three(record: Record) -> list[Value] | None:
    if record.arguments is None or set(record.keywords) - {"query", "key", "value"}:
        return None
    given = [*record.arguments, *(record.keywords[n] for n in ("query", "key", "value") if n in record.keywords)]
    return (
        [v for v in given if isinstance(v, Value)]
        if len(given) == 3 and all(isinstance(v, Value) for v in given)
        else None
    )


def _differing(file: ParsedFile, call: ast.Call, cls: Class, tensors: Sequence[Value], unknown: set[str]) -> Problem:
    query, *others = tensors
    of_query = {root for axis in query.lead for root in axis.roots}
    of_others = {root for tensor in others for axis in tensor.lead for root in axis.roots}
    if of_others - of_query:
        inputs = ", ".join(sorted(of_others - of_query))
        message = f"{cls.node.name} may be cross-attention: k and v also come from {inputs}, q does not"
        return Problem(file, call, message, KEEP_SDPA)
    if of_query - of_others:
        inputs = ", ".join(sorted(of_query - of_others))
        message = f"{cls.node.name} may be cross-attention: q also comes from {inputs}, k and v do not"
        return Problem(file, call, message, KEEP_SDPA)
    why = f": it is not known what {', '.join(sorted(unknown))} makes of it" if unknown else ""
    return Problem(file, call, f"q, k and v of {cls.node.name} are not shown to be of one length{why}", SHOW)

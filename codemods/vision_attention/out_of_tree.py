"""Out-of-tree ops: subclasses of MMEncoderAttention, and how device plugins register them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from codemods.parsed_file import keyword
from codemods.plan import FilePlan, Plan
from codemods.project import Class
from codemods.target import OLDEST, release_key, target
from codemods.vision_attention import vocabulary as V
from codemods.vllm_api import Api, releases

REGISTER = "register_oot"
CUSTOM_OP = "vllm.model_executor.custom_op.CustomOp"


@dataclass(frozen=True, eq=False)
class Registration:
    """One registration: under which name (None where that cannot be told), and of which class of the run."""

    file: FilePlan
    node: ast.AST
    name: str | None
    cls: Class | None


@dataclass(frozen=True, eq=False)
class Op:
    """A class that derives from MMEncoderAttention. `registered`: a plugin puts it in its place, so vLLM builds it."""

    file: FilePlan
    cls: Class
    registered: bool

    @property
    def name(self) -> str:
        return self.cls.node.name


def qualified(version: str) -> str:
    """MMEncoderAttention of a release by its dotted name."""
    return f"{target(version).encoder_attention}.{V.ENCODER_ATTENTION}"


@cache
def ever() -> frozenset[str]:
    """Methods and attributes that MMEncoderAttention has had in some release."""
    known = [r for r in releases() if release_key(r) >= release_key(OLDEST)]
    return frozenset().union(*(Api.of(release).members(qualified(release)) for release in known))


def is_base(run: Plan, file: FilePlan, node: ast.AST) -> bool:
    """Whether an expression is vLLM's MMEncoderAttention."""
    return V.last(run.project.vllm(file.file, node, node)) == V.ENCODER_ATTENTION


def derives(run: Plan, cls: Class) -> bool:
    """Whether a class of the run has vLLM's MMEncoderAttention among its bases."""
    return any(
        is_base(run, run.of(member.file), base) for member in run.project.bases(cls) for base in member.node.bases
    )


def ops(run: Plan, registrations: list[Registration]) -> list[Op]:
    """The classes of the run that derive from MMEncoderAttention."""
    registered = {r.cls.node for r in registrations if r.cls is not None and r.name == V.ENCODER_ATTENTION}
    return [
        Op(file, cls, node in registered or cls.own("forward_oot") is not None)
        for file in run.open_vision
        for node in file.file.class_nodes
        if derives(run, cls := Class(file.file, node))
    ]


def registrations(run: Plan) -> list[Registration]:
    """Every registration of an out-of-tree op: by decorator, by call, or by a loop over a table."""
    found: list[Registration] = []
    for file in run.open_files:
        if REGISTER not in file.file.text:
            continue
        for node in file.file.class_nodes:
            for decorator in node.decorator_list:
                call = decorator if isinstance(decorator, ast.Call) else None
                owner = _owner(run, file, call.func if call is not None else decorator)
                if owner is not None:
                    name = _name(call, owner) if call is not None else owner
                    found.append(Registration(file, decorator, name, Class(file.file, node)))
        for site in file.file.nodes[ast.Call]:
            owner = _owner(run, file, site.func) if isinstance(site, ast.Call) else None
            if owner is not None and isinstance(site, ast.Call):
                found += _by_call(run, file, site, owner)
    return found


def _owner(run: Plan, file: FilePlan, node: ast.AST) -> str | None:
    """The name of the class whose `register_oot` an expression is; None if it is none of vLLM's."""
    if not isinstance(node, ast.Attribute) or node.attr != REGISTER:
        return None
    cls = run.project.class_named(file.file, node.value)
    if cls is not None:
        return cls.node.name if derives(run, cls) else None
    return V.last(run.project.vllm(file.file, node.value, node.value))


def _name(call: ast.Call, owner: str) -> str | None:
    given = keyword(call, "name") or (call.args[1] if len(call.args) > 1 else None)
    if given is None or (isinstance(given, ast.Constant) and given.value is None):
        return owner
    return given.value if isinstance(given, ast.Constant) and isinstance(given.value, str) else None


def _by_call(run: Plan, file: FilePlan, call: ast.Call, owner: str) -> Iterator[Registration]:
    above = file.file.parents[call]
    if isinstance(above, ast.ClassDef):
        return  # a decorator
    given = keyword(call, "_decorated_op_cls") or (call.args[0] if call.args else None)
    if given is None and isinstance(above, ast.Call) and above.func is call and above.args:
        given = above.args[0]  # register_oot(name=...)(cls)
    if given is None:
        return
    table = _table(file, call, given)
    if table is None:
        yield Registration(file, call, _name(call, owner), run.project.class_named(file.file, given))
        return
    for key, value in zip(table.keys, table.values):
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield Registration(file, key, key.value, run.project.class_named(file.file, value))


def _table(file: FilePlan, call: ast.Call, given: ast.expr) -> ast.Dict | None:
    """The table of a loop `for name, cls in TABLE.items(): register_oot(cls, name)`."""
    loop = next((n for n in file.file.above(call) if isinstance(n, ast.For)), None)
    if (
        loop is None
        or not isinstance(loop.target, ast.Tuple)
        or len(loop.target.elts) != 2
        or ast.unparse(loop.target.elts[1]) != ast.unparse(given)
        or not isinstance(loop.iter, ast.Call)
        or not isinstance(loop.iter.func, ast.Attribute)
        or loop.iter.func.attr != "items"
    ):
        return None
    name = ast.unparse(loop.iter.func.value)
    tables = [
        step.value
        for step in [*file.file.nodes[ast.Assign], *file.file.nodes[ast.AnnAssign]]
        if isinstance(step, (ast.Assign, ast.AnnAssign))
        and isinstance(step.value, ast.Dict)
        and name in [ast.unparse(t) for t in (step.targets if isinstance(step, ast.Assign) else [step.target])]
    ]
    return tables[0] if len(tables) == 1 else None

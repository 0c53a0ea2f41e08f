"""VA701: names, attributes, emptied branches and imports that the other edits left without a reader go as well."""

from __future__ import annotations

import ast

from codemods import edits as E
from codemods.findings import Severity
from codemods.parsed_file import FunctionNode, self_attribute
from codemods.plan import FilePlan, Plan
from codemods.project import AnyFunction, Class
from codemods.rule import Example, Rule
from codemods.rules.dispatch_chain import _AFTER, _BEFORE
from codemods.uses import Uses, is_look_up, is_pure, only_asks, uses_of
from codemods.vllm_classes import stands_for


def plan(run: Plan) -> None:
    for file in run.open_files:
        if not file.edits:
            continue
        uses = uses_of(file)
        _locals(run, file, uses)
        if file in run.vision:
            _attributes(run, file, uses)
        _branches(run, file)
        _imports(run, file, uses)
        _helpers(run, file, uses)


def _locals(run: Plan, file: FilePlan, uses: Uses) -> None:
    """Assignments of a local name whose last reader is gone, where computing the value does nothing else."""
    for statement in {
        file.file.statement(node): None for name in uses.touched for node in file.file.writes.get(name, ())
    }:
        node = file.file.function(statement)
        if (
            node is None
            or not isinstance(statement, (ast.Assign, ast.AnnAssign))
            or statement.value is None
            or file.gone(statement)
        ):
            continue
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        if len(targets) != 1 or not (is_pure(statement.value) or is_look_up(run.project, file.file, statement.value)):
            continue
        target = targets[0]
        if isinstance(target, ast.Name):
            if uses.died(target.id, node):
                _remove(file, statement, f"{target.id} is no longer needed")
        elif isinstance(target, ast.Tuple) and all(isinstance(t, ast.Name) for t in target.elts):
            names = [t.id for t in target.elts if isinstance(t, ast.Name)]
            dead = [n for n in names if uses.died(n, node)]
            unread = [n for n in names if not uses.now(n, node) and not uses.in_new_code(n, node)]
            if not dead:
                continue
            if len(unread) == len(names):
                _remove(file, statement, f"{', '.join(dead)} is no longer needed")
            elif isinstance(statement.value, ast.Tuple) and len(statement.value.elts) == len(names):
                kept = [(n, ast.unparse(v)) for n, v in zip(names, statement.value.elts) if n not in dead]
                edits = [
                    E.ReplaceExpression(E.Ref.of(target), ", ".join(n for n, _ in kept)),
                    E.ReplaceExpression(E.Ref.of(statement.value), ", ".join(v for _, v in kept)),
                ]
                if edits[0] not in file.edits:
                    file.rewrite(RULE, statement, f"{', '.join(dead)} is no longer needed", edits)


def _remove(file: FilePlan, statement: ast.stmt, message: str) -> None:
    file.rewrite(RULE, statement, message, [E.ReplaceStatement(E.Ref.of(statement), "")])


def _attributes(run: Plan, file: FilePlan, uses: Uses) -> None:
    """Attributes that hold a backend nobody asks for any more, here or in a subclass."""
    accepted = {found.cls.node for found in run.attention(file)}
    for node in file.file.classes.values():
        cls = Class(file.file, node)
        constructor = cls.own("__init__")
        if constructor is None:
            continue
        family = [cls, *run.project.subclasses.get(cls.qualified, [])]
        if node in accepted:
            _constants(run, file, constructor, family)
            continue
        state = run.backend(file.file, constructor)
        theirs = {name for home in stands_for(run, cls) for name in run.api.members(home)}  # vLLM's methods read them
        for statement in state.statements:
            if file.gone(statement):
                continue
            names = _only_sets(statement)
            if (
                not names
                or not names <= state.names
                or names & theirs
                or not all(
                    _was_read(family, name) or name in _set_beside(state.statements, statement) for name in names
                )
            ):
                continue
            if any(_still_read(run, member, name) for member in family for name in names) or any(
                _read_from_outside(run, name) for name in names
            ):
                continue
            _remove(file, statement, f"{', '.join(f'self.{n}' for n in sorted(names))} is no longer needed")


def _constants(run: Plan, file: FilePlan, constructor: AnyFunction, family: list[Class]) -> None:
    """Attributes of an attention class that hold a constant which only the choice of its kernel asked for."""
    for statement in constructor.body:
        if (
            not isinstance(statement, ast.Assign)
            or not isinstance(statement.value, ast.Constant)
            or file.gone(statement)
        ):
            continue
        names = _only_sets(statement)
        if names and all(
            _was_read(family, name)
            and not any(_still_read(run, member, name) for member in family)
            and not _read_from_outside(run, name)
            for name in names
        ):
            _remove(file, statement, f"{', '.join(f'self.{n}' for n in sorted(names))} is no longer needed")


def _only_sets(statement: ast.stmt) -> set[str]:
    """Attributes of self that a statement sets, if it does nothing else; `if` statements that only set such
    included."""
    if isinstance(statement, ast.If):
        inner = [_only_sets(s) for s in [*statement.body, *statement.orelse]]
        return set().union(*inner) if all(inner) else set()
    if isinstance(statement, (ast.Assign, ast.AnnAssign)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        names = [
            self_attribute(t)
            for target in targets
            for t in (target.elts if isinstance(target, ast.Tuple) else [target])
        ]
        return {n for n in names if n} if all(names) else set()
    return set()


def _set_beside(statements: tuple[ast.stmt, ...], own: ast.stmt) -> set[str]:
    return {name for statement in statements if statement is not own for name in _only_sets(statement)}


def _was_read(family: list[Class], name: str) -> bool:
    return any(
        isinstance(n, ast.Attribute) and n.attr == name and isinstance(n.ctx, ast.Load)
        for c in family
        for n in c.file.below(c.node)
    )


def _still_read(run: Plan, cls: Class, name: str) -> bool:
    return uses_of(run.of(cls.file)).attribute_read(name, cls.node)


def _read_from_outside(run: Plan, name: str) -> bool:
    """`tower.attn_backend`: read through something else than self, anywhere in the run."""
    for plan_ in run.files:
        for node in plan_.file.nodes[ast.Attribute]:
            if (
                isinstance(node, ast.Attribute)
                and node.attr == name
                and isinstance(node.ctx, ast.Load)
                and self_attribute(node) is None
                and not plan_.gone(node)
            ):
                return True
    return False


def _branches(run: Plan, file: FilePlan) -> None:
    """`if` statements (and `elif` arms) with nothing left in them, where asking the question does nothing else."""
    for node in reversed(file.file.nodes[ast.If]):
        if not isinstance(node, ast.If) or file.gone(node) or not all(_emptied(file, s) for s in node.body):
            continue
        if node.orelse and not all(_emptied(file, s) for s in node.orelse):
            if len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
                continue
            continue
        if only_asks(run.project, file.file, node.test):
            _remove(file, node, "the branch has nothing left to do")


def _emptied(file: FilePlan, statement: ast.stmt) -> bool:
    ref = E.Ref.of(statement)
    return any(isinstance(e, E.ReplaceStatement) and not e.code and e.statement.contains(ref) for e in file.edits)


def _imports(run: Plan, file: FilePlan, uses: Uses) -> None:
    """Imports whose last reader is gone. A package's own file re-exports, so its imports stay."""
    if file.file.is_package:
        return
    exported = file.file.exported
    for imported in file.file.imports:
        if imported.alias in exported or file.gone(imported.statement) or (imported.name or imported.module) == "*":
            continue
        inside = None if isinstance(imported.scope, ast.Module) else imported.scope
        if imported.scope is not file.file.tree and not isinstance(imported.scope, FunctionNode):
            continue
        if (
            not uses.before(imported.alias, inside)
            or uses.now(imported.alias, inside)
            or uses.in_new_code(imported.alias, inside)
        ):
            continue
        if run.taken(file, imported.alias):
            continue
        block = file.file.parents[imported.statement]
        if isinstance(block, ast.Try):
            if _only_for(block, imported.alias):
                _remove(file, block, f"{imported.alias} is no longer imported")
            continue
        name = imported.name or imported.module
        if any(a.name == name and (a.asname or a.name) != imported.alias for a in imported.statement.names):
            continue  # the same again under another local name, which the edit would take out as well
        edit = E.RemoveImport(E.Ref.of(imported.statement), name)
        if edit not in file.edits:
            file.rewrite(RULE, imported.statement, f"{imported.alias} is no longer imported", [edit])


def _only_for(block: ast.Try, name: str) -> bool:
    """`try: import name / except ImportError: name = None`, and nothing else."""
    handled = [s for h in block.handlers for s in h.body]
    harmless = all(
        isinstance(s, ast.Pass)
        or (
            isinstance(s, ast.Assign)
            and isinstance(s.value, ast.Constant)
            and all(isinstance(t, ast.Name) and t.id == name for t in s.targets)
        )
        for s in handled
    )
    first = block.body[0]
    alone = len(block.body) == 1 and isinstance(first, (ast.Import, ast.ImportFrom)) and len(first.names) == 1
    return harmless and alone and not block.orelse and not block.finalbody


def _helpers(run: Plan, file: FilePlan, uses: Uses) -> None:
    """Module-level functions whose last caller in the run is gone: a local rotary helper, say."""
    for node in file.file.functions:
        if node.name not in uses.touched or node.name in file.file.exported:
            continue
        if file.gone(node):
            continue
        own = {id(n) for n in file.file.below(node)}
        outside = [n for n in uses.before(node.name) if id(n) not in own]
        if not outside or any(not file.gone(n) for n in outside) or uses.in_new_code(node.name):
            continue
        if not run.taken(file, node.name):
            _remove(file, node, f"{node.name} is no longer called")


RULE = Rule(
    code="VA701",
    name="dead-code",
    summary="What the other rules left without a reader goes: names, attributes, branches, helpers, imports.",
    why=(
        "A rewrite that leaves unused names behind makes the next linter run fail and the next reader wonder. "
        "Only what lost its last "
        "reader through this run is taken out; what was unused before stays, and so does everything whose "
        "evaluation could do something."
    ),
    follows="nothing upstream: it cleans up after the other rules",
    names=frozenset(),
    plan=plan,
    examples=(Example(before=_BEFORE, after=_AFTER),),
    sweeps=True,
    unported=Severity.NOTE,
)

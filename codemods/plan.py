"""What rules write into: edits, rewrites and findings, file by file. Nothing is changed here."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from codemods import edits as E
from codemods.findings import Finding, Rewrite, Severity
from codemods.memory import Memory
from codemods.parsed_file import ParsedFile
from codemods.patches import Patches
from codemods.project import AnyFunction, Function, Project
from codemods.rule import Rule
from codemods.target import Target
from codemods.vision_attention import vocabulary as V
from codemods.vision_attention.attention_class import AttentionClass, RefusedClass, attention_classes
from codemods.vision_attention.backend import BackendState, backend_state
from codemods.vllm_api import Api

if TYPE_CHECKING:
    from codemods.guards.view import View


@dataclass(eq=False)
class FilePlan:
    """The plan for one file. `read_only` files are looked at for callers, never changed."""

    file: ParsedFile
    source: tuple[str, ...] = ()  # the releases the file may be written for; empty if its text does not tell
    read_only: bool = False
    view: View | None = None  # what became of the file's version guards; `file` is as the target runs it
    keeps_guards: bool = False  # what stands in a guard is left as it is
    edits: list[E.Edit] = field(default_factory=list)
    rewrites: list[Rewrite] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    rewritten: list[E.Ref] = field(default_factory=list)  # places that rewrites account for
    refused: list[E.Ref] = field(default_factory=list)  # places that findings account for
    removed: list[E.Ref] = field(default_factory=list)  # places whose code is gone
    by_rule: list[tuple[str, E.Edit]] = field(default_factory=list)  # who asked first for which edit
    inserted: list[tuple[E.Ref, str]] = field(default_factory=list)  # new code, and where
    uses: tuple[object, Any] | None = None  # kept by codemods.uses
    _lines: set[int] = field(default_factory=set)  # lines on which some removed place lies
    _seen: list[E.Ref] = field(default_factory=list)

    def rewrite(self, rule: Rule, node: ast.AST, message: str, edits: Iterable[E.Edit], *, review: str = "") -> None:
        """Record edits and the one line that tells a person of them."""
        self.rewrites.append(
            Rewrite(_line(node), rule.code, message, f"review: {review}" if review else rule.safety, rule.follows)
        )
        for edit in edits:
            self.add(edit)

    def add(self, edit: E.Edit) -> None:
        if edit in self.edits:
            return
        self.edits.append(edit)
        if isinstance(edit, (E.ReplaceStatement, E.ReplaceExpression)):
            self.rewritten.append(edit.statement if isinstance(edit, E.ReplaceStatement) else edit.expression)
        elif isinstance(edit, E.Rename) and edit.place.kind == "Attribute":
            self.rewritten.append(edit.place)
        elif isinstance(edit, E.RemoveImport):
            self.rewritten += [E.Ref.of(a) for a in self._aliases(edit)]
        if isinstance(edit, E.ReplaceStatement):
            self.removed.append(edit.statement)
            self.inserted.append((edit.statement, edit.code))
        elif isinstance(edit, E.ReplaceExpression):
            self.removed.append(edit.expression)
            self.inserted.append((edit.expression, edit.code))
        elif isinstance(edit, (E.InsertAfter, E.InsertBefore)):
            self.inserted.append((edit.statement, edit.code))

    def _aliases(self, edit: E.RemoveImport) -> list[ast.alias]:
        return [
            alias
            for kind in (ast.ImportFrom, ast.Import)
            for node in self.file.nodes[kind]
            if E.Ref.of(node) == edit.statement
            for alias in node.names  # type: ignore[attr-defined]
            if alias.name == edit.name
        ]

    def remove_argument(self, call: ast.Call, name: str) -> None:
        """Take a keyword argument out of a call; its value's code is gone."""
        self.add(E.RemoveArgument(E.Ref.of(call), name))
        words = [k for k in call.keywords if k.arg == name]
        self.removed += [E.Ref.of(k.value) for k in words]
        self.rewritten += [E.Ref.of(k) for k in words]

    def find(
        self, rule: Rule, node: ast.AST, severity: Severity, message: str, remedy: str, covers: ast.AST | None = None
    ) -> None:
        """Record a finding at `node` that accounts for every old name inside `covers` (default: `node`)."""
        column = len(self.file.lines[_line(node) - 1].encode()[: getattr(node, "col_offset", 0)].decode()) + 1
        finding = Finding(_line(node), column, rule.code, severity, message, remedy)
        if finding not in self.findings:
            self.findings.append(finding)
        self.refused.append(E.Ref.of(covers if covers is not None else node))

    def stays(self, node: ast.AST) -> bool:
        """Whether the node stands in a version guard that was asked to be kept."""
        if not self.keeps_guards or self.view is None:
            return False
        return any(E.Ref.of(guard).contains(E.Ref.of(node)) for guard in self.view.kept)

    def answered(self, call: ast.Call) -> bool:
        """Whether a rule gave this very call other arguments, or reported it."""
        ref = E.Ref.of(call)
        return ref in self.refused or any(getattr(edit, "call", None) == ref for edit in self.edits)

    def gone(self, node: ast.AST) -> bool:
        """Whether an edit takes this node's code away."""
        if len(self._seen) != len(self.removed):
            for place in self.removed[len(self._seen) :]:
                self._lines.update(range(place.line, place.end_line + 1))
            self._seen = [*self.removed]
        line = getattr(node, "lineno", None)
        if line is None or line not in self._lines:
            return False
        ref = E.Ref.of(node)
        return any(place.contains(ref) for place in self.removed)


@dataclass
class Plan:
    """The plan for a run."""

    project: Project
    target: Target
    api: Api
    files: list[FilePlan]
    keep_params: bool = False
    active: frozenset[str] = frozenset()  # codes of the rules that run
    elsewhere: Callable[[str, ParsedFile], bool] = lambda name, file: False  # a file that was not parsed has the name
    settled: set[tuple[str, int, str]] = field(default_factory=set)  # parameters that were decided on
    memory: Memory = field(default_factory=dict)
    _calls: list[tuple[FilePlan, ast.Call, Function | None]] | None = None
    _backends: dict[int, BackendState] = field(default_factory=dict)
    _reached: dict[int, Function] = field(default_factory=dict)
    _attention: dict[str, list[AttentionClass | RefusedClass]] = field(default_factory=dict)

    def attention(self, file: FilePlan) -> list[AttentionClass | RefusedClass]:
        """The file's classes that dispatch over attention kernels, accepted or refused."""
        module = file.file.module
        if module not in self._attention:
            self._attention[module] = (
                attention_classes(self.project, file.file, self.target, file.source) if file in self.vision else []
            )
        return self._attention[module]

    @cached_property
    def patches(self) -> Patches:
        """Places of vLLM's that files replace at run time."""
        return Patches(self.project)

    @cached_property
    def vision(self) -> list[FilePlan]:
        """Files that have a part in vision attention, and files that import from these."""
        own = [plan for plan in self.files if V.VISION.search(plan.file.text)]
        modules = {plan.file.module for plan in own}
        return [
            p
            for p in self.files
            if p in own or any(i.module in modules or i.qualified in modules for i in p.file.imports)
        ]

    @property
    def open_vision(self) -> list[FilePlan]:
        """Those of them that may be changed."""
        return [plan for plan in self.vision if not plan.read_only]

    def calls(self) -> list[tuple[FilePlan, ast.Call, Function | None]]:
        """Every call that may reach a function of the project, with the function where it is known."""
        if self._calls is None:
            self._calls = [
                (plan, node, self.project.callee(plan.file, node))
                for plan in self.vision
                for node in plan.file.nodes[ast.Call]
                if isinstance(node, ast.Call)
            ]
        return self._calls

    def backend(self, file: ParsedFile, constructor: AnyFunction) -> BackendState:
        """Where a constructor keeps the choice of a backend."""
        if id(constructor) not in self._backends:
            self._backends[id(constructor)] = backend_state(self.project, file, constructor)
        return self._backends[id(constructor)]

    @cached_property
    def callers(self) -> dict[int, list[tuple[FilePlan, ast.Call, Function]]]:
        """The calls that reach a function, by the identity of its node."""
        table: dict[int, list[tuple[FilePlan, ast.Call, Function]]] = {}
        for file, call, reached in self.calls():
            if reached is not None:
                table.setdefault(id(reached.node), []).append((file, call, reached))
        return table

    @cached_property
    def unfollowed(self) -> list[tuple[FilePlan, ast.Call]]:
        """The calls of which it is not known what they reach."""
        return [(file, call) for file, call, reached in self.calls() if reached is None]

    @cached_property
    def unfollowed_with(self) -> dict[str, list[tuple[FilePlan, ast.Call]]]:
        """Those of them that pass a keyword."""
        table: dict[str, list[tuple[FilePlan, ast.Call]]] = defaultdict(list)
        for file, call in self.unfollowed:
            for name in {k.arg for k in call.keywords if k.arg is not None}:
                table[name].append((file, call))
        return table

    def reached(self, call: ast.Call) -> Function | None:
        """The project function a call of the run reaches."""
        if not self._reached:
            self._reached = {id(c): r for _, c, r in self.calls() if r is not None}
        return self._reached.get(id(call))

    def taken(self, file: FilePlan, name: str) -> bool:
        """Whether another file, of the run or beside it, may import the name from this one."""
        for other, statement in self._importers.get((file.file.module, name), ()):
            if other is not file and not other.gone(statement):
                if E.RemoveImport(E.Ref.of(statement), name) not in other.edits:
                    return True
        return self.elsewhere(name, file.file)

    @cached_property
    def _importers(self) -> dict[tuple[str, str], list[tuple[FilePlan, ast.stmt]]]:
        """The imports of a module's name."""
        table: dict[tuple[str, str], list[tuple[FilePlan, ast.stmt]]] = defaultdict(list)
        for file in self.files:
            for imported in file.file.imports:
                if imported.name is not None:
                    table[imported.module, imported.name].append((file, imported.statement))
        return table

    def blocked(self, file: FilePlan) -> RefusedClass | None:
        """A class of this file that stays on the old API: what feeds it must then stay as well."""
        return next((c for c in self.attention(file) if isinstance(c, RefusedClass) and not c.alone), None)

    def fits(self, file: FilePlan) -> bool:
        """Whether a file may have been written for the target: what is only untidy in it is then left alone."""
        return self.target.version in file.source

    def of(self, file: ParsedFile) -> FilePlan:
        return next(plan for plan in self.files if plan.file is file)

    @property
    def open_files(self) -> Sequence[FilePlan]:
        return [plan for plan in self.files if not plan.read_only]


def _line(node: ast.AST) -> int:
    return getattr(node, "lineno", 1)

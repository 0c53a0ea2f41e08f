"""Every role of vLLM's MultiHeadAttention, or of a class made from it, followed to the calls of its instances."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from codemods import calls
from codemods.parsed_file import FunctionNode, ParsedFile, dotted, parameters, self_attribute
from codemods.plan import Plan
from codemods.project import AnyFunction, Class, Function
from codemods.vision_attention import vocabulary as V
from codemods.vision_attention.held_attention import SHOW, Held, Problem
from codemods.vision_attention.instances import held_in, runs_in_forward
from codemods.vision_attention.self_attention import held_as_self, held_in_attribute
from codemods.vllm_api import Api, releases

_FORWARD = ("forward", "__call__")
_OWN_OP = (
    "Port the subclass by hand; a device's own implementation belongs in an out-of-tree op "
    "(MMEncoderAttention.register_oot)."
)


@dataclass
class Followed:
    """Where a use of the class leads: calls of its instances (and whether q has three axes for sure), and problems."""

    calls: dict[ast.Call, tuple[ParsedFile, bool]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def add(self, other: Followed | Held) -> None:
        for call, (file, flat) in other.calls.items():
            self.calls[call] = (file, flat and self.calls.get(call, (file, True))[1])
        self.problems += [p for p in other.problems if p not in self.problems]


class Followers:
    """Follows uses of the class; what one use leads to is worked out once."""

    def __init__(self, run: Plan) -> None:
        self.run = run
        self.lost = _lost_members(run)
        self._held: dict[tuple[str, str], Held] = {}
        self._parameters: dict[tuple[int, str], Followed] = {}
        self._subclasses: dict[str, Followed] = {}

    def follow(self, file: ParsedFile, node: ast.expr) -> Followed:
        """One expression that stands for the class: what becomes of it."""
        above = file.parents[node]
        while isinstance(above, ast.IfExp) and above.test is not node:
            node, above = above, file.parents[above]
        found = Followed()
        if isinstance(above, ast.ClassDef) and node in above.bases:
            found.add(self._subclass(Class(file, above)))
        elif isinstance(above, ast.Call) and above.func is node:
            found.add(self._constructed(file, above))
        elif _only_names_it(file, node, above):
            pass
        elif isinstance(above, ast.Attribute):
            if above.attr in _FORWARD or isinstance(above.ctx, ast.Store):
                found.problems.append(_lost_track(file, node))
        elif isinstance(above, ast.keyword) or (isinstance(above, ast.Call) and node in above.args):
            call = file.parents[above] if isinstance(above, ast.keyword) else above
            found.add(self._passed(file, node, call))
        elif isinstance(above, ast.arguments):
            function, name = _default_of(file, node, above)
            found.add(self._parameter(Function(file, function), name) if name else _problem(file, node))
        elif isinstance(above, (ast.Assign, ast.AnnAssign)) and above.value is node:
            found.add(self._alias(file, node, above))
        else:
            found.problems.append(_lost_track(file, node))
        return found

    # -- instances -------------------------------------------------------------------------------------------------

    def _constructed(self, file: ParsedFile, call: ast.Call) -> Followed:
        found = Followed()
        function, owner = file.function(call), file.class_of(call)
        if function is not None and owner is not None and runs_in_forward(file, owner, function):
            message = f"{owner.name} builds its attention in {function.name}, where no vLLM configuration is set"
            found.problems.append(
                Problem(file, call, message, "Build it once in __init__, with a prefix, and call it in forward.")
            )
            return found
        attribute = held_in(file, call)
        if owner is None or attribute is None:
            found.problems.append(
                Problem(
                    file,
                    call,
                    "the attention built here is not kept in an attribute of self, so its calls could not be followed",
                    SHOW,
                )
            )
            return found
        why = self._does_not_bind(file, call)
        if why is not None:
            message = f"MMEncoderAttention of vLLM {self.run.target.version} is not built like this: {why}"
            found.problems.append(Problem(file, call, message, "Call it as MMEncoderAttention's constructor asks."))
        key = (f"{file.path}:{owner.lineno}", attribute)
        if key not in self._held:
            self._held[key] = held_in_attribute(
                self.run.project, Class(file, owner), attribute, file.statement(call), self.lost
            )
        found.add(self._held[key])
        return found

    def _does_not_bind(self, file: ParsedFile, call: ast.Call) -> str | None:
        """Why a construction by a variable or a subclass fails; where the class itself is called, that is mended."""
        cls = self.run.project.class_named(file, call.func)
        if V.last(self.run.project.vllm(file, call.func)) == V.MULTI_HEAD_ATTENTION or (
            cls is not None and self.run.project.method(cls, "__init__")
        ):
            return None
        return calls.why_not(self.run.api, f"{self.run.target.encoder_attention}.{V.ENCODER_ATTENTION}", call)

    def _subclass(self, cls: Class) -> Followed:
        key = cls.qualified
        if key in self._subclasses:
            return self._subclasses[key]
        found = self._subclasses[key] = Followed()
        why = self._misfit(cls.node)
        if why is not None:
            found.problems.append(Problem(cls.file, cls.node, why, _OWN_OP))
            return found
        used = False
        for file in self.run.project.files:
            for node in self._reads(file, cls):
                used = True
                found.add(self.follow(file, node))
        flat = bool(found.calls) and all(flat for _, flat in found.calls.values())
        inner = held_as_self(self.run.project, cls, 3 if flat else None)
        found.calls = {}  # the base's result, inside the subclass, is what has to keep its axes
        found.add(inner)
        if not used and not found.problems:
            message = f"no use of {cls.node.name} was found, so it is not shown to be self-attention"
            found.problems.append(Problem(cls.file, cls.node, message, SHOW))
        return found

    def _reads(self, file: ParsedFile, cls: Class) -> Iterator[ast.expr]:
        name = cls.node.name
        local = {name, *self.run.project.aliases(file).get(name, ())}
        names = sorted((node for alias in local for node in file.reads.get(alias, ())), key=file.position)
        read = [node for node in names if not isinstance(file.parents[node], ast.Attribute)]
        for node in [*read, *file.attributes.get(name, ())]:
            if isinstance(node.ctx, ast.Load) and self.run.project.meaning(file, node) == cls.qualified:
                yield node

    def _misfit(self, cls: ast.ClassDef) -> str | None:
        """Why a subclass cannot simply change its base, or None."""
        forward = next((n for n in cls.body if isinstance(n, FunctionNode) and n.name == "forward"), None)
        if forward is not None and (len(parameters(forward)) != 4 or forward.args.vararg or forward.args.kwarg):
            return f"{cls.name}.forward takes more than query, key and value"
        own = {
            name
            for n in ast.walk(cls)
            if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store) and (name := self_attribute(n))
        }
        own |= {n.name for n in cls.body if isinstance(n, FunctionNode)}
        read = {
            name
            for n in ast.walk(cls)
            if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load) and (name := self_attribute(n))
        }
        foreign = sorted((read - own) & self.lost)
        return f"{cls.name} reads self.{foreign[0]}, which MMEncoderAttention has not" if foreign else None

    # -- the class as a value --------------------------------------------------------------------------------------

    def _passed(self, file: ParsedFile, node: ast.expr, call: ast.AST) -> Followed:
        if not isinstance(call, ast.Call):
            return _problem(file, node)
        reached = self.run.project.callee(file, call)
        if reached is None:
            name = self.run.project.vllm(file, call.func)
            return (
                Followed() if name is not None else _problem(file, node)
            )  # vLLM's own code of the target takes its own class
        given = reached.passed(call) or {}
        name = next((name for name, value in given.items() if any(n is node for n in ast.walk(value))), None)
        return self._parameter(reached, name) if name is not None else _problem(file, node)

    def _parameter(self, function: Function, name: str) -> Followed:
        key = (id(function.node), name)
        if key in self._parameters:
            return self._parameters[key]
        found = self._parameters[key] = Followed()
        for node in function.file.below(function.node):
            if isinstance(node, ast.Name) and node.id == name:
                if not isinstance(node.ctx, ast.Load):
                    found.problems.append(_lost_track(function.file, node))
                elif not _is_default(function.file, node):
                    found.add(self.follow(function.file, node))
        return found

    def _alias(self, file: ParsedFile, node: ast.expr, statement: ast.Assign | ast.AnnAssign) -> Followed:
        """`Attention = MultiHeadAttention`: every read of the other name, in files that import it as well."""
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        target = targets[0] if len(targets) == 1 else None
        if not isinstance(target, ast.Name) or len(file.bound(target.id, statement)) != 1:
            return _problem(file, node)
        found = Followed()
        scope = file.scope(target)
        if not isinstance(scope, ast.Module):
            for read in file.below(scope):
                if isinstance(read, ast.Name) and read.id == target.id and isinstance(read.ctx, ast.Load):
                    found.add(self.follow(file, read))
            return found
        qualified = f"{file.module}.{target.id}"
        for other in self.run.project.files:
            local = {
                i.alias
                for i in other.imports
                if i.name is not None and self.run.project.follow(i.qualified) == qualified
            }
            for name in {*local, *([target.id] if other is file else [])}:
                for read in other.reads.get(name, ()):
                    found.add(self.follow(other, read))
        return found


def _lost_members(run: Plan) -> frozenset[str]:
    """What instances of MultiHeadAttention had in some release and MMEncoderAttention has not at the target."""
    new = f"{run.target.encoder_attention}.{V.ENCODER_ATTENTION}"
    old: set[str] = set()
    for release in releases():
        old |= Api.of(release).members(f"vllm.attention.layer.{V.MULTI_HEAD_ATTENTION}")
    return frozenset(old) - run.api.members(new) - {"forward"}


def _only_names_it(file: ParsedFile, node: ast.expr, above: ast.AST) -> bool:
    """Uses that build and call nothing: annotations, comparisons, isinstance, the name itself."""
    if isinstance(above, ast.Compare):
        return True
    if isinstance(above, ast.Attribute):
        return above.attr in ("__name__", "__qualname__", "__init__", "__doc__")
    below: ast.AST = node
    for outer in file.above(node):
        if isinstance(outer, (ast.arg, ast.AnnAssign)):
            return outer.annotation is below
        if isinstance(outer, FunctionNode):
            return outer.returns is below
        if isinstance(outer, ast.Call):
            return dotted(outer.func) in ("isinstance", "issubclass") and outer.args[-1] is below
        if isinstance(outer, ast.Assign):
            return isinstance(below, ast.Subscript)  # `Kind = type[MultiHeadAttention]`
        if not isinstance(outer, (ast.Subscript, ast.BinOp, ast.Tuple, ast.List)) or (
            isinstance(outer, ast.Subscript) and outer.value is below
        ):
            return False
        below = outer
    return False


def _default_of(file: ParsedFile, node: ast.expr, arguments: ast.arguments) -> tuple[AnyFunction, str | None]:
    function = file.parents[arguments]
    assert isinstance(function, FunctionNode)
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = [
        *zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults),
        *zip(arguments.kwonlyargs, arguments.kw_defaults),
    ]
    return function, next((a.arg for a, default in pairs if default is node), None)


def _is_default(file: ParsedFile, node: ast.AST) -> bool:
    return isinstance(file.parents[node], ast.arguments)


def _lost_track(file: ParsedFile, node: ast.AST) -> Problem:
    return Problem(
        file,
        node,
        "what becomes of the class here could not be followed, so it is not shown to be self-attention",
        SHOW,
    )


def _problem(file: ParsedFile, node: ast.AST) -> Followed:
    return Followed(problems=[_lost_track(file, node)])

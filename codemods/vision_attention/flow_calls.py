"""What a call gives, while tensors are followed: of an attention that is watched, a submodule, a method, a function."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from codemods.parsed_file import ParsedFile
from codemods.project import AnyFunction, Class, Function, Project
from codemods.vision_attention import layouts
from codemods.vision_attention.modules import ROTARY, Effect, module_of
from codemods.vision_attention.shapes import AnyValue, Each, Many, Table, Token, Value
from codemods.vision_attention.tensor_operations import OPERATIONS, concatenated, number, rearranged

_DEEP = 6  # functions entered from one another

# vLLM's collectives that touch the last axis only
_GATHERED = ("tensor_model_parallel_all_gather", "tensor_model_parallel_all_reduce")
_SPLIT_LAST = "split_tensor_along_last_dim"
_FUNCTIONAL = ("torch.", "einops.")


@dataclass(frozen=True)
class Record:
    """One way in which a call is reached. `arguments`: the positional ones; None where stars hide some."""

    call: ast.Call
    path: str
    arguments: tuple[AnyValue, ...] | None
    keywords: dict[str, AnyValue]


@dataclass
class Frame:
    """One function being followed. `env` holds locals, and attributes of self set on the way under `self.<name>`."""

    file: ParsedFile
    owner: Class | None  # the class of self
    home: Class | None  # the class that defines the function, where super() starts
    me: Token | None
    number: int = 0  # tells calls of one function apart
    env: dict[str, AnyValue] = field(default_factory=dict)
    returned: list[AnyValue] = field(default_factory=list)


class Calls(ABC):
    """`watched`: paths such as `self.attn` whose calls are recorded. `super()` is the path of a call of a lost base."""

    def __init__(self, project: Project, table: Table, watched: Iterable[str]) -> None:
        self.project = project
        self.t = table
        self.watched = frozenset(watched)
        self.records: list[Record] = []
        self.unclear: set[str] = set()  # submodules whose effect on a length is not known
        self.homes: dict[Token, tuple[Class, str]] = {}
        self.depth = 0
        self.frames = 0

    @abstractmethod
    def value(self, node: ast.expr, frame: Frame) -> AnyValue:
        """What an expression gives."""

    @abstractmethod
    def run(self, frame: Frame, function: AnyFunction, given: dict[str, AnyValue]) -> AnyValue:
        """What a function gives, followed through its body."""

    @abstractmethod
    def unknown(self, node: ast.AST, frame: Frame) -> Value:
        """A value of its own for what is not understood."""

    def call(self, node: ast.Call, frame: Frame) -> AnyValue:
        arguments = self._arguments(node, frame)
        keywords = {k.arg: self.value(k.value, frame) for k in node.keywords if k.arg is not None}
        whole = None if any(k.arg is None for k in node.keywords) else arguments
        given = arguments if arguments is not None else []
        if isinstance(node.func, ast.Attribute):
            if (
                isinstance(node.func.value, ast.Call)
                and isinstance(node.func.value.func, ast.Name)
                and node.func.value.func.id == "super"
            ):
                return self._super(node, node.func.attr, whole, keywords, frame)
            base = self.value(node.func.value, frame)
            token = self.t.flat(base)
            if token is frame.me and frame.owner is not None:
                method = self.project.method(frame.owner, node.func.attr)
                if method is not None:
                    return self._entered(node, method, frame.owner, token, whole, keywords, frame)
                if node.func.attr in ("forward", "__call__"):
                    return self._reached(node, token, whole, keywords, frame)
            elif token.path is not None and node.func.attr in ("forward", "__call__"):
                return self._reached(node, token, whole, keywords, frame)
            elif (
                token.dotted is None
                and node.func.attr in OPERATIONS
                and whole is not None
                and not self._is_module(token, [*given, *keywords.values()])
            ):
                result = OPERATIONS[node.func.attr](self.t, self.t.single(base), given, keywords)
                return result if result is not None else self._opaque(node.func.attr, [token], given, keywords)
        callee = self.value(node.func, frame)
        return self._reached(node, self.t.flat(callee), whole, keywords, frame)

    def _is_module(self, token: Token, arguments: Sequence[AnyValue]) -> bool:
        """An attribute of self that may be no tensor: `self.norm.float()`, `self.pooling.split(x)`."""
        if token in self.homes and module_of(self.project, *self.homes[token]) is not None:
            return True
        tensors = (a for a in arguments if isinstance(a, Value) and a.rank != 0 and not a.shape.is_weight)
        return token.path is not None and any(True for _ in tensors)

    def _arguments(self, node: ast.Call, frame: Frame) -> list[AnyValue] | None:
        found: list[AnyValue] = []
        known = True
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                inner = self.value(argument.value, frame)
                if isinstance(inner, Many):
                    found += inner.items
                else:
                    known = False
            else:
                found.append(self.value(argument, frame))
        return found if known else None

    def _super(
        self, node: ast.Call, name: str, arguments: list[AnyValue] | None, keywords: dict[str, AnyValue], frame: Frame
    ) -> AnyValue:
        if frame.home is not None and frame.owner is not None and frame.me is not None:
            for base in list(self.project.bases(frame.home))[1:]:
                own = base.own(name)
                if own is not None:
                    return self._entered(
                        node, Function(base.file, own, 1), frame.owner, frame.me, arguments, keywords, frame
                    )
            if name in ("forward", "__call__"):
                return self._reached(node, self.t.token("super", frame.me, path="super()"), arguments, keywords, frame)
        return self._opaque("super", [], arguments or [], keywords)

    def _reached(
        self,
        node: ast.Call,
        callee: Token,
        arguments: list[AnyValue] | None,
        keywords: dict[str, AnyValue],
        frame: Frame,
    ) -> AnyValue:
        """The result of calling what is not a method of self."""
        path = (callee.path or "").replace("[]", "")
        if path in self.watched or (callee is frame.me and "self" in self.watched):
            self.records.append(Record(node, path, None if arguments is None else tuple(arguments), keywords))
            query = arguments[0] if arguments else keywords.get("query")
            return (
                self.t.like(query, "attention", rank=3)
                if isinstance(query, Value)
                else self._opaque("attention", [], arguments or [], keywords)
            )
        given = arguments if arguments is not None else []
        if callee in self.homes:
            return self._submodule(node, callee, arguments, keywords, frame)
        dotted = callee.dotted or ""
        last = dotted.rpartition(".")[2]
        known = self._function(node, dotted, last, arguments, keywords, frame)
        return known if known is not None else self._opaque(last or "call", [callee], given, keywords)

    def _submodule(
        self,
        node: ast.Call,
        callee: Token,
        arguments: list[AnyValue] | None,
        keywords: dict[str, AnyValue],
        frame: Frame,
    ) -> AnyValue:
        module = module_of(self.project, *self.homes[callee])
        given = arguments or []
        if module is not None and arguments is not None:
            first = (
                given[0]
                if given and isinstance(given[0], Value)
                else next((v for v in keywords.values() if isinstance(v, Value)), None)
            )
            if module.effect is Effect.ROTARY:
                return self._turned(given, keywords, callee)
            if module.cls is not None:
                forward = self.project.method(module.cls, "forward")
                if forward is not None:
                    return self._entered(node, forward, module.cls, callee, arguments, keywords, frame)
            elif first is not None and len(given) + len(keywords) == 1:
                if module.effect is Effect.SAME:
                    return first
                rank = first.rank if first.rank is not None else 3
                result = self.t.like(first, "projection", module.width or callee, rank=rank)
                return Many((result, self.t.value(self.t.token("bias", callee)))) if module.is_pair else result
        if module is None or module.cls is None:
            self.unclear.add(callee.path or "")
        return self._opaque("module", [callee], given, keywords)

    def _function(
        self,
        node: ast.Call,
        dotted: str,
        last: str,
        arguments: list[AnyValue] | None,
        keywords: dict[str, AnyValue],
        frame: Frame,
    ) -> AnyValue | None:
        if arguments is None:
            return None
        if dotted in ("functools.partial", "partial") and arguments:
            inner = self.t.flat(arguments[0])
            return self.t.value(
                self.t.token(
                    "partial", inner, *map(self.t.flat, [*arguments[1:], *keywords.values()]), dotted=inner.dotted
                )
            )
        if last in ("enumerate", "zip", "reversed", "list", "tuple") and not dotted.count("."):
            return self._iterated(node, last, arguments)
        if last == "map" and not dotted.count(".") and len(arguments) == 2 and isinstance(arguments[1], Many):
            return Many(
                tuple(self._reached(node, self.t.flat(arguments[0]), [item], {}, frame) for item in arguments[1].items)
            )
        reached = self.project.callee(frame.file, node)
        if reached is not None and reached.skip == 0 and isinstance(node.func, ast.Name) and not ROTARY.search(last):
            return self._entered(node, reached, None, None, arguments, keywords, frame)
        if ROTARY.search(last):
            return self._turned(arguments, keywords, self.t.token("function", dotted))
        first = arguments[0] if arguments else None
        if last == "cat":
            axis = number(arguments[1] if len(arguments) > 1 else keywords.get("dim"))
            return concatenated(self.t, first, axis if isinstance(axis, int) else None)
        if not isinstance(first, Value):
            return None
        if last == "rearrange" and layouts.pattern(node) is not None:
            return rearranged(self.t, first, layouts.pattern(node) or ([], []), keywords)
        if dotted.startswith("vllm.") and last in _GATHERED and not keywords and len(arguments) == 1:
            return self.t.like(first, last, rank=first.rank)
        if dotted.startswith("vllm.") and last == _SPLIT_LAST:
            return Each(self.t.like(first, last, rank=first.rank), even=True)
        if dotted.startswith(_FUNCTIONAL) and last in OPERATIONS:
            return OPERATIONS[last](self.t, first, arguments[1:], keywords)
        if dotted.startswith("torch.") and last == "linear":
            return self.t.like(first, "linear", *map(self.t.flat, arguments[1:]), rank=first.rank or 3)
        return None

    def _iterated(self, node: ast.Call, name: str, arguments: list[AnyValue]) -> AnyValue | None:
        which = f"{node.lineno}:{node.col_offset}"
        if name == "enumerate" and len(arguments) == 1:
            over = arguments[0]
            items = over.items if isinstance(over, Many) else None
            if items is not None:
                return Many(tuple(Many((self.t.constant(i), item)) for i, item in enumerate(items)))
            return Many((Many((self.t.value(self.t.token("counter"), 0), self.t.element(over, which))),))
        if name == "zip":
            if arguments and all(isinstance(a, Many) for a in arguments):
                return Many(tuple(Many(row) for row in zip(*(a.items for a in arguments if isinstance(a, Many)))))
            return Many((Many(tuple(self.t.element(a, which) for a in arguments)),))
        return arguments[0] if len(arguments) == 1 and name != "reversed" else None

    def _turned(self, arguments: Sequence[AnyValue], keywords: dict[str, AnyValue], callee: Token) -> AnyValue:
        """Rotary embedding: as many tensors as agree in batch and sequence come back, in their order."""
        tensors = [a for a in [*arguments, *keywords.values()] if isinstance(a, Value) and not a.shape.is_weight]
        for tensor in tensors:
            alike = [other for other in tensors if other.lead == tensor.lead]
            if len(alike) > 1:
                return Many(tuple(alike))
        return tensors[0] if tensors else self._opaque("rotary", [callee], arguments, keywords)

    def _entered(
        self,
        node: ast.Call,
        function: Function,
        owner: Class | None,
        me: Token | None,
        arguments: list[AnyValue] | None,
        keywords: dict[str, AnyValue],
        frame: Frame,
    ) -> AnyValue:
        """The result of a function of the project, followed with the arguments of this call."""
        name = function.node.name
        if self.depth >= _DEEP or arguments is None or function.node.args.vararg or function.node.args.kwarg:
            return self._opaque(name, [me] if me else [], arguments or [], keywords)
        home = function.file.class_of(function.node)
        inner = Frame(
            function.file,
            owner,
            Class(function.file, home) if home is not None else None,
            me if function.skip else None,
        )
        kept = {key: value for key, value in frame.env.items() if "." in key}
        inner.env.update(kept)
        given: dict[str, AnyValue] = dict(zip(function.parameters, arguments))
        given.update({key: value for key, value in keywords.items() if key in function.parameters})
        for argument, default in _defaults(function.node):
            if argument not in given:
                given[argument] = (
                    self.t.constant(default.value)
                    if isinstance(default, ast.Constant)
                    else self.unknown(default, inner)
                )
        result = self.run(inner, function.node, given)
        frame.env.update({key: value for key, value in inner.env.items() if "." in key})
        return result

    def _opaque(
        self, name: str, parts: Sequence[Token], arguments: Sequence[AnyValue], keywords: dict[str, AnyValue]
    ) -> Value:
        tokens = [
            *(self.t.token("callee", part, roots=() if part.is_weight else None) for part in parts),
            *map(self.t.flat, arguments),
            *(self.t.token("keyword", key, self.t.flat(value)) for key, value in keywords.items()),
        ]
        return self.t.value(self.t.token("call", name, *tokens))


def _defaults(function: AnyFunction) -> list[tuple[str, ast.expr]]:
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = list(zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults))
    pairs += [(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults) if d is not None]
    return [(a.arg, d) for a, d in pairs]

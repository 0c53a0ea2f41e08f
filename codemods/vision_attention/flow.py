"""Follows tensors through a method, statement by statement, and records with which shapes an attention is called.

Branches are followed both ways, methods of self and forwards of the project's own submodules are entered. What is not
understood gets a token of its own, which is equal to nothing else.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from codemods.parsed_file import FunctionNode, ParsedFile, parameters, stores
from codemods.project import AnyFunction, Class, Function, Project
from codemods.vision_attention import layouts
from codemods.vision_attention.modules import ROTARY, Effect, module_of
from codemods.vision_attention.shapes import NOTHING, Any_, Each, Many, Sizes, Table, Token, Value
from codemods.vision_attention.tensor_operations import OPERATIONS, concatenated, drop, number, rearranged

_DEEP = 6  # functions entered from one another

# vLLM's collectives that touch the last axis only
_GATHERED = ("tensor_model_parallel_all_gather", "tensor_model_parallel_all_reduce")
_SPLIT_LAST = "split_tensor_along_last_dim"
_FUNCTIONAL = ("torch.", "einops.")


@dataclass(frozen=True)
class Record:
    """One way in which a call is reached: its positional arguments (None: a starred one that is not known) and keywords."""

    call: ast.Call
    path: str
    arguments: tuple[Any_, ...] | None
    keywords: dict[str, Any_]


@dataclass
class _Frame:
    """One function being followed. `env` holds locals, and attributes of self set on the way under `self.<name>`."""

    file: ParsedFile
    owner: Class | None  # the class of self
    home: Class | None  # the class that defines the function, where super() starts
    me: Token | None
    number: int = 0  # tells calls of one function apart
    env: dict[str, Any_] = field(default_factory=dict)
    returned: list[Any_] = field(default_factory=list)


class Flow:
    """`watched`: paths such as `self.attn` whose calls are recorded. `super()` is the path of a call of a lost base."""

    def __init__(self, project: Project, table: Table, watched: Iterable[str]) -> None:
        self.project = project
        self.t = table
        self.watched = frozenset(watched)
        self.records: list[Record] = []
        self._homes: dict[Token, tuple[Class, str]] = {}
        self._depth = 0
        self._frames = 0

    def enter(self, owner: Class, home: Class, function: AnyFunction, given: dict[str, Any_]) -> None:
        """Follow a method from outside: parameters that are not `given` are inputs of their own."""
        frame = _Frame(home.file, owner, home, self.t.token("self", roots=(), path="self"))
        self._run(frame, function, given)

    def _run(self, frame: _Frame, function: AnyFunction, given: dict[str, Any_]) -> Any_:
        arguments = function.args
        self._frames += 1
        frame.number = self._frames
        for argument in [*parameters(function), *(a for a in (arguments.vararg, arguments.kwarg) if a is not None)]:
            name = argument.arg
            frame.env.setdefault(name, given.get(name) or self.t.value(self.t.token("parameter", name, frame.number, roots=(name,))))
        first = next(iter(parameters(function)), None)
        if frame.me is not None and first is not None:
            frame.env[first.arg] = self.t.value(frame.me)
        self._depth += 1
        self._block(function.body, frame)
        self._depth -= 1
        if not frame.returned:
            return self.t.constant(None)
        result = frame.returned[0]
        for other in frame.returned[1:]:
            result = self.t.join(self.t.token("returns"), result, other)
        return result

    # -- statements ------------------------------------------------------------------------------------------------------

    def _block(self, statements: Sequence[ast.stmt], frame: _Frame) -> bool:
        """Follow statements; whether the block is left before its end."""
        return any(self._statement(statement, frame) for statement in statements)

    def _statement(self, node: ast.stmt, frame: _Frame) -> bool:
        if isinstance(node, ast.Return):
            frame.returned.append(self.value(node.value, frame) if node.value is not None else self.t.constant(None))
            return True
        if isinstance(node, (ast.Raise, ast.Break, ast.Continue)):
            return True
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            value = self.value(node.value, frame)
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self._bind(target, value, frame)
                self._learn_rank(target, node.value, frame)
        elif isinstance(node, ast.AugAssign):
            both = (self.value(node.target, frame), self.value(node.value, frame))
            self._bind(node.target, self._operated(*both, type(node.op).__name__), frame)
        elif isinstance(node, ast.If):
            return self._branches(self.value(node.test, frame), [node.body, node.orelse], frame)
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            self._loop(node, frame)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                held = self.value(item.context_expr, frame)
                if item.optional_vars is not None:
                    self._bind(item.optional_vars, held, frame)
            return self._block(node.body, frame)
        elif isinstance(node, (ast.Try, ast.Match)):
            arms = [[*node.body, *node.orelse], *(h.body for h in node.handlers)] if isinstance(node, ast.Try) else [c.body for c in node.cases]
            left = self._branches(self.t.value(self.t.token("arm", node.lineno)), [*arms, []], frame)
            return (isinstance(node, ast.Try) and self._block(node.finalbody, frame)) or left
        elif isinstance(node, (*FunctionNode, ast.ClassDef)):
            frame.env[node.name] = self._unknown(node, frame)
        elif isinstance(node, ast.Expr):
            self.value(node.value, frame)
        elif isinstance(node, ast.Assert):
            self.value(node.test, frame)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                frame.env.pop(alias.asname or alias.name.partition(".")[0], None)
        return False

    def _branches(self, test: Any_, arms: Sequence[Sequence[ast.stmt]], frame: _Frame) -> bool:
        known = number(test)
        if isinstance(known, bool) and len(arms) == 2:
            return self._block(arms[0 if known else 1], frame)
        before = frame.env
        ends: list[dict[str, Any_]] = []
        for arm in arms:
            frame.env = dict(before)
            if not self._block(arm, frame):
                ends.append(frame.env)
        frame.env = self._joined(self.t.flat(test), ends) if ends else before
        return not ends

    def _joined(self, test: Token, ends: list[dict[str, Any_]]) -> dict[str, Any_]:
        result = dict(ends[0])
        for other in ends[1:]:
            for name in result.keys() | other.keys():
                missing = self.t.value(self.t.token("unset", name))
                result[name] = self.t.join(test, result.get(name, missing), other.get(name, missing))
        return result

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, frame: _Frame) -> None:
        over = self.value(node.iter, frame) if not isinstance(node, ast.While) else None
        test = self.t.token("loop", node.lineno, frame.number)
        for _ in range(2):  # once as it starts, once with what the first turn changed
            before = dict(frame.env)
            if over is not None and not isinstance(node, ast.While):
                self._bind(node.target, self.t.element(over), frame)
            elif isinstance(node, ast.While):
                self.value(node.test, frame)
            self._block(node.body, frame)
            frame.env = self._joined(test, [before, frame.env])
        self._block(node.orelse, frame)

    def _bind(self, target: ast.expr, value: Any_, frame: _Frame) -> None:
        if isinstance(target, ast.Name):
            frame.env[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            count = len(target.elts)
            star = next((i for i, item in enumerate(target.elts) if isinstance(item, ast.Starred)), None)
            for index, item in enumerate(target.elts):
                if isinstance(item, ast.Starred):
                    self._bind(item.value, self.t.value(self.t.token("star", self.t.flat(value))), frame)
                else:
                    place = index if star is None or index < star else index - count
                    self._bind(item, self.t.item(value, place, count if star is None else None), frame)
        elif isinstance(target, ast.Attribute):
            path = self.t.flat(self.value(target.value, frame)).path
            if path is not None:
                frame.env[f"{path}.{target.attr}"] = value

    def _learn_rank(self, target: ast.expr, source: ast.expr, frame: _Frame) -> None:
        """`b, s, c = x.shape` says that x has three axes."""
        shaped = isinstance(source, ast.Attribute) and source.attr == "shape"
        sized = isinstance(source, ast.Call) and isinstance(source.func, ast.Attribute) and source.func.attr == "size" and not source.args
        if isinstance(target, ast.Tuple) and (shaped or sized) and not any(isinstance(item, ast.Starred) for item in target.elts):
            of = source.value if isinstance(source, ast.Attribute) else source.func.value  # type: ignore[attr-defined]
            held = frame.env.get(of.id) if isinstance(of, ast.Name) else None
            if isinstance(of, ast.Name) and isinstance(held, Value) and held.rank is None:
                frame.env[of.id] = replace(held, rank=len(target.elts))

    # -- expressions -----------------------------------------------------------------------------------------------------

    def value(self, node: ast.expr, frame: _Frame) -> Any_:
        """What an expression gives. Every call inside it is followed on the way."""
        if isinstance(node, ast.Constant):
            return self.t.constant(node.value)
        if isinstance(node, ast.Name):
            return frame.env.get(node.id) or self._global(node, frame)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, frame)
        if isinstance(node, ast.Call):
            return self._call(node, frame)
        if isinstance(node, (ast.Tuple, ast.List)):
            return Many(tuple(self._items(node.elts, frame)))
        if isinstance(node, ast.Subscript):
            return self._subscript(node, frame)
        if isinstance(node, ast.BinOp):
            return self._operated(self.value(node.left, frame), self.value(node.right, frame), type(node.op).__name__)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            inner = self.value(node.operand, frame)
            constant = number(inner)
            return self.t.constant(-constant) if isinstance(node.op, ast.USub) and isinstance(constant, (int, float)) else inner
        if isinstance(node, ast.Compare):
            return self._compared(node, frame)
        if isinstance(node, ast.IfExp):
            test = self.value(node.test, frame)
            known = number(test)
            if isinstance(known, bool):
                return self.value(node.body if known else node.orelse, frame)
            return self.t.join(self.t.flat(test), self.value(node.body, frame), self.value(node.orelse, frame))
        if isinstance(node, ast.NamedExpr):
            value = self.value(node.value, frame)
            self._bind(node.target, value, frame)
            return value
        if isinstance(node, (ast.GeneratorExp, ast.ListComp)):
            return self._comprehension(node, frame)
        if isinstance(node, (ast.Lambda, ast.SetComp, ast.DictComp)):
            return self._unknown(node, frame)
        children = [self.t.flat(self.value(child, frame)) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        extra = [type(child).__name__ for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr)]
        return self.t.value(self.t.token(type(node).__name__, *extra, *children))

    def _unknown(self, node: ast.AST, frame: _Frame) -> Value:
        inputs = {root for n in ast.walk(node) if isinstance(n, ast.Name) and n.id in frame.env for root in self.t.flat(frame.env[n.id]).roots}
        return self.t.value(self.t.token("unknown", id(node), frame.number, roots=inputs))

    def _items(self, nodes: Sequence[ast.expr], frame: _Frame) -> list[Any_]:
        found: list[Any_] = []
        for node in nodes:
            if not isinstance(node, ast.Starred):
                found.append(self.value(node, frame))
                continue
            inner = self.value(node.value, frame)
            found += inner.items if isinstance(inner, Many) else [self.t.value(self.t.token("star", self.t.flat(inner)))]
        return found

    def _global(self, node: ast.Name, frame: _Frame) -> Value:
        name = self.project.vllm(frame.file, node, node) or self.project.meaning(frame.file, node, node)
        return self.t.value(self.t.token("global", name or node.id, dotted=name or (None if frame.file.bound(node.id, node) else node.id)))

    def _attribute(self, node: ast.Attribute, frame: _Frame) -> Any_:
        base = self.value(node.value, frame)
        if isinstance(base, Value) and node.attr == "shape":
            return Sizes(base)
        if isinstance(base, Value) and node.attr == "ndim" and base.rank is not None:
            return self.t.constant(base.rank)
        token = self.t.flat(base)
        path = f"{token.path}.{node.attr}" if token.path else None
        if path is not None and path in frame.env:
            return frame.env[path]
        dotted = f"{token.dotted}.{node.attr}" if token.dotted else None
        roots = {path} if path is not None else None
        found = self.t.token("attribute", node.attr, token, roots=roots, path=path, dotted=dotted)
        if token is frame.me and frame.owner is not None:
            self._homes.setdefault(found, (frame.owner, node.attr))
        return self.t.value(found)

    def _subscript(self, node: ast.Subscript, frame: _Frame) -> Any_:
        base = self.value(node.value, frame)
        index = node.slice
        if isinstance(base, (Many, Sizes)) and isinstance(index, ast.Slice):
            return self._sliced(base, index, frame)
        if isinstance(base, Each) and not isinstance(index, (ast.Slice, ast.Tuple)):
            return self.t.item(base, 0) if base.even else self.t.element(base)
        if not isinstance(index, (ast.Slice, ast.Tuple)):
            place = number(self.value(index, frame))
            token = self.t.flat(base)
            if token.path is not None:
                return self.t.value(self.t.token("element", token, roots=token.roots, path=f"{token.path}[]"))
            if isinstance(place, int) and not isinstance(base, Value):
                return self.t.item(base, place)
        return self._indexed(self.t.single(base), index.elts if isinstance(index, ast.Tuple) else [index], frame)

    def _sliced(self, base: Many | Sizes, index: ast.Slice, frame: _Frame) -> Any_:
        bounds = [None if part is None else number(self.value(part, frame)) for part in (index.lower, index.upper, index.step)]
        if any(not (bound is None or isinstance(bound, int)) for bound in bounds):
            return self.t.value(self.t.token("slice", self.t.flat(base), id(index)))
        cut = slice(*bounds)
        if isinstance(base, Many):
            return Many(base.items[cut])
        rank = base.of.rank or (3 if cut.stop == -1 else 2 if cut.stop in (1, 2) else None)  # none here has fewer than three axes
        if rank is None:
            return self.t.value(self.t.token("slice", self.t.flat(base), *map(str, bounds)))
        return Many(tuple(self.t.value(self.t.axis(base.of, place), 0) for place in range(rank)[cut]))

    def _indexed(self, x: Value, index: Sequence[ast.expr], frame: _Frame) -> Value:
        """`x[...]` of a tensor, one part of the index at a time."""
        unknown = self.t.value(self.t.token("index", x.shape, *(self._index_token(part, frame) for part in index)))
        if isinstance(index[0], ast.Constant) and index[0].value is Ellipsis:
            only_last = len(index) == 2 and isinstance(index[1], ast.Slice)
            return self.t.value(unknown.shape, x.rank, x.lead) if only_last else unknown
        found: Value | None = x
        axis = 0
        for part in index:
            if isinstance(part, ast.Slice):
                if part.lower is not None or part.upper is not None or part.step is not None:
                    token = self.t.token("slice", axis, found.shape, self._index_token(part, frame))
                    cut = self.t.token("axis slice", found.axes[axis] if axis < 4 else found.shape, self._index_token(part, frame))
                    found = self.t.value(token, found.rank, [cut if place == axis else length for place, length in enumerate(found.axes)])
                axis += 1
            elif isinstance(number(self.value(part, frame)), int):
                found = drop(self.t, found, axis, "one of")
            else:
                return unknown
            if found is None or axis >= 4:
                return unknown
        return found

    def _index_token(self, part: ast.expr, frame: _Frame) -> Token:
        if isinstance(part, ast.Slice):
            return self.t.token("bounds", *(self.t.flat(self.value(b, frame)) if b is not None else None for b in (part.lower, part.upper, part.step)))
        return self.t.flat(self.value(part, frame))

    def _operated(self, a: Any_, b: Any_, operator: str) -> Any_:
        if isinstance(a, Many) and isinstance(b, Many) and operator == "Add":
            return Many((*a.items, *b.items))
        return self.t.broadcast(self.t.single(a), self.t.single(b), operator)

    def _compared(self, node: ast.Compare, frame: _Frame) -> Value:
        sides = [self.value(side, frame) for side in (node.left, *node.comparators)]
        constants = [number(side) for side in sides]
        if len(sides) == 2 and NOTHING not in constants:
            equal = constants[0] == constants[1]
            if isinstance(node.ops[0], (ast.Eq, ast.Is)):
                return self.t.constant(equal)
            if isinstance(node.ops[0], (ast.NotEq, ast.IsNot)):
                return self.t.constant(not equal)
        return self.t.value(self.t.token("compare", *(type(op).__name__ for op in node.ops), *map(self.t.flat, sides)))

    def _comprehension(self, node: ast.GeneratorExp | ast.ListComp, frame: _Frame) -> Any_:
        generator = node.generators[0]
        over = self.value(generator.iter, frame)
        if len(node.generators) > 1 or generator.ifs:
            return self._unknown(node, frame)
        before = frame.env
        items = over.items if isinstance(over, Many) else (self.t.element(over),)
        found: list[Any_] = []
        for item in items:
            frame.env = dict(before)
            self._bind(generator.target, item, frame)
            found.append(self.value(node.elt, frame))
        frame.env = before
        if isinstance(over, Many):
            return Many(tuple(found))
        return Each(self.t.single(found[0]), even=isinstance(over, Each) and over.even)

    # -- calls -----------------------------------------------------------------------------------------------------------

    def _call(self, node: ast.Call, frame: _Frame) -> Any_:
        arguments = self._arguments(node, frame)
        keywords = {k.arg: self.value(k.value, frame) for k in node.keywords if k.arg is not None}
        whole = None if any(k.arg is None for k in node.keywords) else arguments
        given = arguments if arguments is not None else []
        if isinstance(node.func, ast.Attribute):
            if isinstance(node.func.value, ast.Call) and isinstance(node.func.value.func, ast.Name) and node.func.value.func.id == "super":
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
            elif token.dotted is None and node.func.attr in OPERATIONS and whole is not None and not self._is_module(token):
                result = OPERATIONS[node.func.attr](self.t, self.t.single(base), given, keywords)
                return result if result is not None else self._opaque(node.func.attr, [token], given, keywords)
        callee = self.value(node.func, frame)
        return self._reached(node, self.t.flat(callee), whole, keywords, frame)

    def _is_module(self, token: Token) -> bool:
        """An attribute of self that is called by a method name: `self.norm.float()` is no tensor's."""
        return token in self._homes and module_of(self.project, *self._homes[token]) is not None

    def _arguments(self, node: ast.Call, frame: _Frame) -> list[Any_] | None:
        found: list[Any_] = []
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

    def _super(self, node: ast.Call, name: str, arguments: list[Any_] | None, keywords: dict[str, Any_], frame: _Frame) -> Any_:
        if frame.home is not None and frame.owner is not None and frame.me is not None:
            for base in list(self.project.bases(frame.home))[1:]:
                own = base.own(name)
                if own is not None:
                    return self._entered(node, Function(base.file, own, 1), frame.owner, frame.me, arguments, keywords, frame)
            if name in ("forward", "__call__"):
                return self._reached(node, self.t.token("super", frame.me, path="super()"), arguments, keywords, frame)
        return self._opaque("super", [], arguments or [], keywords)

    def _reached(self, node: ast.Call, callee: Token, arguments: list[Any_] | None, keywords: dict[str, Any_], frame: _Frame) -> Any_:
        """The result of calling what is not a method of self."""
        path = (callee.path or "").replace("[]", "")
        if path in self.watched or (callee is frame.me and "self" in self.watched):
            self.records.append(Record(node, path, None if arguments is None else tuple(arguments), keywords))
            query = arguments[0] if arguments else keywords.get("query")
            return self.t.like(query, "attention", rank=3) if isinstance(query, Value) else self._opaque("attention", [], arguments or [], keywords)
        given = arguments if arguments is not None else []
        if callee in self._homes:
            return self._submodule(node, callee, arguments, keywords, frame)
        dotted = callee.dotted or ""
        last = dotted.rpartition(".")[2]
        known = self._function(node, dotted, last, arguments, keywords, frame)
        return known if known is not None else self._opaque(last or "call", [callee], given, keywords)

    def _submodule(self, node: ast.Call, callee: Token, arguments: list[Any_] | None, keywords: dict[str, Any_], frame: _Frame) -> Any_:
        module = module_of(self.project, *self._homes[callee])
        given = arguments or []
        if module is not None and arguments is not None:
            first = given[0] if given and isinstance(given[0], Value) else next((v for v in keywords.values() if isinstance(v, Value)), None)
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
        return self._opaque("module", [callee], given, keywords)

    def _function(self, node: ast.Call, dotted: str, last: str, arguments: list[Any_] | None, keywords: dict[str, Any_], frame: _Frame) -> Any_ | None:
        if arguments is None:
            return None
        if dotted in ("functools.partial", "partial") and arguments:
            inner = self.t.flat(arguments[0])
            return self.t.value(self.t.token("partial", inner, *map(self.t.flat, [*arguments[1:], *keywords.values()]), dotted=inner.dotted))
        if last in ("enumerate", "zip", "reversed", "list", "tuple") and not dotted.count("."):
            return self._iterated(last, arguments)
        if last == "map" and not dotted.count(".") and len(arguments) == 2 and isinstance(arguments[1], Many):
            return Many(tuple(self._reached(node, self.t.flat(arguments[0]), [item], {}, frame) for item in arguments[1].items))
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

    def _iterated(self, name: str, arguments: list[Any_]) -> Any_ | None:
        if name == "enumerate" and len(arguments) == 1:
            over = arguments[0]
            items = over.items if isinstance(over, Many) else None
            if items is not None:
                return Many(tuple(Many((self.t.constant(i), item)) for i, item in enumerate(items)))
            return Many((Many((self.t.value(self.t.token("counter"), 0), self.t.element(over))),))
        if name == "zip":
            if arguments and all(isinstance(a, Many) for a in arguments):
                return Many(tuple(Many(row) for row in zip(*(a.items for a in arguments if isinstance(a, Many)))))
            return Many((Many(tuple(self.t.element(a) for a in arguments)),))
        return arguments[0] if len(arguments) == 1 and name != "reversed" else None

    def _turned(self, arguments: Sequence[Any_], keywords: dict[str, Any_], callee: Token) -> Any_:
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
        arguments: list[Any_] | None,
        keywords: dict[str, Any_],
        frame: _Frame,
    ) -> Any_:
        """The result of a function of the project, followed with the arguments of this call."""
        name = function.node.name
        if self._depth >= _DEEP or arguments is None or function.node.args.vararg or function.node.args.kwarg:
            return self._opaque(name, [me] if me else [], arguments or [], keywords)
        home = function.file.class_of(function.node)
        inner = _Frame(function.file, owner, Class(function.file, home) if home is not None else None, me if function.skip else None)
        kept = {key: value for key, value in frame.env.items() if "." in key}
        inner.env.update(kept)
        given: dict[str, Any_] = dict(zip(function.parameters, arguments))
        given.update({key: value for key, value in keywords.items() if key in function.parameters})
        for argument, default in _defaults(function.node):
            if argument not in given:
                given[argument] = self.t.constant(default.value) if isinstance(default, ast.Constant) else self._unknown(default, inner)
        result = self._run(inner, function.node, given)
        frame.env.update({key: value for key, value in inner.env.items() if "." in key})
        return result

    def _opaque(self, name: str, parts: Sequence[Token], arguments: Sequence[Any_], keywords: dict[str, Any_]) -> Value:
        tokens = [*parts, *map(self.t.flat, arguments), *(self.t.token("keyword", key, self.t.flat(value)) for key, value in keywords.items())]
        return self.t.value(self.t.token("call", name, *tokens))


def _defaults(function: AnyFunction) -> list[tuple[str, ast.expr]]:
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = list(zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults))
    pairs += [(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults) if d is not None]
    return [(a.arg, d) for a, d in pairs]

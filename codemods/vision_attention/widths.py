"""Whether q, k and v reach the kernels with heads of the size that the class names: heads may be padded on the way."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence

from codemods.parsed_file import FunctionNode, ParsedFile, dotted, parameters, self_attribute, stores
from codemods.project import Class, Project
from codemods.vision_attention import layouts
from codemods.vision_attention import vocabulary as V
from codemods.vision_attention.arms import Refusal
from codemods.vision_attention.chain import Chain
from codemods.vision_attention.modules import ROTARY, Effect, module_of

_MADE = ("zeros", "ones", "empty", "full", "new_zeros", "new_ones", "new_empty", "new_full")
_JOINED = ("cat", "concat", "concatenate", "hstack", "dstack", "pad_sequence", "nested_tensor", "interpolate")
_KEPT = re.compile(
    "contiguous|view|reshape|permute|transpose|flatten|squeeze|unsqueeze|rearrange|swapaxes|movedim|unflatten|"
    "chunk|split|tensor_split|unbind|stack|expand|expand_as|repeat_interleave|repeat|select|narrow|index_select|flip|"
    "to|type|type_as|float|half|bfloat16|double|cuda|cpu|clone|detach|requires_grad_|"
    "mul|mul_|div|div_|add|add_|sub|where|clamp|zeros_like|ones_like|empty_like|tuple|list|zip|map|reversed|next|iter|"
    r"tensor_model_parallel_all_reduce|\w*(norm|normalize|rotary|rope|rotate|scatter|dropout)\w*",
    re.IGNORECASE,
)
_PRODUCTS = ("matmul", "mm", "bmm", "einsum", "linear", "tensordot", "baddbmm", "resize_", "gather", "take_along_dim")
_DEEP = 4  # functions entered from one another

Found = ast.AST | None  # what may have changed the last axis, or nothing


def check_unpadded(project: Project, file: ParsedFile, chain: Chain, size: str) -> None:
    """Raises Refusal at what gives q, k or v heads of another size ahead of the dispatch."""
    followed = _Widths(project, file, size, _DEEP)
    followed.block(chain.function.body, chain.statement)
    for name in (chain.query, chain.key, chain.value):
        if (node := followed.env.get(name)) is not None:
            inside = any(node is inner for inner in file.below(chain.function))
            raise Refusal(
                f"{name} is not shown to reach the kernels with heads of self.{size}: {ast.unparse(node)} may give "
                "them another size",
                node if inside else chain.statement,
            )


class _Widths:
    """Follows, statement by statement, which names may hold tensors whose last axis was made longer or cut.

    A shape that names the head size settles it.
    """

    def __init__(self, project: Project, file: ParsedFile, size: str, deep: int) -> None:
        self.project, self.file, self.size, self.deep = project, file, size, deep
        self.env: dict[str, Found] = {}
        self.returned: Found = None

    def block(self, body: Sequence[ast.stmt], end: ast.stmt | None) -> bool:
        """Follow statements; whether `end` was met among them."""
        return any(self._step(step, end) for step in body)

    def _step(self, step: ast.stmt, end: ast.stmt | None) -> bool:
        if step is end:
            return True
        if isinstance(step, ast.Assign):
            for target in step.targets:
                self._bind(target, step.value)
        elif isinstance(step, ast.AnnAssign) and step.value is not None:
            self._bind(step.target, step.value)
        elif isinstance(step, ast.AugAssign):
            self._widen(step.target, self.of(step.value))
        elif isinstance(step, ast.Expr):
            call = step.value
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):  # `parts.append(q)`
                self._widen(call.func.value, self._any([*call.args, *(k.value for k in call.keywords)]))
        elif isinstance(step, ast.Return) and step.value is not None:
            self.returned = self.returned or self.of(step.value)
        elif isinstance(step, (ast.With, ast.AsyncWith)):
            return self.block(step.body, end)
        elif not isinstance(step, (*FunctionNode, ast.ClassDef)):
            return self._branches(step, end)
        return False

    def _branches(self, step: ast.stmt, end: ast.stmt | None) -> bool:
        blocks = [getattr(step, name, []) for name in ("body", "orelse", "finalbody")]
        blocks += [inner.body for inner in [*getattr(step, "handlers", []), *getattr(step, "cases", [])]]
        before = self.env
        ends = [] if isinstance(step, ast.If) and step.orelse else [before]
        for inner in filter(None, blocks):
            self.env = dict(before)
            if isinstance(step, (ast.For, ast.AsyncFor)):
                self._bind(step.target, step.iter)
            if self.block(inner, end):
                return True
            ends.append(self.env)
        # any of the ways may have been gone
        self.env = {n: next((e[n] for e in ends if e.get(n) is not None), None) for one in ends for n in one}
        return False

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List)):
            if len(target.elts) == len(value.elts):
                for name, found in [(t, self.of(v)) for t, v in zip(target.elts, value.elts)]:
                    self._set(name, found)
                return
        self._set(target, self.of(value))

    def _set(self, target: ast.expr, found: Found) -> None:
        if isinstance(target, ast.Subscript):
            self._widen(target.value, found)
        elif (path := dotted(target)) is not None:
            self.env[path] = found
        else:
            for name in stores(target):
                self.env[name] = found

    def _widen(self, holder: ast.expr, found: Found) -> None:
        """Something is put into a list, a table or a buffer beside what it holds."""
        while isinstance(holder, ast.Subscript):
            holder = holder.value
        if found is not None and (path := dotted(holder)) is not None:
            self.env[path] = self.env.get(path) or found

    def _any(self, nodes: Iterable[ast.AST]) -> Found:
        return next((found for node in nodes if (found := self.of(node)) is not None), None)

    def of(self, node: ast.AST) -> Found:
        if (path := dotted(node)) in self.env:
            return self.env[path or ""]
        if isinstance(node, (ast.GeneratorExp, ast.ListComp)):
            before = dict(self.env)
            for generator in node.generators:
                self._set(generator.target, self.of(generator.iter))
            found = self.of(node.elt)
            self.env = before
            return found
        if isinstance(node, ast.Subscript):
            return node if self._cuts(node.slice) else self.of(node.value)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.NamedExpr):
            self._bind(node.target, node.value)
            return self.of(node.target)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            return node
        if isinstance(node, ast.Attribute) and node.attr in ("shape", "dtype", "device", "ndim"):
            return None
        return self._any(child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))

    def _call(self, call: ast.Call) -> Found:
        name = V.called(call) or ""
        through = [*call.args, *(k.value for k in call.keywords)]
        if isinstance(call.func, ast.Attribute):
            through.insert(0, call.func.value)
        if name == "pad":
            widths = (
                call.args[1] if len(call.args) > 1 else next((k.value for k in call.keywords if k.arg == "pad"), None)
            )
            last = widths.elts[:2] if isinstance(widths, (ast.Tuple, ast.List)) else []
            return self._any(through) if last and all(ast.unparse(one) == "0" for one in last) else call
        if self._names_size(call):
            return None
        if name in _MADE or (name == "repeat" and isinstance(call.func, ast.Attribute)):
            last = call.args[-1:] if name not in ("full", "new_full") else call.args[:1]
            if name == "repeat" and last and ast.unparse(last[0]) == "1":
                return self._any(through)
            return call if call.args else None
        if name in _JOINED:
            return self._any(through) if self._is_ahead(call) else call
        if name in ("narrow", "index_select") and not self._is_ahead(call):
            return call
        attribute = self_attribute(call.func)
        owner = self.file.class_of(call)
        module = module_of(self.project, Class(self.file, owner), attribute) if attribute and owner else None
        if module is not None and module.effect is Effect.LAST_AXIS:
            return None  # a projection has a width of its own
        if (module is not None and module.effect is not None) or ROTARY.search(name):
            return self._any(through)
        reached = self.project.callee(self.file, call)
        if reached is None:
            resolved, spelled_as = self.file.resolve(call.func, call), dotted(call.func) or ""
            if isinstance(call.func, ast.Attribute) and resolved is None and not spelled_as.startswith("self."):
                own = [call.func.value]  # a tensor's own method: what else it is given are sizes
                return call if self._resizes(name) else self._any(own)
            if (resolved or "").startswith(("torch.", "einops.")):
                return call if self._resizes(name) else self._any(through)
            return self._any(through) if self._is_vllms(call.func) or _KEPT.fullmatch(name) else call
        passed = reached.passed(call)
        if passed is None or self.deep == 0 or ROTARY.search(reached.node.name):
            return self._any(through)
        inner = _Widths(self.project, reached.file, self.size, self.deep - 1)
        inner.env = {a.arg: self.of(passed[a.arg]) for a in parameters(reached.node) if a.arg in passed}
        inner.block(reached.node.body, None)
        return inner.returned

    @staticmethod
    def _resizes(name: str) -> bool:
        """Whether a function of torch's gives a last axis of another size; most work element by element."""
        return name in _PRODUCTS or "pad" in name

    def _is_vllms(self, function: ast.expr) -> bool:
        """A function of vLLM's, or one that such a function chose: these pad no heads."""
        chosen = [source.func for source in self.project.sources(self.file, function) if isinstance(source, ast.Call)]
        return any(self.project.vllm(self.file, one) is not None for one in (function, *chosen))

    def _names_size(self, call: ast.Call) -> bool:
        """Whether a call gives a tensor a shape that ends in the head size."""
        name = V.called(call)
        if name == "rearrange":
            sides = layouts.pattern(call)
            words = {k.arg: self_attribute(k.value) for k in call.keywords}
            return sides is not None and words.get(sides[1][-1]) == self.size
        if name not in ("view", "reshape", "unflatten", *_MADE) or not call.args:
            return False
        last = call.args[-1]
        if isinstance(last, (ast.Tuple, ast.List)) and last.elts:
            last = last.elts[-1]
        if isinstance(last, ast.Starred):
            last = last.value
        if isinstance(last, ast.Name):  # `shape = (b, s, self.heads, self.head_dim)`
            return any(
                isinstance(step, ast.Assign)
                and isinstance(step.value, ast.Tuple)
                and self_attribute(step.value.elts[-1]) == self.size
                and last.id in stores(step)
                for step in self.file.nodes[ast.Assign]
                if self.file.function(step) is self.file.function(call)
            )
        return self_attribute(last) == self.size

    @staticmethod
    def _is_ahead(call: ast.Call) -> bool:
        """Whether tensors are joined along an axis that is not the last: the first, second, or one from behind."""
        words = [k.value for k in call.keywords if k.arg in ("dim", "axis")]
        dims = words or (call.args[:1] if V.called(call) in ("narrow", "index_select") else call.args[1:2])
        return not dims or ast.unparse(dims[0]) in ("0", "1", "-2", "-3", "-4")

    @staticmethod
    def _cuts(index: ast.expr) -> bool:
        """Whether an index cuts the last axis: `x[..., :n]`, `x[:, :, :n]`."""
        if not isinstance(index, ast.Tuple) or not index.elts or not isinstance(index.elts[-1], ast.Slice):
            return False
        last = index.elts[-1]
        ends = ast.unparse(index.elts[0]) == "..." or len(index.elts) > 2
        return ends and (last.lower, last.upper, last.step) != (None, None, None)

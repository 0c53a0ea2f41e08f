"""Sequence lengths: how max_seqlen is computed from cu_seqlens, and how it must be for MMEncoderAttention."""

from __future__ import annotations

import ast


def is_longest(node: ast.AST) -> bool:
    """Whether an expression is `(cu[1:] - cu[:-1]).max().item()`, or the same by `diff()` or `torch.max`."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "item" and not node.args):
        return False
    inner = node.func.value
    return isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr == "max" and _is_difference(inner)


def _is_difference(call: ast.Call) -> bool:
    assert isinstance(call.func, ast.Attribute)
    of = call.args[0] if call.args else call.func.value
    if isinstance(of, ast.BinOp) and isinstance(of.op, ast.Sub):
        return all(isinstance(side, ast.Subscript) and isinstance(side.slice, ast.Slice) for side in (of.left, of.right))
    return isinstance(of, ast.Call) and isinstance(of.func, ast.Attribute) and of.func.attr == "diff"


def without_item(node: ast.AST) -> ast.AST:
    """A copy in which the longest sequence stays a tensor: MMEncoderAttention's kernels call `.item()` themselves."""

    class Strip(ast.NodeTransformer):
        def visit_Call(self, call: ast.Call) -> ast.AST:
            self.generic_visit(call)
            if is_longest(call):
                assert isinstance(call.func, ast.Attribute)
                return call.func.value
            return call

    copy = ast.parse(ast.unparse(node), mode="eval").body if isinstance(node, ast.expr) else ast.parse(ast.unparse(node)).body[0]
    return Strip().visit(copy)  # type: ignore[no-any-return]

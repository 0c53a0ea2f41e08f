"""What a file still uses of the vision API that vLLM removed: a count made from the syntax tree alone, by plain names.

It shares nothing with the codemod on purpose. It knows no imports and no scopes, so it sees too much rather than too
little: a name that only looks like the old API counts as a use of it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

MULTI_HEAD = "MultiHeadAttention"

# Identifiers that no ported file needs, and the first target at which they are gone.
REMOVED = {
    "maybe_get_vit_flash_attn_backend": "0.13",
    "check_upstream_fa_availability": "0.13",
    "flash_attn_varlen_func": "0.13",
    "vit_flash_attn_wrapper": "0.13",
    "vit_torch_sdpa_wrapper": "0.13",
    "vit_xformers_attn_wrapper": "0.13",
    "use_upstream_fa": "0.13",
    "_Backend": "0.13",
    "XFORMERS": "0.13",
    MULTI_HEAD: "0.14",
    "attn_backend_override": "0.15",
}
# Removed from vLLM, but a file may have a function of its own by that name: only an import counts.
REMOVED_IMPORTS = ("apply_rotary_emb_torch", "dispatch_rotary_emb_function", "apply_rotary_emb_dispatch")
# Counted in files with vision attention; a language model's own rotary embedding is another matter.
REMOVED_KEYWORDS = {("get_rope", "rotary_dim"), ("get_vit_attn_backend", "support_fa")}

KERNELS = ("flash_attn_varlen_func", "vit_flash_attn_wrapper")
CHOICES = ("attn_backend", "is_flash_attn_backend")
ENCODER = "MMEncoderAttention"
CUSTOM_OPS = (ENCODER, "ApplyRotaryEmb")

# Names that only files with vision attention have; `get_rope` is not among them.
WORDS = re.compile(rf"\b(?:{'|'.join((*REMOVED, *REMOVED_IMPORTS, *CHOICES, *CUSTOM_OPS, 'get_vit_attn_backend'))})\b")


@dataclass(frozen=True)
class Use:
    """One use of a name. `scope` is the dotted path of classes and functions around it, empty at module level."""

    name: str
    scope: str
    node: ast.AST
    parent: ast.AST

    @property
    def line(self) -> int:
        return getattr(self.node, "lineno", getattr(self.parent, "lineno", 1))

    @property
    def cls(self) -> str:
        """The outermost class or function around it."""
        return self.scope.partition(".")[0]


class Source:
    """A text and its syntax tree, flattened once."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text)

    @cached_property
    def nodes(self) -> list[tuple[ast.AST, ast.AST, str]]:
        """Every node with its parent and the scope it stands in."""
        return list(_walk(self.tree, ""))

    @cached_property
    def names(self) -> list[Use]:
        return [Use(name, scope, node, parent) for node, parent, scope in self.nodes if (name := identifier(node))]

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        """Every class by its dotted path."""
        return {
            f"{scope}.{node.name}".lstrip("."): node for node, _, scope in self.nodes if isinstance(node, ast.ClassDef)
        }

    def uses(self, *names: str) -> list[Use]:
        """Where these identifiers stand, their definitions left out."""
        return [use for use in self.names if use.name in names]

    def removed(self, target: str) -> list[Use]:
        """Uses of what is gone at the target, a release series such as `0.15`."""
        found = self.uses(*(name for name, since in REMOVED.items() if reached(since, target)))
        has_vision = bool(self.uses("get_vit_attn_backend", ENCODER, MULTI_HEAD))
        for use in self.names:
            if isinstance(use.parent, ast.ImportFrom) and use.name in REMOVED_IMPORTS:
                found += [use] if use.parent.level or (use.parent.module or "").startswith("vllm.") else []
            elif has_vision and isinstance(use.parent, ast.Call) and isinstance(use.node, ast.keyword):
                found += [use] if (identifier(use.parent.func), use.name) in REMOVED_KEYWORDS else []
        return found

    def chains(self) -> list[Use]:
        """Choices of an attention kernel outside `__init__`: an outermost `if` on the backend that calls a kernel."""
        found = []
        for node, parent, scope in self.nodes:
            is_elif = isinstance(parent, ast.If) and parent.orelse == [node]
            if not isinstance(node, ast.If) or is_elif or scope.endswith(".__init__"):
                continue
            chosen_on = {identifier(part) for part in ast.walk(node.test)}
            called = {identifier(part.func) for part in ast.walk(node) if isinstance(part, ast.Call)}
            if chosen_on & set(CHOICES) and called & set(KERNELS):
                found.append(Use("chain", scope, node, parent))
        return found

    def built_outside_init(self) -> list[Use]:
        """Calls that build one of vLLM's custom ops elsewhere than in an `__init__`, where no configuration is set."""
        return [
            Use(name, scope, node, parent)
            for node, parent, scope in self.nodes
            if isinstance(node, ast.Call)
            and (name := identifier(node.func)) in CUSTOM_OPS
            and not scope.endswith("__init__")
        ]


@lru_cache(maxsize=1000)
def source(text: str) -> Source:
    """The text as a Source; the same text is parsed once."""
    return Source(text)


def _walk(node: ast.AST, scope: str) -> Iterator[tuple[ast.AST, ast.AST, str]]:
    for child in ast.iter_child_nodes(node):
        yield child, node, scope
        named = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        yield from _walk(child, f"{scope}.{child.name}".lstrip(".") if named else scope)


def identifier(node: ast.AST) -> str | None:
    """The name a node spells: of a variable, an attribute, an import, a parameter or a keyword argument."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.alias):
        return node.name.rpartition(".")[2]
    if isinstance(node, (ast.arg, ast.keyword)):
        return node.arg
    return None


def reached(since: str, target: str) -> bool:
    """Whether a release series is `since` or newer."""
    return [int(part) for part in since.split(".")] <= [int(part) for part in target.split(".")]


def method(cls: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next((node for node in cls.body if isinstance(node, ast.FunctionDef) and node.name == name), None)


def calls(node: ast.AST, name: str) -> list[ast.Call]:
    """Calls below the node of anything by that last name: `f()`, `x.f()`."""
    return [part for part in ast.walk(node) if isinstance(part, ast.Call) and identifier(part.func) == name]

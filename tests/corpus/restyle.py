"""The same program written otherwise: other names, quotes, spacing, argument order, comments and nesting."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Callable, Iterable, Mapping
from functools import cache

# Names that mean something to vLLM, PyTorch or the codemod, so that a file is not free to choose them.
GIVEN = {"self", "cls", "forward", "prefix", "attn", "attn_backend", "attn_backend_override", "use_upstream_fa"}
GIVEN |= {"is_flash_attn_backend"}
# Parameters of what a port puts in: a name like these is renamed there as well, if it is renamed at all.
GIVEN |= {"num_heads", "head_size", "scale", "num_kv_heads", "query", "key", "value", "cu_seqlens", "max_seqlen"}


def own_names(text: str) -> list[str]:
    """Names that the file itself chose: its classes, functions, parameters, variables and the attributes it sets.

    Not those that are also passed by keyword to something imported, or read from something else, nor what a class
    statement sets for whoever reads it by the interface of its bases: others chose those.
    """
    tree = ast.parse(text)
    imported = {alias.asname or alias.name.split(".")[0] for node in ast.walk(tree) for alias in names_of(node)}
    found, foreign = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            found.add(node.name)
            foreign |= {t.id for s in node.body for t in getattr(s, "targets", ()) if isinstance(t, ast.Name)}
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            found.add(node.id if isinstance(node, ast.Name) else node.attr)
        elif isinstance(node, ast.Call) and root(node.func) in imported | {None}:
            foreign |= {keyword.arg for keyword in node.keywords}
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) != "self":
            foreign.add(node.attr)
    in_texts = {word for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for word in words(ast.unparse(node))}
    return sorted(n for n in found - foreign - imported - GIVEN - in_texts if not n.startswith("__"))


def names_of(node: ast.AST) -> list[ast.alias]:
    return node.names if isinstance(node, (ast.Import, ast.ImportFrom)) else []


def root(node: ast.expr) -> str | None:
    """The first name of a dotted expression: `a` of `a.b.c`."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def words(text: str) -> list[str]:
    return re.findall(r"[A-Za-z_]\w*", text)


def tokens_of(text: str) -> list[tokenize.TokenInfo]:
    return list(tokenize.generate_tokens(io.StringIO(text).readline))


def substitute(text: str, change: Callable[[tokenize.TokenInfo], str | None]) -> str:
    """The text with some tokens spelled otherwise; everything between them is kept."""
    lines = text.splitlines(keepends=True)
    for token in reversed(tokens_of(text)):
        new = change(token)
        if new is not None and token.start[0] == token.end[0]:
            row, line = token.start[0] - 1, lines[token.start[0] - 1]
            lines[row] = line[: token.start[1]] + new + line[token.end[1] :]
    return "".join(lines)


def rename(text: str, names: Mapping[str, str]) -> str:
    return substitute(text, lambda token: names.get(token.string) if token.type == tokenize.NAME else None)


def import_as(text: str, names: Mapping[str, str]) -> str:
    """Imported names under aliases: `from m import a` becomes `from m import a as b`, and every use follows."""
    imports = {line for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom) for line in span(node)}

    def change(token: tokenize.TokenInfo) -> str | None:
        if token.type != tokenize.NAME or token.string not in names:
            return None
        new = names[token.string]
        return f"{token.string} as {new}" if token.start[0] in imports else new

    return substitute(text, change)


def span(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def other_quotes(text: str, picks: Iterable[bool]) -> str:
    """Plain strings in the other kind of quotes, where `picks` says so and they hold no quotes."""
    pick = iter(picks)

    def change(token: tokenize.TokenInfo) -> str | None:
        if token.type == tokenize.STRING and re.fullmatch(r"\"[^\"'\\]+\"", token.string) and next(pick, False):
            return f"'{token.string[1:-1]}'"
        return None

    return substitute(text, change)


def turn_keywords(text: str, turns: Iterable[int]) -> str:
    """Keyword arguments in another order, each call's rotated by the next of `turns`."""
    for number, by in enumerate(turns):
        calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and len(node.keywords) > 1]
        if number >= len(calls):
            break
        keywords = calls[number].keywords
        places = [
            (offset(text, k.lineno, k.col_offset), offset(text, k.end_lineno, k.end_col_offset)) for k in keywords
        ]
        written = [text[first:last] for first, last in places]
        turned = written[by % len(written) :] + written[: by % len(written)]
        for (first, last), new in reversed(list(zip(places, turned, strict=True))):
            text = text[:first] + new + text[last:]
    return text


def offset(text: str, line: int | None, column: int | None) -> int:
    """Where a place of the syntax tree is in an ASCII text."""
    return sum(map(len, text.splitlines(keepends=True)[: (line or 1) - 1])) + (column or 0)


@cache
def formatted(text: str, width: int, quotes: str) -> str:
    """As ruff writes it, with lines up to this width."""
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--no-cache", "--stdin-filename", "model.py"]
    command += ["--line-length", str(width), "--config", f"format.quote-style = '{quotes}'", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True, timeout=60).stdout


def comment(text: str, picks: Iterable[int]) -> str:
    """A comment of its own above, or behind, statements: 0 none, 1 above, 2 behind."""
    lines, pick = text.splitlines(), iter(picks)
    firsts = {node.lineno for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)}
    ends = {token.start[0] for token in tokens_of(text) if token.type == tokenize.NEWLINE}
    commented = {token.start[0] for token in tokens_of(text) if token.type == tokenize.COMMENT}
    written = []
    for number, line in enumerate(lines, 1):
        choice = next(pick, 0) if number in firsts else 0
        if choice == 1 and not line.lstrip().startswith(("else", "elif")):
            written.append(f"{line[: len(line) - len(line.lstrip())]}# above, {number}")
        written.append(f"{line}  # behind, {number}" if choice == 2 and number in ends - commented else line)
    return "\n".join(written) + "\n"


def nest(text: str, condition: str = "if True:") -> str:
    """All that follows the imports, inside a branch."""
    tree = ast.parse(text)
    first = next(node for node in tree.body if not isinstance(node, (ast.Import, ast.ImportFrom)))
    lines = text.splitlines(keepends=True)
    body = "".join(f"    {line}" if line.strip() else line for line in lines[first.lineno - 1 :])
    return "".join(lines[: first.lineno - 1]) + condition + "\n" + body


class _Plain(ast.NodeTransformer):
    """Without aliases of imports, without imports, and with keyword arguments in alphabetical order."""

    def __init__(self, tree: ast.Module) -> None:
        self.real = {a.asname: a.name for node in ast.walk(tree) for a in names_of(node) if a.asname}

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self.real.get(node.id, node.id)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        node.keywords.sort(key=lambda keyword: keyword.arg or "")
        return self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        return None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        return None


def meaning(text: str) -> tuple[set[str], str]:
    """What a file imports, and its code in one way of writing: equal for two texts that differ in style alone."""
    tree = ast.parse(text)
    imported = {
        f"{'.' * getattr(node, 'level', 0)}{getattr(node, 'module', None) or ''}.{alias.name}"
        for node in ast.walk(tree)
        for alias in names_of(node)
    }
    return imported, ast.unparse(_Plain(tree).visit(tree))

"""`try: import ... except ImportError: ...` about vLLM: which arm runs at the target, if the index can tell."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from codemods import moved_names
from codemods.parsed_file import FunctionNode, ParsedFile, dotted, loads
from codemods.plan import Plan
from codemods.vision_attention import vocabulary as V
from codemods.vllm_api import Api, releases

_CATCHES = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}

_BY_DEVICE = re.compile(
    r"(?:^|[._])(?:flash\w*|triton|xformers|aiter|cuda|rocm|xpu|cpu|tpu|npu|cutlass|deep_?gemm|fa_utils|ops?|ray)(?:[._]|$)"
)
"""Modules that may fail to import where a device or a package is missing, whatever the release."""

_REWRITTEN = {V.MULTI_HEAD_ATTENTION, V.GET_BACKEND, V.GET_FLASH, *V.WRAPPERS, *V.ENUMS}
"""Names whose uses other rules take out: an import of them is not theirs to lose beforehand."""


def arm(run: Plan, file: ParsedFile, node: ast.Try) -> tuple[str, str] | None:
    """The part of a `try` that stays at the target ("body" or "handlers.0"), and why; None where that is not
    certain."""
    if node.finalbody or not node.handlers or not all(_is_plain(s) for s in node.body):
        return None
    handler = node.handlers[0]
    if handler.name and handler.name in loads(ast.Module(handler.body, [])):
        return None  # it speaks of the error, which only the failed import has
    if any(isinstance(s, ast.Raise) for s in handler.body):
        return None
    tried, other = list(_imports(file, node.body)), list(_imports(file, handler.body))
    outcome, works = _outcome(run, file, node.body), _outcome(run, file, handler.body)
    if outcome is None or not tried:
        return None
    if outcome is True:
        return ("body", "what it tries to import is") if _may_stand_alone(run, node, tried, other, works) else None
    if outcome not in _caught(handler):
        return None
    covered = _bound(node.body) <= _bound(handler.body)
    if other and works is True and covered and all(_is_plain(s) for s in handler.body):
        return "handlers.0", "what it tries to import is not"
    homes = [(home.module, home.name) for pair in tried if (home := moved_names.home(run, *pair)) is not None]
    there = all(moved_names.was_there(run, *pair) for pair in tried)
    if any(name in _REWRITTEN for _, name in tried):  # where neither arm works, nothing is lost with the other
        return ("body", "nothing that it tries to import is") if there and isinstance(works, str) and other else None
    if there and len(homes) == len(tried):  # the import follows its name, which is what was wanted
        moved = "body", "what it tries to import has moved"
        return moved if _may_stand_alone(run, node, homes, other, works) else None
    if not other and not homes and covered and all(_is_fallback(s) for s in handler.body):
        return "handlers.0", "what it tries to import is not"
    return None


def _may_stand_alone(
    run: Plan, node: ast.Try, tried: list[tuple[str, str]], other: list[tuple[str, str]], works: bool | str | None
) -> bool:
    """Whether a `try` asks for the release, and not for a device or a package that may be missing."""
    if any(_BY_DEVICE.search(module) for module, _ in tried):
        return False
    handler = node.handlers[0].body
    if other:
        same = {run.api.origin(*pair) for pair in tried} >= {run.api.origin(*pair) for pair in other}
        return bool(_bound(node.body) & _bound(handler)) and (same or isinstance(works, str))
    came = any(Api.of(release).has(*pair) is False for pair in tried for release in releases())
    return came and bool(handler) and all(_is_fallback(s) for s in handler)


def _is_plain(statement: ast.stmt) -> bool:
    """An import, or an assignment of something that cannot fail to be imported."""
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return True
    value = statement.value if isinstance(statement, (ast.Assign, ast.AnnAssign)) else None
    return isinstance(value, ast.Constant) or (value is not None and dotted(value) is not None)


def _is_fallback(statement: ast.stmt) -> bool:
    return _is_plain(statement) or isinstance(statement, (ast.ClassDef, *FunctionNode))


def _imports(file: ParsedFile, body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    """(module, name) of everything that is imported from vLLM, nested arms included."""
    for statement in body:
        for node in file.below(statement):
            if isinstance(node, ast.ImportFrom) and file.absolute(node).partition(".")[0] == "vllm":
                yield from ((file.absolute(node), alias.name) for alias in node.names)
            elif isinstance(node, ast.Import):
                yield from ((*_split(a.name),) for a in node.names if a.name.startswith("vllm."))


def _split(module: str) -> tuple[str, str]:
    package, _, name = module.rpartition(".")
    return package, name


def _outcome(run: Plan, file: ParsedFile, body: Sequence[ast.stmt]) -> bool | str | None:
    """True where all imports of a block succeed at the target, the error where one fails, None where it is not
    known."""
    for statement in body:
        if isinstance(statement, ast.ImportFrom):
            module = file.absolute(statement)
            if module.partition(".")[0] != "vllm" or module in run.project.by_module:
                return None
            if not run.api.has_module(module):
                return "ModuleNotFoundError"
            there = [run.api.has(module, alias.name) if alias.name != "*" else None for alias in statement.names]
            first = next((answer for answer in there if answer is not True), True)
            if first is not True:
                return None if first is None else "ImportError"
        elif isinstance(statement, ast.Import):
            modules = [alias.name for alias in statement.names]
            if any(m.partition(".")[0] != "vllm" or m in run.project.by_module for m in modules):
                return None
            if not all(map(run.api.has_module, modules)):
                return "ModuleNotFoundError"
        elif not _is_fallback(statement):
            return None
    return True


def _caught(handler: ast.ExceptHandler) -> set[str]:
    """Which errors of imports a handler catches."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {dotted(kind) for kind in kinds} if handler.type is not None else {"Exception"}
    if names & (_CATCHES - {"ModuleNotFoundError"}):
        return {"ImportError", "ModuleNotFoundError"}
    return names & {"ModuleNotFoundError"}  # type: ignore[return-value]


def _bound(body: Sequence[ast.stmt]) -> set[str]:
    """Names that the statements of an arm bind, nested arms included."""
    found: set[str] = set()
    for statement in body:
        for node in [statement, *(ast.walk(statement) if isinstance(statement, (ast.Try, ast.If)) else ())]:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                found |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, (ast.ClassDef, *FunctionNode)):
                found.add(node.name)
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found |= {t.id for t in targets if isinstance(t, ast.Name)}
    return found

"""Decides the guards of a run's files, round by round: one that is settled may be what another asks for."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from codemods import edits as E
from codemods.guards import attempts
from codemods.guards.asking import Asking
from codemods.guards.view import Decision, View, may_go, view
from codemods.parsed_file import ParsedFile
from codemods.plan import Plan
from codemods.project import Project
from codemods.target import target
from codemods.vllm_api import Api

_PASSED_ON = ("__version", "vllm_version", "importlib.metadata", "importlib import metadata")
_ASKS = (*_PASSED_ON, "find_spec", "hasattr(", "ImportError", "ModuleNotFoundError")

Decisions = dict[E.Ref, Decision]


def decide(files: Sequence[ParsedFile], beside: Sequence[ParsedFile], release: str) -> dict[Path, Decisions]:
    """The guards of `files` that are certain at a release. `beside` is only looked into, for helpers and constants."""
    found: dict[Path, Decisions] = {}
    now = {file.path: file for file in files}
    asking = _asking([*files, *beside])
    while True:
        project = Project([*now.values(), *beside])
        run = Plan(project, target(release), Api.of(release), [])
        ask = Asking(project, run.api)
        changed = False
        for file in files:
            new = _of_file(run, ask, now[file.path]) if file.path in asking else {}
            if new:
                found.setdefault(file.path, {}).update(new)
                now[file.path] = view(file, found[file.path], frozenset()).file
                changed = True
        if not changed:
            return found


def settled(
    files: Sequence[ParsedFile], beside: Sequence[ParsedFile], release: str, others: Sequence[str], keep: bool
) -> dict[Path, View]:
    """The files with guards as `release` runs them. A guard goes from the text if all targets agree on its arm."""
    decided = decide(files, beside, release)
    elsewhere = [decide(files, beside, other) for other in others if other != release]
    views = {}
    for file in files:
        decisions = decided.get(file.path, {})
        differing = (p for p, d in decisions.items() if any(_keep(e, file.path, p) != d.keep for e in elsewhere))
        if decisions:
            views[file.path] = view(file, decisions, frozenset(decisions if keep else differing))
    return views


def _keep(decided: dict[Path, Decisions], path: Path, place: E.Ref) -> str | None:
    decision = decided.get(path, {}).get(place)
    return decision.keep if decision is not None else None


def _asking(files: Sequence[ParsedFile]) -> set[Path]:
    """Files that may hold a guard: they ask themselves, or import from one that does."""
    found = {file.path for file in files if any(word in file.text for word in _ASKS)}
    passing = {file.path for file in files if any(word in file.text for word in _PASSED_ON)}
    while True:
        modules = {file.module for file in files if file.path in passing}
        more = {f.path for f in files if f.path not in found and any(i.module in modules for i in f.imports)}
        found |= more
        if not more - passing:
            return found
        passing |= more


def _of_file(run: Plan, ask: Asking, file: ParsedFile) -> Decisions:
    found: Decisions = {}

    def settle(node: ast.AST, keep: str, why: str) -> None:
        if may_go(file, node, keep) and not refuses(node, keep):
            found[E.Ref.of(node)] = Decision(keep, f"{why} in vLLM {run.target.version}")

    for node in [*file.nodes[ast.If], *file.nodes[ast.IfExp]]:
        assert isinstance(node, (ast.If, ast.IfExp))
        holds = ask.decided(file, node.test)
        if holds is not None and not any(isinstance(n, ast.NamedExpr) for n in ast.walk(node.test)):
            settle(node, "body" if holds else "orelse", f"`{_short(file.written(node.test))}` is {str(holds).lower()}")
    for node in file.nodes[ast.Try]:
        assert isinstance(node, ast.Try)
        stays = attempts.arm(run, file, node)
        if stays is not None:
            settle(node, *stays)
    return found


def refusals(ask: Asking, file: ParsedFile) -> Iterator[tuple[ast.AST, str]]:
    """Checks by which a file refuses to run with the target, each with what it asks."""
    for node in [*file.nodes[ast.If], *file.nodes[ast.Assert]]:
        assert isinstance(node, (ast.If, ast.Assert))
        arms = ("body", "orelse") if isinstance(node, ast.If) else ("orelse",)
        told = [arm for arm in arms if refuses(node, arm)]
        holds = ask.decided(file, node.test) if told else None
        if holds is not None and ("body" if holds else "orelse") in told:
            yield node, _short(file.written(node.test))


def refuses(node: ast.AST, keep: str) -> bool:
    """Whether all that an arm comes to is an error: folding it would leave a file that only raises."""
    if isinstance(node, ast.Assert):
        return keep == "orelse"
    arm: list[ast.stmt] = getattr(node, keep) if isinstance(node, ast.If) else []
    return bool(arm) and isinstance(arm[-1], ast.Raise)


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."

"""What classes of the project take from vLLM's: which classes they extend, and what those had and have.

A vLLM class is known by the dotted name under which the project reaches it. It may have moved by the target; its
members at any release are looked up under the name it has there.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache

from codemods import moved_names
from codemods.memory import remembered
from codemods.parsed_file import FunctionNode, ParsedFile, dotted
from codemods.plan import Plan
from codemods.project import Class
from codemods.target import release_key
from codemods.vllm_api import Api, Signature, releases
from codemods.vllm_api.api import PLAIN_BASES

INTERFACES = "vllm.model_executor.models.interfaces"
_CONTRACTS = (f"{INTERFACES}.", f"{INTERFACES}_base.", "vllm.multimodal.")
"""Where the classes live that vLLM calls a model, its processor and its dummy inputs through."""


@dataclass(frozen=True)
class Heritage:
    """The vLLM classes that a class extends, nearest first."""

    bases: tuple[str, ...]
    closed: bool  # nothing else it extends can define what vLLM's classes define


@dataclass(frozen=True)
class Lost:
    """A member that a vLLM class had, and has no longer at the target."""

    base: str  # dotted name of the class as the project reaches it
    release: str  # the last release that has it


@dataclass(frozen=True)
class OutsideBase:
    """A base of a class, or of its bases inside the project, that is no class of the project."""

    file: ParsedFile
    vllm: str | None  # dotted name as the file reaches it, where it is vLLM's
    plain: bool  # known to have nothing of what vLLM's classes have


@remembered
def outside_bases(run: Plan, cls: Class) -> tuple[OutsideBase, ...]:
    """Nearest first."""
    found = []
    for here in run.project.bases(cls):
        for node in here.node.bases:
            bare = node.value if isinstance(node, ast.Subscript) else node  # Generic[T]
            if run.project.class_named(here.file, bare) is None:
                meaning = run.project.meaning(here.file, bare) or ast.unparse(bare)
                found.append(OutsideBase(here.file, run.project.vllm(here.file, bare), meaning in PLAIN_BASES))
    return tuple(found)


@remembered
def heritage(run: Plan, cls: Class) -> Heritage:
    """The vLLM classes among the bases of a class, and of its bases inside the project."""
    found = outside_bases(run, cls)
    names = dict.fromkeys(base.vllm for base in found if base.vllm is not None)
    return Heritage(tuple(names), all(base.plain for base in found if base.vllm is None))


@remembered
def contracts(run: Plan, cls: Class) -> tuple[str, ...]:
    """Those of them through which vLLM itself calls the class: interfaces of models, processors, dummy inputs."""
    return tuple(base for base in heritage(run, cls).bases if _is_contract(run.target.version, base))


@remembered
def home(run: Plan, base: str) -> str | None:
    """The dotted name of a vLLM class at the target; None if it is gone."""
    module, _, name = base.rpartition(".")
    found = moved_names.home(run, module, name)
    return f"{found.module}.{found.name}" if found is not None else None


def members(run: Plan, base: str) -> frozenset[str]:
    """What the class has at the target."""
    now = home(run, base)
    return run.api.members(now) if now is not None else frozenset()


def signature(run: Plan, base: str, method: str) -> Signature | None:
    """How vLLM calls a method of the class at the target; None where it has no such method, or that is not known."""
    now = home(run, base)
    return run.api.signature(f"{now}.{method}") if now is not None else None


@remembered
def before(run: Plan, base: str) -> tuple[tuple[Api, str], ...]:
    """The releases before the target that have the class, newest first, with its dotted name there."""
    now = home(run, base)
    found = []
    for release in reversed(releases()):
        if release_key(release) >= release_key(run.target.version):
            continue
        api = Api.of(release)
        name = next((n for n in (base, now) if n is not None and _has(api, n)), None)
        if name is not None:
            found.append((api, name))
    return tuple(found)


def lost(run: Plan, bases: tuple[str, ...], member: str) -> Lost | None:
    """Whether some of the classes had a member that none of them has at the target."""
    if any(member in members(run, base) for base in bases):
        return None
    for base in bases:
        if home(run, base) is None:
            continue
        for api, name in before(run, base):
            if member in api.members(name):
                return Lost(base, api.version)
    return None


def renamed(run: Plan, bases: tuple[str, ...], old: str, new: str) -> bool:
    """Whether one of the classes had a member under the old name, and has it under the new one at the target."""
    return any(
        new in (now := members(run, base))
        and old not in now
        and any(old in api.members(name) for api, name in before(run, base))
        for base in bases
    )


def head(statement: ast.stmt) -> ast.AST:
    """What a finding on a member accounts for: of a method its first parameter, and nothing that stands in it."""
    arguments = statement.args.args if isinstance(statement, FunctionNode) else []
    return arguments[0] if arguments else statement


def reads(run: Plan, member: str) -> bool:
    """Whether the project itself reads a member of some object, other than by super()."""
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == member
        and isinstance(node.ctx, ast.Load)
        and not (isinstance(node.value, ast.Call) and dotted(node.value.func) == "super")
        for file in run.files
        for node in file.file.nodes[ast.Attribute]
    )


def _has(api: Api, dotted: str) -> bool:
    module, _, name = dotted.rpartition(".")
    return api.has(module, name) is True


@cache
def _is_contract(version: str, base: str) -> bool:
    """Whether a class is, or extends, one that vLLM calls through, in any release up to the target."""
    return any(
        ancestor.startswith(_CONTRACTS)
        for release in releases()
        if release_key(release) <= release_key(version)
        for ancestor in Api.of(release).ancestry(base)
    )

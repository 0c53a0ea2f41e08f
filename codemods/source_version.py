"""Which vLLM a file was written for, read from what it imports and how it calls it."""

from __future__ import annotations

import ast
from collections.abc import Callable

from codemods import calls
from codemods.parsed_file import ParsedFile
from codemods.project import Project
from codemods.target import release_key
from codemods.vision_attention import vocabulary as V
from codemods.vllm_api import Api, releases

# Names whose place or signature tells releases apart; all others would only cost time.
_TELLING = frozenset({*V.ATTENTION, *V.ENUMS})


def source_versions(project: Project, file: ParsedFile) -> tuple[str, ...]:
    """Every indexed release that has all vision-attention names the file imports and takes its calls of them."""
    wanted = [
        (file.absolute(s), a.name) for s in file.nodes[ast.ImportFrom] if isinstance(s, ast.ImportFrom) for a in s.names
    ]
    wanted = [(module, name) for module, name in wanted if module.startswith("vllm.") and name != "*"]
    telling = [pair for pair in wanted if pair[1] in _TELLING]
    called = [
        (project.vllm(file, node.func) or "", node)
        for node in file.nodes[ast.Call]
        if isinstance(node, ast.Call) and V.vllm_call(project, file, node, *_TELLING)
    ]
    if not telling and not called:
        return ()
    found = [r for r in releases() if _fits(Api.of(r), telling, called)]
    narrower = [r for r in found if all(Api.of(r).has(module, name) is not False for module, name in wanted)]
    return tuple(narrower or found)


def newest_source(
    project: Project,
    file: ParsedFile,
    known: tuple[str, ...],
    target: str,
    has_all: Callable[[Api], bool] = lambda api: True,
) -> str | None:
    """The release to compare a target with: the newest that a file may be written for, no newer than the target.

    Of a file that does not tell by its vision attention, all imports of vLLM's are asked, and `has_all`. None where no
    release has them all.
    """
    until = [release for release in releases() if release_key(release) <= release_key(target)]
    if known:
        return next((release for release in reversed(known) if release in until), known[0])
    wanted = [
        (i.module, i.name) for i in file.imports if i.name not in (None, "*") and i.module not in project.by_module
    ]
    named = [(module, name) for module, name in wanted if name is not None and module.partition(".")[0] == "vllm"]
    for release in reversed(until):
        api = Api.of(release)
        if all(api.has(*pair) is not False for pair in named) and has_all(api):
            return release
    return None


def _fits(api: Api, names: list[tuple[str, str]], called: list[tuple[str, ast.Call]]) -> bool:
    return all(api.has(module, name) is not False for module, name in names) and all(
        calls.why_not(api, qualified, call) is None for qualified, call in called
    )


def describe(versions: tuple[str, ...]) -> str | None:
    """`0.12.0`, `0.11.1 to 0.11.2`, or None where the file does not tell."""
    if not versions:
        return None
    return versions[0] if len(versions) == 1 else f"{versions[0]} to {versions[-1]}"

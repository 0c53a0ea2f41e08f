"""vLLM 0.12's models brought to 0.32 in one step and in several: the same text, but for where imports come from.

An import that works at its target stays as it is. One that moved goes to the shortest module of that target. So a file
that stopped at 0.14 keeps the module that 0.14 had, while one that came straight from 0.12 has the package that exports
the same thing since 0.16. That is the only difference: both ways read the same objects of 0.32.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from codemods import vllm_api
from codemods.vllm_api import store
from tests.corpus.port import lay_out, run, texts

ONE = ("0.32",)
SEVERAL = ("0.14", "0.20", "0.32")


def brought(release: Path, targets: tuple[str, ...], folder: Path) -> dict[str, str]:
    models = lay_out(release, folder)
    for target in targets:
        run([models], target)
    return texts(models)


def test_steps_make_no_difference(model_files: Callable[[str], Path], tmp_path: Path) -> None:
    release = model_files("0.12.0")
    one = brought(release, ONE, tmp_path / "one")
    several = brought(release, SEVERAL, tmp_path / "several")
    api = vllm_api.Api.of(vllm_api.resolve(ONE[-1]))
    for name in one:
        assert without_imports(one[name]) == without_imports(several[name]), name
        assert set(imported(one[name], api)) == set(imported(several[name], api)), name


def without_imports(text: str) -> list[str]:
    """The lines of a file that are no import of vLLM's at module level."""
    lines = text.splitlines()
    for statement in reversed(ast.parse(text).body):
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("vllm."):
            del lines[statement.lineno - 1 : statement.end_lineno]
    return lines


def imported(text: str, api: vllm_api.Api) -> Iterator[tuple[str, str]]:
    """What each of them binds, and to what of the release: the place of its definition, whichever module passes it on.

    A name that the release has not is in no module of it, so that its module says nothing.
    """
    for statement in ast.parse(text).body:
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("vllm."):
            for alias in statement.names:
                name = f"{statement.module}.{alias.name}"
                yield alias.asname or alias.name, home(name, api) if api.has(*parts(name)) else alias.name


def home(name: str, api: vllm_api.Api) -> str:
    origin = (api.names(parts(name)[0]) or {}).get(parts(name)[1])
    return home(origin, api) if origin and origin != store.OUTSIDE and origin != name else name


def parts(name: str) -> tuple[str, str]:
    module, _, last = name.rpartition(".")
    return module, last


@pytest.mark.parametrize(
    "name",
    [
        "vllm.model_executor.layers.attention.MMEncoderAttention",
        "vllm.model_executor.layers.attention.mm_encoder_attention.MMEncoderAttention",
    ],
)
def test_two_modules_pass_on_one_object(name: str) -> None:
    api = vllm_api.Api.of(vllm_api.resolve("0.32"))
    assert home(name, api) == "vllm.model_executor.layers.attention.mm_encoder_attention.MMEncoderAttention"

"""What is asked about a package, put by a process that has imported neither torch nor vLLM."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from porting.diffusion.cases import CASES, DTYPES, WAYS
from porting.diffusion.package import package_of
from porting.job import Job
from porting.levels import Level

PIPELINE = "QwenImagePipeline"
RANKS = (2, 4)
PROMPT = "a red circle on a white background"

IMPORT = "import"  # the level of the one result where there are no others; NOT_RUN if it is not the package's fault

LEVEL = Level("diffusion", "Do ranks that share a sequence give what one gives?", "porting.diffusion.level")


def job(
    path: Path,
    ranks: Sequence[int] = RANKS,
    cases: Sequence[str] = (),
    dtypes: Sequence[str] = (),
    device: str = "cpu",
    pipeline: Path | None = None,
    prompt: str = PROMPT,
) -> Job:
    """What a process is asked about the vllm_omni package at `path`.

    Names narrow it; empty is all. In its results `level` is the way and `model` the case. With
    the folder of a Qwen-Image `pipeline`, as diffusers saves one, `prompt` is drawn as well, with the package's
    transformer and with its cache-dit: rows "picture" and "picture, cache-dit", whose numbers hold the picture as PNG
    in base 64. Raises ValueError for a path that is no such package or pipeline and for a name that is none.
    """
    if pipeline:
        _look_at_pipeline(pipeline)
    asked = (
        *(way.name for way in WAYS if way.ranks in ranks),
        *_named(cases, [case.name for case in CASES]),
        *_named(dtypes, DTYPES),
    )
    return Job(
        package_of(path).root / "__init__.py",
        LEVEL.name,
        device=device,
        dtype="",
        backend="",
        only=asked,
        pipeline=pipeline and pipeline.resolve(),
        prompt=prompt,
    )


def _look_at_pipeline(folder: Path) -> None:
    """Raises ValueError where it is none that can be drawn with."""
    try:
        kind = json.loads((folder / "model_index.json").read_text(encoding="utf-8"))["_class_name"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{folder} is no folder of a pipeline: its model_index.json cannot be read") from error
    if kind != PIPELINE:
        raise ValueError(f"{folder} is a {kind}; a {PIPELINE} is what can be drawn with")


def _named(given: Sequence[str], known: Sequence[str]) -> Sequence[str]:
    if unknown := sorted(set(given) - set(known)):
        raise ValueError(f"{unknown[0]!r} is none of {', '.join(known)}")
    return given or known

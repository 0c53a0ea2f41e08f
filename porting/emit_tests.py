"""Writes tests that a plugin team can commit: a file for each model, which asks what was answered here again."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from porting.discovery import Model
from porting.drawn_on import drawn_on
from porting.matrix import Question
from porting.result import Result, Status

EMITTED = ("parity", "paths", "embeddings")
_ORIGINALS = "originals"

_HEAD = '''\
"""{model}: proved on whatever device runs this. Needs vitport and vLLM; nothing is downloaded.

Written by `vitport-check --emit-tests`; it is yours to change.
"""

from pathlib import Path

import pytest
from porting.testing import prove

HERE = Path(__file__).parent
MODEL = HERE / {path}
'''

_BEFORE = "BEFORE = HERE / {path}  # what it was ported from\n"
_CONFIG = "CONFIG = HERE / {path}  # a tiny configuration of its tower\n"

_TESTS = {
    "parity": """

@pytest.mark.parametrize("dtype", {dtypes})
def test_it_computes_what_{what}(dtype: str) -> None:
    prove(MODEL, "parity", dtype=dtype{more})
""",
    "paths": """

@pytest.mark.parametrize("backend", {backends})
def test_kernels_are_called_as_they_insist_on(backend: str) -> None:
    prove(MODEL, "paths", backend=backend{more})
""",
    "embeddings": """

def test_each_picture_gets_its_own_vectors() -> None:
    prove(MODEL, "embeddings"{more})
""",
}


def emit_tests(folder: Path, answers: Sequence[tuple[Question, Sequence[Result]]]) -> list[Path]:
    """Write a test file into `folder` for each model of which parity, paths or embeddings could be asked.

    The originals are copied into a folder beside them, with the files of their package that they draw on. Gives the
    test files. Raises OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for model in dict.fromkeys(question.model for question, _ in answers):
        could = [
            question
            for question, results in answers
            if question.model == model and question.level.name in EMITTED
            if any(result.status is not Status.NOT_RUN for result in results)
        ]
        if could:
            path = folder / ("test_" + re.sub(r"\W", "_", model.name) + ".py")
            path.write_text("".join(_text(folder, model, could)), encoding="utf-8")
            written.append(path)
    return written


def _text(folder: Path, model: Model, could: Sequence[Question]) -> Iterator[str]:
    yield _HEAD.format(model=model.name, path=_relative(model.path, folder))
    more = ""
    if model.before is not None and any(question.level.name != "paths" for question in could):
        yield _BEFORE.format(path=_relative(_copied(model.before, folder), folder))
        more += ", before=BEFORE"
    config = could[0].job.config
    if config is not None:
        yield _CONFIG.format(path=_relative(config, folder))
        more += ", config=CONFIG"
    for name in EMITTED:
        jobs = [question.job for question in could if question.level.name == name]
        if jobs:
            yield _TESTS[name].format(
                dtypes=_tuple(job.dtype for job in jobs),
                backends=_tuple(job.backend for job in jobs),
                what="its_original_did" if model.before is not None else "it_says",
                more=more if name != "paths" else more.replace(", before=BEFORE", ""),
            )


def _tuple(names: Iterator[str]) -> str:
    return "[" + ", ".join(f'"{name}"' for name in dict.fromkeys(names)) + "]"


def _relative(path: Path, folder: Path) -> str:
    """As a string of Python's that a formatter leaves alone."""
    return json.dumps(Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix())


def _copied(before: Path, folder: Path) -> Path:
    """The copy of an original, laid out as its package is."""
    files = [before.resolve(), *drawn_on(before)]
    top = Path(os.path.commonpath([file.parent for file in files]))
    for file in files:
        copy = folder / _ORIGINALS / top.name / file.relative_to(top)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    return folder / _ORIGINALS / top.name / before.resolve().relative_to(top)
